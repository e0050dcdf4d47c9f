"""`hpq pause`, `resume`, `stop`, `cancel`, `retry`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

from typer import Argument, Option

from hpq.access.session import Session, open_session
from hpq.domain.sweep import SweepView
from hpq.domain.trial import TrialState, TrialView
from hpq.errors import NotFound, UserError
from hpq.notice import print_message
from hpq_producer.actions import steer
from hpq_producer.commands.common_flags import Other, Output, WhereExpr
from hpq_views.analysis.filter import Filter
from hpq_views.analysis.output_records import sweep_record
from hpq_views.analysis.selection import Selection
from hpq_views.command_output.results_table import column_names, result_columns, result_row
from hpq_views.targets import SweepRef, complete_sweep_ids, confirm, owned_sweep, parse_targets
from hpq_views.text.console import discard_stdout, show_table
from hpq_views.text.output import Format, show_data
from hpq_views.why.waiting import explain_waits
from hpq_views.why.warn import print_if_edited, print_if_not_running

Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")]
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
    with open_session() as session:
        is_certain = sys.stdin.isatty() and session.is_private
        if ref is None and not may_mean_trials and not is_certain:
            raise _sweep_missing(session, verb)
        yield session, owned_sweep(session, ref, force)


def _sweep_missing(session: Session, verb: str) -> UserError:
    text = f"name the sweep: hpq {verb} SWEEP; `hpq ls` lists yours"
    with suppress(NotFound):
        text = f"name the sweep; your last one: hpq {verb} {session.find(None)}"
    return UserError(text, code="sweep-missing")


def changed_record(session: Session, sid: str, line: str) -> dict[str, Any]:
    """Return a sweep as it is after a command, as data; `done` is what the command did."""
    sweep = session.reader.sweeps.get(sid)
    best = session.reader.sweeps.best_objective(sweep)
    why = explain_waits(session.reader, [sweep], session).get(sid)
    return {"done": line, **sweep_record(sweep, best, why)}


def print_changed(session: Session, sid: str, line: str, output: Format) -> None:
    """Print what a command did to a sweep."""
    if output.is_data:
        show_data(changed_record(session, sid, line), output)
    else:
        print_message(line)


def pause(sweep: SweepRef = None, force: Other = False, output: Output = Format.TABLE) -> None:
    """Start no further trial of a sweep; running trials continue.

    Example: hpq pause digits-3f2a1
    """
    with open_session() as session:
        found = owned_sweep(session, sweep, force)
        print_changed(session, found.id, steer.pause(session, found), output)


def resume(sweep: SweepRef = None, force: Other = False, output: Output = Format.TABLE) -> None:
    """Continue a paused or held sweep.

    Example: hpq resume digits-3f2a1
    """
    with open_session() as session:
        found = owned_sweep(session, sweep, force)
        print_changed(session, found.id, steer.resume(session, found), output)
        if found.counts.waits and not output.is_data:
            print_if_not_running(session, found.id)


def stop(
    sweep: SweepRef = None,
    yes: Yes = False,
    force: Other = False,
    output: Output = Format.TABLE,
) -> None:
    """Finish the running trials of a sweep; cancel its queued trials.

    Example: hpq stop digits-3f2a1
    """
    with open_to_end(sweep, "stop", force) as (session, found):
        line = steer.stop(session, found, lambda question: confirm(question, yes))
        print_changed(session, found.id, line, output)


def cancel(
    targets: Targets = None,
    where: WhereExpr = None,
    yes: Yes = False,
    force: Other = False,
    output: Output = Format.TABLE,
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
        if expression is not None and not found.state.is_over:
            numbers = _pick(session, found, expression, is_shown=not output.is_data)
            if not numbers:
                line = f"{found.id}: no queued or running trial matches; nothing was cancelled"
                return print_changed(session, found.id, line, output)
        _, line = steer.cancel(session, found, numbers, lambda question: confirm(question, yes))
        print_changed(session, found.id, line, output)


_SHOWN = 20  # trials


def _pick(session: Session, sweep: SweepView, where: Filter, *, is_shown: bool) -> list[int]:
    """Return the numbers of the queued and running trials that match; print them if `is_shown`.

    Raises:
        UserError: no trial has a value that the expression names.
    """
    found = Selection(reader=session.reader, sweep=sweep, where=where).trials()
    left: list[TrialView] = [t for t in found if not t.state.is_terminal]
    if not (left and is_shown):
        return [t.id.number for t in left]
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


def retry(
    targets: Targets = None,
    cancelled: Annotated[
        bool, Option(help="Queue all cancelled trials, not the failed ones.")
    ] = False,
    where: WhereExpr = None,
    yes: Yes = False,
    force: Other = False,
    output: Output = Format.TABLE,
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
        touched, line = steer.retry(
            session,
            found,
            numbers,
            lambda question: confirm(question, yes),
            state=TrialState.CANCELLED if cancelled else TrialState.FAILED,
            where=only,
        )
        print_changed(session, found.id, line, output)
        if touched:
            print_if_edited(session, found)
            if not output.is_data:
                print_if_not_running(session, found.id)
