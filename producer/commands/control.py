"""`hpq pause`, `resume`, `stop`, `cancel`, `retry`, `set`, `rm`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from hpq.errors import Forbidden, SettingsError, UserError
from hpq.files import location, open_files
from hpq.sweep import Sweep
from hpq.trial import TrialState
from producer import refs
from producer.commands.options import SweepRef
from producer.limits import limits
from producer.session import Session, open_session
from producer.writing import store_of

app = typer.Typer()

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Other = Annotated[bool, typer.Option("--force", help="Also a sweep of somebody else.")]
Targets = Annotated[
    list[str] | None, typer.Argument(help="A sweep, or trials of it: SWEEP/7, or 7 of my last.")
]


def _mine(session: Session, ref: str | None, force: bool) -> Sweep:
    """The sweep that is meant, if I may touch it."""
    sweep = session.view.sweep(session.view.resolve(ref, session.settings.user))
    if sweep.owner != session.settings.user and not force:
        raise Forbidden(f"sweep {sweep.id} is {sweep.owner}'s; --force does it all the same")
    return sweep


def _named(session: Session, ref: str | None, verb: str) -> str | None:
    """No ending of anything by default on a server that others use, too."""
    if ref is None and not session.is_private:
        raise UserError(f"say which sweep to {verb}: `hpq ls` lists them")
    return ref


def _ask(question: str, yes: bool) -> None:
    if not yes and sys.stdin.isatty() and not typer.confirm(question):
        raise typer.Abort


@app.command()
def pause(sweep: SweepRef = None, force: Other = False) -> None:
    """Let no further trial of a sweep start."""
    _say_to("pause", sweep, force, lambda s: f"{s.id}: paused; {s.counts.running} trials run on")


@app.command()
def resume(sweep: SweepRef = None, force: Other = False) -> None:
    """Go on with a paused or held sweep."""
    _say_to("resume", sweep, force, lambda s: f"{s.id}: {s.state}")


def _say_to(verb: str, ref: str | None, force: bool, line: Callable[[Sweep], str]) -> None:
    with open_session() as session:
        sweep = _mine(session, ref, force)
        store_of(session).control(sweep.id, verb)
        print(line(session.view.sweep(sweep.id)), file=sys.stderr)


@app.command()
def stop(sweep: SweepRef = None, yes: Yes = False, force: Other = False) -> None:
    """Finish what runs, cancel what waits."""
    with open_session() as session:
        it = _mine(session, _named(session, sweep, "stop"), force)
        _ask(f"Cancel {it.counts.queued} queued trials of {it.id}?", yes)
        touched = store_of(session).control(it.id, "stop")
        runs = session.view.sweep(it.id).counts.running
        print(f"{it.id}: {touched} queued trials cancelled, {runs} run on", file=sys.stderr)


@app.command()
def cancel(targets: Targets = None, yes: Yes = False, force: Other = False) -> None:
    """Stop a sweep or some of its trials now."""
    with open_session() as session:
        ref, numbers = refs.parse(targets)
        named = ref if numbers else _named(session, ref, "cancel")
        it = _mine(session, named, force)
        what = f"{len(numbers)} trials" if numbers else f"all {it.counts.total} trials"
        _ask(f"Cancel {what} of {it.id}?", yes)
        touched = store_of(session).control(it.id, "cancel", *numbers)
        print(f"{it.id}: {touched} trials are cancelled or being stopped", file=sys.stderr)


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
        it = _mine(session, ref, force)
        if not numbers:
            wanted = {TrialState.CANCELLED} if cancelled else {TrialState.FAILED}
            wanted |= {TrialState.FAILED} if failed else set()
            trials = session.view.all_trials(it.id)
            numbers = [t.id.number for t in trials if t.state in wanted]
        touched = store_of(session).retry(it.id, numbers)
        print(f"{it.id}: {touched} trials queued again", file=sys.stderr)


@app.command("set")
def set_(
    changes: Annotated[list[str], typer.Argument(help="[SWEEP] KEY=VALUE …")], force: Other = False
) -> None:
    """Change a sweep's limits: max_parallel, priority, retries, timeout."""
    ref = None if "=" in changes[0] else changes[0]
    fields = limits(changes if ref is None else changes[1:])
    with open_session() as session:
        it = _mine(session, ref, force)
        store_of(session).set(it.id, fields)
        done = " ".join(f"{name}={value}" for name, value in fields.items())
        print(f"{it.id}: {done}", file=sys.stderr)


@app.command()
def rm(sweep: SweepRef = None, yes: Yes = False, force: Other = False) -> None:
    """Delete a sweep with all its results."""
    with open_session() as session:
        it = _mine(session, _named(session, sweep, "delete"), force)
        if it.counts.running and not force:
            raise UserError(f"{it.id} has running trials; `hpq cancel {it.id}` first, or --force")
        _ask(f"Delete {it.id} with the results of {it.counts.ended} trials?", yes)
        store = store_of(session)
        store.control(it.id, "cancel")
        store.remove(it)
        print(f"{it.id}: deleted", file=sys.stderr)
        _remove_files(session, it)


def _remove_files(session: Session, sweep: Sweep) -> None:
    settings = session.settings
    place = location(settings)
    if not settings.store and not Path(place).exists():
        return  # never used here: not made now
    try:
        open_files(place).remove(f"{settings.prefix}/{sweep.id}")
    except (OSError, SettingsError) as error:
        print(f"{sweep.id}: its files stay in {place}: {error}", file=sys.stderr)
