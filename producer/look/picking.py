"""Trials that are about to be changed, as a table: what varies, newest value. Pure."""

from __future__ import annotations

from hpq.sweep import Sweep
from hpq.trial import Trial
from producer.look.flat import cell
from producer.look.style import Span, Style
from producer.look.tables import Column
from producer.look.text import clean, measure
from producer.look.trial_rows import STATE_STYLE


def pick_columns(sweep: Sweep) -> list[Column]:
    """The columns of `pick_row`."""
    name = clean(sweep.metric.name) if sweep.metric else "objective"
    return [
        Column(title="#", keep=100, right=True),
        Column(title="state", keep=90),
        *(Column(title=clean(p), keep=80 - i, least=6) for i, p in enumerate(sweep.varying)),
        Column(title=name, keep=95, right=True),
    ]


def pick_row(trial: Trial, sweep: Sweep, value: float | None) -> list[Span]:
    """A trial as cells."""
    return [
        Span(str(trial.id.number)),
        Span(trial.state.value, STATE_STYLE[trial.state]),
        *(Span(cell(trial.params, p)) for p in sweep.varying),
        Span("" if value is None else measure(value), Style.BOLD),
    ]
