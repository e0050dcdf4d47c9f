"""Show the queued and running trials that `hpq cancel --where` would cancel."""

from __future__ import annotations

import sys

from hpq.domain.sweep import Sweep
from hpq.domain.trial import TrialView
from hpq_producer.analysis.scores import newest_value, param_text
from hpq_producer.query.filter import Filter
from hpq_producer.query.selection import Selection
from hpq_producer.reports.trial_rows import STATE_STYLE, column_names
from hpq_producer.session import Session
from hpq_producer.terminal.console import discard_stdout, print_message, show_table
from hpq_producer.terminal.style import Span, Style
from hpq_producer.terminal.tables import Column
from hpq_producer.terminal.text import clean, measure


def pick_columns(sweep: Sweep) -> list[Column]:
    """The columns of `pick_row`."""
    name = clean(sweep.metric.name) if sweep.metric else "objective"
    return [
        Column(title="#", keep=100, right=True),
        Column(title="state", keep=90),
        *(Column(title=clean(p), keep=80 - i, least=6) for i, p in enumerate(sweep.varying)),
        Column(title=name, keep=95, right=True),
    ]


def pick_row(trial: TrialView, sweep: Sweep, value: float | None) -> list[Span]:
    """A trial as cells."""
    return [
        Span(str(trial.id.number)),
        Span(trial.state.value, STATE_STYLE[trial.state]),
        *(Span(param_text(trial.params, p)) for p in sweep.varying),
        Span("" if value is None else measure(value), Style.BOLD),
    ]


_SHOWN = 20  # of the trials that it would cancel


def picked(session: Session, sweep: Sweep, where: Filter) -> list[int]:
    """List the numbers of the queued and running trials that match.

    Raises:
        UserError: no trial has a value that the expression names.
    """
    found = Selection(reader=session.reader, sweep=sweep, where=where).trials()
    left: list[TrialView] = [t for t in found if not t.state.is_terminal]
    if not left:
        print_message(f"{sweep.id}: no queued or running trial matches; nothing is cancelled")
        return []
    try:
        _show(sweep, left)
    except BrokenPipeError:  # whoever read has read enough; the cancelling was asked for
        discard_stdout()
    return [t.id.number for t in left]


def _show(sweep: Sweep, left: list[TrialView]) -> None:
    rows = (pick_row(t, sweep, newest_value(sweep, t)) for t in left[:_SHOWN])
    show_table(pick_columns(sweep), rows, explain=column_names(sweep))
    if len(left) > _SHOWN:
        print(f"… and {len(left) - _SHOWN} more")
    sys.stdout.flush()
