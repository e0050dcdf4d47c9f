"""`hpq enqueue --into SWEEP`: show the trials that a file adds to a sweep, and add them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hpq.sweep import Sweep, SweepState
from producer.asking import mine
from producer.growth import AppendPlan, append, plan_append
from producer.look.out import talk
from producer.look.planned import set_words
from producer.look.text import clean, trials_of
from producer.progress import Bar
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
    force: bool,
    as_json: bool = False,
    is_run: bool = False,
) -> str:
    """Add to a sweep the trials of a file that it lacks; return the sweep's id.

    `is_run`: workers of the same command take them, and stdout is theirs.

    Raises:
        Forbidden: the sweep has another owner, and `force` is false.
        UserError: the file does not fit the sweep.
    """
    sweep = mine(session, ref, force)
    plan = plan_append(session, sweep, spec, file, code_dir)
    _show(sweep, plan)
    added = 0
    if plan.new:
        with Bar(len(plan.new), "writing sets") as bar:
            added = append(session, sweep, spec, file, plan, progress=bar.at, warn=_warn)
    _report(session, sweep.id, added, plan, as_json, is_run)
    return sweep.id


def preview(
    session: Session, ref: str, spec: SweepSpec, file: Path, code_dir: str | None, *, as_json: bool
) -> None:
    """Show what `enqueue --into` would add, and write nothing.

    Raises:
        UserError: the file does not fit the sweep.
    """
    sweep = session.view.sweep(session.view.resolve(ref, session.settings.user))
    plan = plan_append(session, sweep, spec, file, code_dir)
    if as_json:
        added = [dict(params) for params, _ in plan.new]
        print(json.dumps({"sweep": sweep.id, "there": plan.existing, "add": added}))
        return
    _show(sweep, plan)


def _warn(line: str) -> None:
    print(f"warning: {line}", file=sys.stderr)


def _show(sweep: Sweep, plan: AppendPlan) -> None:
    """Print how many trials are new, how many exist already, and the first new ones."""
    for note in plan.notes:
        talk(clean(note))
    new = [params for params, replicate in plan.new if replicate == 0]
    counts = f"{trials_of(len(plan.new))} to add, {plan.existing} already there"
    talk(f"{sweep.id}: {counts}{':' if new else ''}")
    seeds = f"  ×{sweep.replicates} seeds" if sweep.replicates > 1 else ""
    for params in new[:_SHOWN]:
        talk(f"  + {set_words(params)}{seeds}")
    if len(new) > _SHOWN:
        talk(f"  + … and {len(new) - _SHOWN} more")


def _report(
    session: Session, sid: str, added: int, plan: AppendPlan, as_json: bool, is_run: bool
) -> None:
    sweep = session.view.sweep(sid)
    if as_json:
        counts = {"added": added, "there": plan.existing, "trials": sweep.counts.total}
        print(json.dumps({"sweep": sid, **counts, "state": sweep.state}))
        return
    talk(f"{sid}: {trials_of(added)} added; {trials_of(sweep.counts.total)} now ({sweep.state})")
    if is_run:
        return
    if sweep.state in (SweepState.PAUSED, SweepState.HELD):
        talk(f"{sid} is {sweep.state}; `hpq resume {sid}` lets it go on")
    elif added:
        say_if_not_taken(session, sid, code_is_read=True)
    print(sid)
