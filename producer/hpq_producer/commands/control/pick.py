"""Show the queued and running trials that `hpq cancel --where` would cancel."""

from __future__ import annotations

import sys
from dataclasses import replace

from hpq.domain.sweep import Sweep
from hpq.domain.trial import TrialView
from hpq_producer.analysis.scores import newest_value
from hpq_producer.query.filter import Filter
from hpq_producer.query.selection import Selection
from hpq_producer.reports.ranking import result_columns, result_row
from hpq_producer.reports.trial_rows import column_names
from hpq_producer.session import Session
from hpq_producer.terminal.console import discard_stdout, print_message, show_table

_SHOWN = 20  # trials


def picked(session: Session, sweep: Sweep, where: Filter) -> list[int]:
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
        _show(sweep, left)
    except BrokenPipeError:  # the reader of the table is done; cancel all the same
        discard_stdout()
    return [t.id.number for t in left]


def _show(sweep: Sweep, left: list[TrialView]) -> None:
    shown = (replace(t, objective=newest_value(sweep, t)) for t in left[:_SHOWN])
    rows = (result_row(t, sweep) for t in shown)
    show_table(result_columns(sweep), rows, explain=column_names(sweep))
    if len(left) > _SHOWN:
        print(f"… and {len(left) - _SHOWN} more")
    sys.stdout.flush()
