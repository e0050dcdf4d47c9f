"""`hpq enqueue --into SWEEP`: show the trials that a file adds to a sweep, and add them."""

from __future__ import annotations

from dataclasses import dataclass

from hpq.access.session import Session
from hpq.domain.sweep import SweepView
from hpq.notice import print_message, warn
from hpq_producer.commands.submit.plan_page import describe_set
from hpq_producer.enqueue.append import AppendPlan, append_trials, plan_append
from hpq_producer.enqueue.submission import Submission
from hpq_views.targets import owned_sweep
from hpq_views.text.console import progress_bar
from hpq_views.text.text import clean, trials_of

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """A sweep after an append: the trials added, and those of the file that it already had."""

    sid: str
    added: int
    existing: int


def append(session: Session, submission: Submission, ref: str, *, force: bool) -> Appended:
    """Show the trials of a file that a sweep lacks, and add them.

    Raises:
        Forbidden: the sweep has another owner, and `force` is false.
        UserError: the file does not fit the sweep, or the sweep was stopped or cancelled.
    """
    sweep = owned_sweep(session, ref, force)
    plan = plan_append(session, sweep, submission)
    show_plan(sweep, plan)
    added = 0
    if plan.new:
        with progress_bar(len(plan.new), "writing trials") as progress:
            added = append_trials(session, sweep, submission, plan, progress=progress, warn=warn)
    return Appended(sid=sweep.id, added=added, existing=plan.existing)


def show_plan(sweep: SweepView, plan: AppendPlan) -> None:
    """Print how many trials are new, how many exist already, and the first new ones."""
    for note in plan.notes:
        print_message(clean(note))
    new = plan.new[:: sweep.replicates]
    counts = f"{trials_of(len(plan.new))} to add, {plan.existing} already in the sweep"
    print_message(f"{sweep.id}: {counts}{':' if new else ''}")
    seeds = f"  ×{sweep.replicates} seeds" if sweep.replicates > 1 else ""
    for params in new[:_SHOWN]:
        print_message(f"  + {describe_set(params)}{seeds}")
    if len(new) > _SHOWN:
        print_message(f"  + … and {len(new) - _SHOWN} more")


def print_appended(done: Appended, sweep: SweepView) -> None:
    """Print how many trials were added."""
    counts = f"{trials_of(done.added)} added; {trials_of(sweep.counts.total)} in total"
    print_message(f"{sweep.id}: {counts} ({sweep.state})")
