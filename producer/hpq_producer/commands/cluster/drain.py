"""`hpq drain`: workers end what runs and take nothing more; then their pods go."""

from __future__ import annotations

import math
import os
import time
from contextlib import ExitStack
from typing import Annotated

import typer

from hpq.domain.snapshot import Worker
from hpq.errors import Held, HpqError, NotFound, UserError
from hpq_producer.cluster.api import KubernetesApi, has_kubeconfig
from hpq_producer.cluster.connect.session import api_of, open_cluster
from hpq_producer.cluster.scale.drain import (
    DrainedWorkers,
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
        list[str] | None, typer.Argument(help="Workers or pods, or beginnings of their names.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Let them take trials again.")] = False,
    stay: Annotated[bool, typer.Option("--stay", help="Let drained pods stay.")] = False,
    timeout: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for what runs; 0: without limit.")
    ] = 0.0,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Let workers end what they run and take nothing more; pods go once they have."""
    if bool(names) == every:
        text = "name workers or pods, or say --all; `hpq workers` lists them"
        raise UserError(text, code="worker-missing")
    with ExitStack() as stack:
        session = _open(stack, context, namespace)
        live = session.reader.workers.live()
        drained = live if every else select_workers(live, names or ())
        pods = {w.pod for w in drained if w.pod}
        # Before anything is drained: what cannot be seen to its end is not begun.
        goes = pods and not undo and not stay
        api = api_of(context, namespace, session.settings) if goes else None
        for worker in drained:
            at = session.control().drain(worker.name, undo=undo)
            print_message(f"{clean(worker.name)}: {_describe(at, undo)}")
        if not drained:
            if undo:
                text = f"no worker is alive: there is no drain to undo; {_HOW_TO_START}"
                raise NotFound(text, code="no-worker")
            print_message(f"no worker is alive; {_HOW_TO_START}")
        elif api is not None:
            _wait_and_remove(api, session, drained, pods, timeout)
        elif undo:
            _keep_pods(context, namespace, session, pods)
        else:
            print_message("they stay, drained: stop them where they run, or `hpq drain --undo`")


def _open(stack: ExitStack, context: str | None, namespace: str | None) -> Session:
    """The Redis of the cluster that is named, whatever is connected; else what is reached."""
    if context is None and namespace is None:
        return stack.enter_context(open_session(load_settings()))
    session = stack.enter_context(open_cluster(context, namespace)).session
    assert session is not None
    return session


def _keep_pods(
    context: str | None, namespace: str | None, session: Session, pods: set[str]
) -> None:
    """Where an autoscaler was left drained pods to take first, they are as others again."""
    if not pods or not has_kubeconfig(os.environ):
        return
    try:
        keep_drained_pods(api_of(context, namespace, session.settings), pods)
    except HpqError as error:
        print_message(
            clean(f"an autoscaler that was left {', '.join(sorted(pods))} may take them: {error}")
        )


def _describe(at: str | None, undo: bool) -> str:
    if at is None:
        return "gone"
    if undo:
        return "takes trials again"
    return f"ends {clean(at)}, and takes nothing more" if at else "idle, and takes nothing more"


def _wait_and_remove(
    api: KubernetesApi, session: Session, drained: list[Worker], pods: set[str], timeout: float
) -> None:
    """Wait for the end of what runs; each pod goes when all its workers are done.

    Raises:
        Held: some still run after `timeout` seconds; 0 is no limit.
    """
    waiting, gone = (
        DrainedWorkers(session.reader, session.control(), [w.name for w in drained]),
        set[str](),
    )
    until = time.monotonic() + (timeout or math.inf)
    while True:
        busy = waiting.busy()
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
                f"{trials_of(len(busy), 'worker')} still at work and draining; --undo ends that"
            )
            raise


def _explain_timeout(busy: list[Worker], timeout: float) -> str:
    """What still runs after so long, and how to go on."""
    one = len(busy) == 1
    who = ", ".join(f"{clean(w.name)}, at {clean(w.trial or '?')}" for w in busy[:3])
    names = " ".join(clean(w.name) for w in busy)
    return (
        f"after {timeout:g} s {trials_of(len(busy), 'worker')} {'is' if one else 'are'} still at"
        f" work: {who}{' …' if busy[3:] else ''}; `hpq drain {names}` goes on waiting, with"
        f" `--undo` {'it takes' if one else 'they take'} trials again"
    )
