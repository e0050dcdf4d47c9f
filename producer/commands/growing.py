"""`hpq enqueue --into SWEEP`: shows what an edited file adds and leaves out, asks, and does it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hpq.outcome import Grown
from hpq.sweep import Sweep, SweepState
from producer.asking import ask, mine
from producer.growth import Change, apply, change_of
from producer.look.flat import pairs
from producer.look.out import talk
from producer.look.planned import set_words
from producer.look.text import clean, trials_of
from producer.progress import progress_bar
from producer.session import Session
from producer.sweepfile.spec import SweepSpec
from producer.taking import say_if_not_taken

_SHOWN = 5


def enqueue_into(
    session: Session,
    ref: str,
    spec: SweepSpec,
    file: Path,
    code_dir: str | None,
    *,
    leave: bool,
    yes: bool,
    force: bool,
    as_json: bool = False,
    is_run: bool = False,
) -> str:
    """Add to a sweep what its edited file has and it lacks; cancel what waits and is left out.

    Answers the sweep's id. `is_run`: workers of the same command take it, and stdout is theirs.

    Raises:
        UserError: the file is not of this sweep, or nobody is there to be asked.
    """
    sweep = mine(session, ref, force)
    change = change_of(session, sweep, spec, file, code_dir)
    outside = 0 if leave else len(change.outside)
    _show(sweep, change, outside)
    done = Grown(added=0, cancelled=0)
    if change.new or outside:
        if outside:
            what = trials_of(outside, "queued trial")
            ask(f"Cancel {what} of {sweep.id} that the file leaves out (--leave keeps them)?", yes)
        with progress_bar(len(change.new), "writing sets") as progress:
            done = apply(
                session, sweep, spec, file, change, leave=leave, progress=progress, warn=_warn
            )
    _say(session, sweep.id, done, change, as_json, is_run)
    return sweep.id


def preview(
    session: Session, ref: str, spec: SweepSpec, file: Path, code_dir: str | None, *, as_json: bool
) -> None:
    """Show what `enqueue --into` would do, and write nothing.

    Raises:
        UserError: the file is not of this sweep.
    """
    sweep = session.view.sweep(session.view.resolve(ref, session.settings.user))
    change = change_of(session, sweep, spec, file, code_dir)
    if as_json:
        fact = {"sweep": sweep.id, "there": change.there}
        added = [dict(params) for params, _ in change.new]
        print(json.dumps({**fact, "add": added, "cancel": [t.id.number for t in change.outside]}))
        return
    _show(sweep, change, len(change.outside))
    if not change.new and not change.outside:
        talk(f"{sweep.id}: nothing new in the file")


def _warn(line: str) -> None:
    print(f"warning: {line}", file=sys.stderr)


def _show(sweep: Sweep, change: Change, outside: int) -> None:
    """What would be added and cancelled: the first few of each."""
    for note in change.notes:
        talk(clean(note))
    if change.new:
        seeds = sweep.replicates
        times = f"  ×{seeds} seeds" if seeds > 1 else ""
        new = [params for params, replicate in change.new if replicate == 0]
        some = [set_words(params) + times for params in new[:_SHOWN]]
        _list(f"{trials_of(len(change.new))} to add", "+", some, len(new))
    if outside:
        gone = [f"#{t.id.number} {pairs(t.params, sweep.varying)}" for t in change.outside[:_SHOWN]]
        _list(f"{trials_of(outside, 'queued trial')} left out", "-", gone, outside)


def _list(title: str, sign: str, some: list[str], total: int) -> None:
    talk(title + (":" if some else ""))
    for line in some:
        talk(f"  {sign} {line}")
    if total > len(some):
        talk(f"  {sign} … and {total - len(some)} more")


def _say(
    session: Session, sid: str, done: Grown, change: Change, as_json: bool, is_run: bool
) -> None:
    sweep = session.view.sweep(sid)
    if as_json:
        fact = {"sweep": sid, "added": done.added, "cancelled": done.cancelled}
        counts = {"there": change.there, "trials": sweep.counts.total, "state": sweep.state}
        print(json.dumps(fact | counts))
        return
    if not done.added and not done.cancelled:
        talk(f"{sid}: nothing new in the file ({sweep.state}, {trials_of(sweep.counts.total)})")
    else:
        gone = f", {trials_of(done.cancelled)} cancelled" if done.cancelled else ""
        talk(f"{sid}: {trials_of(done.added)} added{gone}; {trials_of(sweep.counts.total)} now")
    if is_run:
        return
    if sweep.state in (SweepState.PAUSED, SweepState.HELD):
        talk(f"{sid} is {sweep.state}; `hpq resume {sid}` lets it go on")
    elif done.added:
        say_if_not_taken(session, sid, code_is_read=True)
    print(sid)
