"""`hpq drain`: workers finish their trials and claim no more; then their pods are deleted."""

from __future__ import annotations

import math
import os
import time
from contextlib import ExitStack
from typing import Annotated

from typer import Argument, Option

from hpq.domain.status import Worker
from hpq.errors import Held, HpqError, NotFound, UserError
from hpq_producer.cluster.api import KubernetesApi, has_kubeconfig
from hpq_producer.cluster.connect.session import api_of, open_cluster
from hpq_producer.cluster.scale.drain import (
    keep_drained_pods,
    remove_drained_pods,
    select_workers,
)
from hpq_producer.commands.common_flags import Context, Namespace
from hpq_producer.session import Session, load_settings, open_session
from hpq_producer.terminal.console import print_message
from hpq_producer.terminal.text import clean, trials_of

_POLL_S = 1.0
_HOW_TO_START = "`hpq worker` starts one, in a cluster `hpq scale N`"


def drain(
    names: Annotated[
        list[str] | None, Argument(help="Workers or pods: names, or their first characters.")
    ] = None,
    every: Annotated[bool, Option("--all", help="Drain all workers.")] = False,
    undo: Annotated[bool, Option("--undo", help="Let drained workers claim trials again.")] = False,
    stay: Annotated[bool, Option("--stay", help="Keep the pods of drained workers.")] = False,
    timeout: Annotated[
        float,
        Option(min=0, help="Give up waiting for running trials after this time; 0: no limit."),
    ] = 0,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Let workers finish their trials and claim no more; then delete their pods.

    Examples:
      hpq drain hpq-worker-7d4f9
      hpq drain --all --timeout 3600
    """
    if bool(names) == every:
        text = "name workers or pods, or use --all; `hpq workers` lists them"
        raise UserError(text, code="worker-missing")
    with ExitStack() as stack:
        session = _open(stack, context, namespace)
        live = session.reader.workers.live()
        drained = live if every else select_workers(live, names or ())
        pods = {w.pod for w in drained if w.pod}
        # Before the first drain, so that a cluster out of reach leaves all workers as they are.
        goes = pods and not undo and not stay
        api = api_of(context, namespace, session.settings) if goes else None
        for worker in drained:
            at = session.control().drain(worker.name, undo=undo)
            print_message(f"{clean(worker.name)}: {_describe(at, undo)}")
        if not drained:
            if undo:
                text = f"no worker is running, so no drain to undo; {_HOW_TO_START}"
                raise NotFound(text, code="no-worker")
            print_message(f"no worker is running; {_HOW_TO_START}")
        elif api is not None:
            _wait_and_remove(api, session, drained, pods, timeout)
        elif undo:
            _keep_pods(context, namespace, session, pods)
        else:
            print_message(
                "drained workers keep running; stop them on their machines, or `hpq drain --undo`"
            )


def _open(stack: ExitStack, context: str | None, namespace: str | None) -> Session:
    """Open the Redis of the named cluster; without a name, that of other commands."""
    if context is None and namespace is None:
        return stack.enter_context(open_session(load_settings()))
    session = stack.enter_context(open_cluster(context, namespace)).session
    assert session is not None
    return session


def _keep_pods(
    context: str | None, namespace: str | None, session: Session, pods: set[str]
) -> None:
    """Clear the mark with which an autoscaler deletes drained pods first."""
    if not pods or not has_kubeconfig(os.environ):
        return
    try:
        keep_drained_pods(api_of(context, namespace, session.settings), pods)
    except HpqError as error:
        print_message(clean(f"an autoscaler may delete {', '.join(sorted(pods))}: {error}"))


def _describe(at: str | None, undo: bool) -> str:
    if at is None:
        return "has exited"
    if undo:
        return "claims trials again"
    return f"finishes {clean(at)} and claims no more" if at else "idle; claims no more"


def _wait_and_remove(
    api: KubernetesApi, session: Session, drained: list[Worker], pods: set[str], timeout: float
) -> None:
    """Wait for running trials; delete each pod when all its workers are done.

    Raises:
        Held: trials still run after `timeout` seconds; 0 is no limit.
    """
    control, names, gone = session.control(), {w.name for w in drained}, set[str]()
    until = time.monotonic() + (timeout or math.inf)
    while True:
        live = [w for w in session.reader.workers.live() if w.name in names]
        busy = [w for w in live if control.drain(w.name)]
        done = pods - {w.pod for w in busy} - gone
        if done:
            for line in remove_drained_pods(api, session.reader, done):
                print_message(clean(line))
        gone |= done
        if not busy:
            return
        left_s = until - time.monotonic()
        if left_s <= 0:
            raise Held(_explain_timeout(busy, timeout), code="timed-out")
        try:
            time.sleep(min(_POLL_S, left_s))
        except KeyboardInterrupt:
            print_message(
                f"{trials_of(len(busy), 'worker')} still draining; `hpq drain --undo` stops that"
            )
            raise


def _explain_timeout(busy: list[Worker], timeout: float) -> str:
    """Return which workers still train after the timeout, and the next command."""
    one = len(busy) == 1
    who = ", ".join(f"{clean(w.name)} ({clean(w.trial or '?')})" for w in busy[:3])
    names = " ".join(clean(w.name) for w in busy)
    return (
        f"after {timeout:g} s {trials_of(len(busy), 'worker')} not finished:"
        f" {who}{' …' if busy[3:] else ''}; `hpq drain {names}` continues waiting, with --undo"
        f" {'it claims' if one else 'they claim'} trials again"
    )
