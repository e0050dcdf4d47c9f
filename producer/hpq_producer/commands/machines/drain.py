"""`hpq drain`: let workers finish their trials and claim no more."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from typing import Annotated

from typer import Argument, Option

from hpq.access.connection_record import scale_command
from hpq.access.session import Session, load_settings, open_session
from hpq.domain.status import Worker
from hpq.errors import Held, NotFound, UserError
from hpq.notice import print_message
from hpq.shell import shell_hint
from hpq_producer.actions.steer import drain_worker, is_draining
from hpq_producer.commands.common_flags import Output
from hpq_views.text.output import Format, show_data
from hpq_views.text.text import clean, trials_of

_POLL_S = 1.0
_FIRST_TO_GO = "controller.kubernetes.io/pod-deletion-cost=-1 --overwrite"


def drain(
    names: Annotated[
        list[str] | None, Argument(help="Workers or pods: names, or their first characters.")
    ] = None,
    every: Annotated[bool, Option("--all", help="Drain all workers.")] = False,
    undo: Annotated[bool, Option("--undo", help="Let drained workers claim trials again.")] = False,
    timeout: Annotated[
        float,
        Option(min=0, help="Give up waiting for running trials after this time; 0: no limit."),
    ] = 0,
    output: Output = Format.TABLE,
) -> None:
    """Let workers finish their trials and claim no more; wait until they are idle.

    A drained worker keeps running: stop it, or delete its pod.

    Examples:
      hpq drain hpq-worker-7d4f9
      hpq drain --all --timeout 3600
    """
    if bool(names) == every:
        text = "name workers or pods, or use --all; `hpq workers` lists them"
        raise UserError(text, code="worker-missing")
    with open_session(load_settings()) as session:
        live = session.reader.workers.live()
        drained = live if every else _select(live, names or ())
        if not drained:
            start = f"`hpq worker` starts one; in a cluster {scale_command(session.kubectl)}"
            if undo:
                text = f"no worker is running, so no drain to undo; {start}"
                raise NotFound(text, code="no-worker")
            print_message(f"no worker is running; {start}")
        for worker in drained:
            print_message(drain_worker(session, worker.name, undo=undo))
        if drained and not undo:
            _wait(session, {worker.name for worker in drained}, timeout)
            print_message(_how_to_stop(session, drained))
    if output.is_data:
        show_data([{"worker": one.name, "drained": not undo} for one in drained], output)


def _select(workers: Sequence[Worker], names: Collection[str]) -> list[Worker]:
    """Return the live workers by the name of a worker or a pod, or the start of one.

    Raises:
        NotFound: no worker has the name.
        UserError: a start matches workers of more than one pod.
    """
    found: dict[str, Worker] = {}
    for name in names:
        exact = [w for w in workers if name in (w.name, w.pod)]
        fits = exact or [w for w in workers if w.name.startswith(name) or w.pod.startswith(name)]
        if not (name and fits):
            text = f"no live worker or pod is named {name!r}; list them: hpq workers"
            raise NotFound(text, code="worker-not-found")
        homes = sorted({w.pod or w.name for w in fits})
        if len(homes) > 1:
            text = f"{name!r} matches {', '.join(homes[:5])}; type more of the name"
            raise UserError(text, code="worker-ambiguous")
        found |= {w.name: w for w in fits}
    return list(found.values())


def _wait(session: Session, names: set[str], timeout: float) -> None:
    """Wait until no live worker of these names runs a trial.

    Raises:
        Held: trials still run after `timeout` seconds; 0 is no limit.
    """
    until = time.monotonic() + (timeout or math.inf)
    while True:
        live = [w for w in session.reader.workers.live() if w.name in names]
        busy = [w for w in live if is_draining(session, w.name)]
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


def _how_to_stop(session: Session, drained: Sequence[Worker]) -> str:
    """Return how to stop drained workers; Kubernetes removes pods of a lower cost first."""
    pods = shell_hint(sorted({w.pod for w in drained if w.pod}))
    if not pods:
        undo = f"hpq drain {' '.join(clean(w.name) for w in drained)} --undo"
        return f"drained; stop the workers on their machines, or let them go on: {undo}"
    return (
        "drained; so that Kubernetes removes these pods first:"
        f" {session.kubectl} annotate pod {pods} {_FIRST_TO_GO};"
        f" then {scale_command(session.kubectl)}"
    )


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
