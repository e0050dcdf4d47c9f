"""`hpq wait`."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from typing import Annotated

import typer
from typer import Option

from hpq.domain.status import SweepStatus
from hpq.errors import Held
from hpq.notice import Notice
from hpq_producer.analysis.records import sweep_record
from hpq_producer.cluster.pods import PodWatcher
from hpq_producer.commands.common_flags import Output
from hpq_producer.diagnosis.verdict import exit_code
from hpq_producer.diagnosis.waiting import explain_waiting_with_pods, without_counts
from hpq_producer.query.follow import follow, is_settled
from hpq_producer.session import open_session
from hpq_producer.targets import SweepRef
from hpq_producer.terminal.console import print_message
from hpq_producer.terminal.output import Format, show_data
from hpq_producer.terminal.text import planned
from hpq_producer.watch.event_log import say_verdict


def wait(
    sweep: SweepRef = None,
    timeout: Annotated[
        float | None, Option(min=0, help="Give up after this time; exit code 5.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Wait until a sweep ends; the exit code is its result.

    0: all trials finished. 1: some failed. 5: the sweep is held, or the timeout passed.

    Examples:
      hpq wait && hpq best --yaml
      hpq wait digits-3f2a1 --timeout 3600
    """
    with open_session() as session, closing(PodWatcher(session)) as pods:
        sid = session.find(sweep)
        deadline = None if timeout is None else time.monotonic() + timeout
        printed: set[str] = set()
        for change in follow(session.reader, sid):
            why = _print_once(change.status, pods, printed)
            is_late = deadline is not None and time.monotonic() > deadline
            if not is_late and not is_settled(change.status):
                continue
            found, best = change.status.sweep, change.status.best
            record = sweep_record(found, best[0].objective if best else None)
            if is_settled(change.status):
                if output.is_data:
                    show_data(record, output)
                say_verdict(change.status, sys.stderr, why)
                raise typer.Exit(exit_code(found))
            done = f"{found.counts.ended}/{planned(found.counts)}"
            late = Held(
                f"{sid} is not over after {timeout:g} s: {done} trials ended", code="timed-out"
            )
            if not output.is_data:
                raise late
            show_data(record | {"error": late.record()}, output)
            print_message(f"hpq: {late.notice}")
            raise typer.Exit(int(late.exit_code))


def _print_once(status: SweepStatus, pods: PodWatcher, printed: set[str]) -> Notice | None:
    """Print each reason why no worker claims the sweep's trials once."""
    why = explain_waiting_with_pods(status, pods)
    if why and without_counts(why.text) not in printed:
        print_message(f"hpq: {why}")
        printed.add(without_counts(why.text))
    return why
