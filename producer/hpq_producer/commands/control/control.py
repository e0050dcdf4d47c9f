"""`hpq pause`, `resume`, `stop`, `cancel`, `retry`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

from typer import Argument, Option

from hpq.domain.sweep import SweepView
from hpq.domain.trial import TrialId, TrialState, TrialView
from hpq.errors import UserError
from hpq.store.control import SweepControl
from hpq_producer.commands.common_flags import WhereExpr
from hpq_producer.diagnosis.notices import print_if_edited, print_if_not_running
from hpq_producer.query.filter import Filter
from hpq_producer.query.selection import Selection
from hpq_producer.reports.ranking import column_names, result_columns, result_row
from hpq_producer.session import Session, open_session
from hpq_producer.targets import SweepRef, complete_sweep_ids, confirm, owned_sweep, parse_targets
from hpq_producer.terminal.console import discard_stdout, print_message, show_table
from hpq_producer.terminal.text import trials_of

Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")]
Other = Annotated[bool, Option("--force", help="Allow another user's sweep.")]
Targets = Annotated[
    list[str] | None,
    Argument(
        metavar="SWEEP|TRIAL",
        help="A sweep, or its trials: SWEEP/7, or 7 of your last sweep. Default: your last sweep.",
        autocompletion=complete_sweep_ids,
    ),
]


@contextmanager
def open_to_end(
    ref: str | None, verb: str, force: bool, *, may_mean_trials: bool = False
) -> Iterator[tuple[Session, SweepView]]:
    """Open a session and the sweep to end.

    The sweep must be named if stdin is no terminal or the server is shared. With `may_mean_trials`
    a shared server accepts the numbers of trials of your last sweep.

    Raises:
        UserError: the sweep must be named.
    """
    if ref is None and not may_mean_trials and not sys.stdin.isatty():
        raise _sweep_missing(verb)
    with open_session() as session:
        if ref is None and not session.is_private and not may_mean_trials:
            raise _sweep_missing(verb)
        yield session, owned_sweep(session, ref, force)


def _sweep_missing(verb: str) -> UserError:
    return UserError(f"name the sweep to {verb}; `hpq ls` lists sweeps", code="sweep-missing")


def pause(sweep: SweepRef = None, force: Other = False) -> None:
    """Start no further trial of a sweep; running trials continue.

    Example: hpq pause digits-3f2a1
    """
    _control(
        SweepControl.pause,
        sweep,
        force,
        lambda s: f"{s.id}: paused; {_describe_running(s.counts.running)}",
    )


def resume(sweep: SweepRef = None, force: Other = False) -> None:
    """Continue a paused or held sweep.

    Example: hpq resume digits-3f2a1
    """
    _control(SweepControl.resume, sweep, force, lambda s: f"{s.id}: {s.state}", continues=True)


def _describe_running(running: int) -> str:
    return f"{trials_of(running)} {'continues' if running == 1 else 'continue'}"


def _control(
    act: Callable[[SweepControl, str], None],
    ref: str | None,
    force: bool,
    line: Callable[[SweepView], str],
    continues: bool = False,
) -> None:
    with open_session() as session:
        sweep = owned_sweep(session, ref, force)
        act(session.control(), sweep.id)
        print_message(line(session.reader.sweeps.get(sweep.id)))
        if continues and sweep.counts.waits:
            print_if_not_running(session, sweep.id)


def _is_over(found: SweepView) -> bool:
    """Return true, and print a line, if the sweep is over."""
    if found.state.is_over:
        print_message(f"{found.id} is already over ({found.state})")
    return found.state.is_over


def stop(sweep: SweepRef = None, yes: Yes = False, force: Other = False) -> None:
    """Finish the running trials of a sweep; cancel its queued trials.

    Example: hpq stop digits-3f2a1
    """
    with open_to_end(sweep, "stop", force) as (session, found):
        if _is_over(found):
            return
        confirm(f"Cancel {trials_of(found.counts.queued, 'queued trial')} of {found.id}?", yes)
        touched = session.control().stop(found.id)
        rest = _describe_running(session.reader.sweeps.get(found.id).counts.running)
        print_message(f"{found.id}: {trials_of(touched, 'queued trial')} cancelled; {rest}")


def cancel(
    targets: Targets = None,
    where: WhereExpr = None,
    yes: Yes = False,
    force: Other = False,
) -> None:
    """Stop a sweep, or some of its trials, now.

    Examples:
      hpq cancel digits-3f2a1 --yes
      hpq cancel --where 'lr > 0.1'
    """
    ref, numbers = parse_targets(targets)
    if where is not None and numbers:
        raise UserError("cancel: name trials or use --where, not both")
    expression = Filter.of(where) if where is not None else None
    with open_to_end(ref, "cancel", force, may_mean_trials=bool(numbers)) as (session, found):
        for one in numbers:
            session.reader.trials.get(TrialId(sweep=found.id, number=one))  # raises NotFound
        if _is_over(found):
            return
        if expression is not None:
            numbers = _pick(session, found, expression)
            if not numbers:
                return
        left, what = _left_to_cancel(session, found, numbers)
        if not left:
            print_message(f"{what}; nothing was cancelled")
            return
        confirm(f"Cancel {what}?", yes)
        touched = session.control().cancel(found.id, numbers)
        print_message(f"{found.id}: {trials_of(touched)} cancelled or stopping")


_SHOWN = 20  # trials


def _pick(session: Session, sweep: SweepView, where: Filter) -> list[int]:
    """List the numbers of the queued and running trials that match.

    Raises:
        UserError: no trial has a value that the expression names.
    """
    found = Selection(reader=session.reader, sweep=sweep, where=where).trials()
    left: list[TrialView] = [t for t in found if not t.state.is_terminal]
    if not left:
        print_message(f"{sweep.id}: no queued or running trial matches; nothing was cancelled")
        return []
    try:
        _show_picked(sweep, left)
    except BrokenPipeError:  # the reader of the table is done; cancel all the same
        discard_stdout()
    return [t.id.number for t in left]


def _show_picked(sweep: SweepView, left: list[TrialView]) -> None:
    rows = (result_row(t, sweep) for t in left[:_SHOWN])
    show_table(result_columns(sweep), rows, explain=column_names(sweep))
    if len(left) > _SHOWN:
        print(f"… and {len(left) - _SHOWN} more")
    sys.stdout.flush()


def _left_to_cancel(session: Session, found: SweepView, numbers: list[int]) -> tuple[int, str]:
    """Return how many trials a cancel would end, in words: `2 trials of X (1 has ended)`."""
    total, ended = found.counts.total, found.counts.ended
    if numbers:
        ids = [TrialId(sweep=found.id, number=n) for n in dict.fromkeys(numbers)]
        states = [session.reader.trials.get(one).state for one in ids]
        total, ended = len(ids), sum(state.is_terminal for state in states)
        if total == ended == 1:
            return 0, f"{ids[0]} is already over ({states[0]})"
    have = "has" if ended == 1 else "have"
    what = f"{trials_of(total - ended)} of {found.id}"
    # A search may still add trials to a sweep.
    return total - ended if numbers else 1, what + (f" ({ended} {have} ended)" if ended else "")


def retry(
    targets: Targets = None,
    cancelled: Annotated[
        bool, Option(help="Queue all cancelled trials, not the failed ones.")
    ] = False,
    where: WhereExpr = None,
    yes: Yes = False,
    force: Other = False,
) -> None:
    """Queue failed or cancelled trials again.

    A finished trial named by number also runs again; hpq asks before it drops the result.

    Examples:
      hpq retry digits-3f2a1
      hpq retry 7 12 --yes
    """
    ref, numbers = parse_targets(targets)
    if where is not None and numbers:
        raise UserError("retry: name trials or use --where, not both")
    only = Filter.of(where) if where is not None else None
    with open_session() as session:
        found = owned_sweep(session, ref, force)
        if not numbers:
            wanted = TrialState.CANCELLED if cancelled else TrialState.FAILED
            trials = Selection(
                reader=session.reader, sweep=found, where=only, begun=not cancelled
            ).trials()
            numbers = [t.id.number for t in trials if t.state is wanted]
        elif results := _with_results(session, found, numbers):
            question = f"Drop the results of {trials_of(results, 'finished trial')} of {found.id}?"
            confirm(question, yes)
        touched = session.control().retry(found.id, numbers)
        done = f"{trials_of(touched)} queued again" if touched else "no trial to retry"
        print_message(f"{found.id}: {done}")
        if touched:
            print_if_edited(session, found)
            print_if_not_running(session, found.id)


def _with_results(session: Session, found: SweepView, numbers: list[int]) -> int:
    """Count the trials with a result, which a retry drops."""
    trials = [
        session.reader.trials.get(TrialId(sweep=found.id, number=n)) for n in dict.fromkeys(numbers)
    ]
    return sum(t.state in (TrialState.FINISHED, TrialState.PRUNED) for t in trials)
