"""`hpq pause`, `resume`, `stop`, `retry`, `set`, `rm`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from hpq.errors import SettingsError, UserError
from hpq.files import location, open_files
from hpq.sweep import Sweep
from hpq.trial import TrialState
from producer import refs
from producer.commands.asking import Other, Targets, Yes, ask, ending, mine
from producer.completion import SweepRef
from producer.limits import limits
from producer.look.text import trials_of
from producer.session import Session, open_session
from producer.taking import say_if_not_taken
from producer.writing import store_of

app = typer.Typer()


@app.command()
def pause(sweep: SweepRef = None, force: Other = False) -> None:
    """Let no further trial of a sweep start."""
    _say_to("pause", sweep, force, lambda s: f"{s.id}: paused; {_run_on(s.counts.running)}")


@app.command()
def resume(sweep: SweepRef = None, force: Other = False) -> None:
    """Go on with a paused or held sweep."""
    _say_to("resume", sweep, force, lambda s: f"{s.id}: {s.state}")


def _run_on(running: int) -> str:
    return f"{trials_of(running)} {'runs' if running == 1 else 'run'} on"


def _say_to(verb: str, ref: str | None, force: bool, line: Callable[[Sweep], str]) -> None:
    with open_session() as session:
        sweep = mine(session, ref, force)
        store_of(session).control(sweep.id, verb)
        print(line(session.view.sweep(sweep.id)), file=sys.stderr)


@app.command()
def stop(sweep: SweepRef = None, yes: Yes = False, force: Other = False) -> None:
    """Finish what runs, cancel what waits."""
    with ending(sweep, "stop", force) as (session, it):
        ask(f"Cancel {trials_of(it.counts.queued, 'queued trial')} of {it.id}?", yes)
        touched = store_of(session).control(it.id, "stop")
        rest = _run_on(session.view.sweep(it.id).counts.running)
        print(f"{it.id}: {trials_of(touched, 'queued trial')} cancelled; {rest}", file=sys.stderr)


@app.command()
def retry(
    targets: Targets = None,
    failed: Annotated[bool, typer.Option(help="All failed trials (the default).")] = False,
    cancelled: Annotated[bool, typer.Option(help="All cancelled trials.")] = False,
    force: Other = False,
) -> None:
    """Queue failed or cancelled trials again."""
    with open_session() as session:
        ref, numbers = refs.parse(targets)
        it = mine(session, ref, force)
        if not numbers:
            wanted = {TrialState.CANCELLED} if cancelled else {TrialState.FAILED}
            wanted |= {TrialState.FAILED} if failed else set()
            trials = session.view.all_trials(it.id)
            numbers = [t.id.number for t in trials if t.state in wanted]
        touched = store_of(session).retry(it.id, numbers)
        print(f"{it.id}: {trials_of(touched)} queued again", file=sys.stderr)
        if touched:
            say_if_not_taken(session, it.id)


@app.command("set")
def set_(
    changes: Annotated[list[str], typer.Argument(help="[SWEEP] KEY=VALUE …")], force: Other = False
) -> None:
    """Change a sweep's limits: max_parallel, priority, retries, timeout, stall, canary."""
    ref = None if "=" in changes[0] else changes[0]
    fields = limits(changes if ref is None else changes[1:])
    with open_session() as session:
        it = mine(session, ref, force)
        store_of(session).set(it.id, fields)
        done = " ".join(f"{name}={value}" for name, value in fields.items())
        print(f"{it.id}: {done}", file=sys.stderr)


@app.command()
def rm(sweep: SweepRef = None, yes: Yes = False, force: Other = False) -> None:
    """Delete a sweep with all its results."""
    if sweep is not None and _finish_removal(sweep):
        return
    with ending(sweep, "delete", force) as (session, it):
        if it.counts.running and not force:
            raise UserError(f"{it.id} has running trials; `hpq cancel {it.id}` first, or --force")
        ask(f"Delete {it.id} with the results of {trials_of(it.counts.ended)}?", yes)
        store = store_of(session)
        store.remove(it.id)
        print(f"{it.id}: deleted", file=sys.stderr)
        _remove_files(session, it)


def _finish_removal(sid: str) -> bool:
    with open_session() as session:
        store = store_of(session)
        if sid not in store.half_removed():
            return False
        store.remove(sid)
        print(f"{sid}: deleted", file=sys.stderr)
        return True


def _remove_files(session: Session, sweep: Sweep) -> None:
    settings = session.settings
    place = location(settings)
    if not settings.store and not Path(place).exists():
        return  # never used here: not made now
    try:
        open_files(place).remove(f"{settings.prefix}/{sweep.id}")
    except (OSError, SettingsError) as error:
        print(f"{sweep.id}: its files stay in {place}: {error}", file=sys.stderr)
