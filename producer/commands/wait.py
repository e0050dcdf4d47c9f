"""`hpq wait`."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from typing import Annotated

import typer

from hpq.codes import Notice
from hpq.errors import Held
from hpq.snapshot import Snapshot
from producer.cluster.seen import Pods
from producer.completion import sweep_ids
from producer.look.follow import follow, stands
from producer.look.lines import say_verdict, why_waits
from producer.look.out import show_json, talk
from producer.look.outcome import exit_code
from producer.look.records import sweep_record
from producer.look.text import planned
from producer.look.turns import gist
from producer.session import open_session

app = typer.Typer()


@app.command()
def wait(
    sweep: Annotated[
        str | None, typer.Argument(help="A sweep's id or its beginning.", autocompletion=sweep_ids)
    ] = None,
    timeout: Annotated[float | None, typer.Option(min=0, help="Give up after seconds.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON at the end.")] = False,
) -> None:
    """Block until a sweep is over: exit code 0 all well, 1 some failed, 5 held or timed out."""
    with open_session() as session, closing(Pods(session)) as seen:
        sid = session.view.resolve(sweep, session.settings.user)
        deadline = None if timeout is None else time.monotonic() + timeout
        told: set[str] = set()
        for change in follow(session.view, sid):
            why = _tell(change.snapshot, seen, told)
            is_late = deadline is not None and time.monotonic() > deadline
            if not is_late and not stands(change.snapshot):
                continue
            found, best = change.snapshot.sweep, change.snapshot.best
            record = sweep_record(found, best[0].objective if best else None)
            if stands(change.snapshot):
                if as_json:
                    show_json(record)
                say_verdict(change.snapshot, sys.stderr, why)
                raise typer.Exit(exit_code(found))
            done = f"{found.counts.ended}/{planned(found.counts)}"
            late = Held(f"{sid} is not over after {timeout:g}s: {done}", code="timed-out")
            if not as_json:
                raise late
            show_json(record | {"error": late.record()})
            talk(f"hpq: {late.notice}")
            raise typer.Exit(int(late.exit_code))


def _tell(shot: Snapshot, seen: Pods, told: set[str]) -> Notice | None:
    """Say once why nobody takes the sweep."""
    why = why_waits(shot, seen)
    if why and gist(why.text) not in told:
        talk(f"hpq: {why}")
        told.add(gist(why.text))
    return why
