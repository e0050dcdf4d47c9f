"""Print trials: the table and the CSV of `hpq results`, and a ranking with bars."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence

from hpq.domain.sweep import SweepView
from hpq.domain.trial import ALTERED, Json, TrialView
from hpq_producer.analysis.records import column_order, flat_record
from hpq_producer.analysis.trial_row import TrialRow
from hpq_producer.query.selection import field_of
from hpq_producer.terminal.charts import Scale, bar, ends_of
from hpq_producer.terminal.console import show_legend, show_lines, stdout_info
from hpq_producer.terminal.output import write_csv
from hpq_producer.terminal.style import Span, Style
from hpq_producer.terminal.tables import Column, lay
from hpq_producer.terminal.text import clean, value

_BARS = (30, 24, 18, 12, 8)  # columns: the widest bar that leaves the titles uncut


def column_names(sweep: SweepView, metrics: Sequence[str] = ()) -> set[str]:
    """Return the titles that are parameters or metrics."""
    metric = {clean(sweep.metric.name)} if sweep.metric else set[str]()
    return {*metric, *map(clean, sweep.varying), *map(clean, metrics)}


def result_columns(
    sweep: SweepView, metrics: Sequence[str] = (), sorted_by: str = ""
) -> list[Column]:
    """Return the columns of `result_row`; `sorted_by` is the sort key if no other column has it."""
    name = clean(sweep.metric.name) if sweep.metric else "objective"
    return [
        Column(title="#", keep=100, right=True),
        Column(title="state", keep=90),
        *(Column(title=clean(p), keep=70 - i, least=6) for i, p in enumerate(sweep.varying)),
        *([Column(title="seed", keep=65, right=True)] if sweep.replicates > 1 else []),
        Column(title=name, keep=95, right=True),
        *(Column(title=clean(m), keep=60, right=True) for m in metrics),
        *([Column(title=clean(sorted_by), keep=93, right=True)] if sorted_by else []),
        Column(title="step", keep=50, right=True),
        Column(title="time", keep=80, right=True),
        Column(title="why", keep=40, least=10),
    ]


def result_row(
    trial: TrialView, sweep: SweepView, metrics: Sequence[str] = (), sorted_by: str = ""
) -> list[Span]:
    """Return the cells of `result_columns` for a trial."""
    row = TrialRow(trial=trial, sweep=sweep)
    return [
        Span(str(trial.id.number)),
        row.state,
        *(Span(row.param(p)) for p in sweep.varying),
        *([Span(row.seed)] if sweep.replicates > 1 else []),
        Span(row.objective, Style.BOLD),
        *(Span(row.metric(m)) for m in metrics),
        *([Span(_shown(field_of(sweep, trial, sorted_by)))] if sorted_by else []),
        Span(row.step),
        Span(row.time),
        Span(row.why),
    ]


def _shown(found: Json) -> str:
    return "" if found is None else value(found)


def write_trials(sweep: SweepView, read: Callable[[], Iterable[TrialView]]) -> None:
    """Write trials to stdout as CSV; read them twice: for the columns, then for the rows."""
    names = column_order(name for trial in read() for name in flat_record(trial, sweep))
    write_csv(sys.stdout, names, (flat_record(trial, sweep) for trial in read()))


def show_ranking(sweep: SweepView, trials: Sequence[TrialView], scale: Scale | None = None) -> None:
    """Print ranked trials, best first; with a scale, a bar for each."""
    name = clean(sweep.metric.name) if sweep.metric else "objective"
    rows = [TrialRow(trial=trial, sweep=sweep) for trial in trials]
    columns = [
        Column(title="rank", keep=50, right=True),
        Column(title="#", keep=100, right=True),
        *(
            Column(title=clean(p), keep=80 - i, least=None if _are_numbers(rows, p) else 6)
            for i, p in enumerate(sweep.varying)
        ),
        Column(title="time", keep=40, right=True),
        Column(title=name, keep=95, right=True),
        *([Column(title="", keep=30, least=_BARS[-1])] if scale else []),
    ]
    cells = [
        [
            Span(str(rank)),
            Span(str(row.trial.id.number)),
            *(Span(row.param(p)) for p in sweep.varying),
            Span(row.reused or row.time),
            Span(row.failed, Style.RED)
            if row.failure is ALTERED
            else Span(row.objective, Style.BOLD),
        ]
        for rank, row in enumerate(rows, start=1)
    ]
    names = column_names(sweep)
    total = stdout_info().columns
    for room in _BARS if scale else (0,):
        # Bars shrink before titles do; a cut bar would show a wrong length.
        shown = [
            [*row, Span(_bar_of(trial, scale, room), Style.GREEN)] if scale else row
            for row, trial in zip(cells, trials, strict=True)
        ]
        layout = lay(columns, shown, total)
        if not layout.legend(names):
            break
    show_lines([layout.header(), *(layout.row(row) for row in shown)])
    if scale and layout.widths[-1] is not None and (words := ends_of(scale)):
        show_lines([[Span(f"({words})", Style.DIM)]])
    show_legend(layout, names)


def _are_numbers(rows: Sequence[TrialRow], name: str) -> bool:
    """Return True if a parameter has only numbers, which must not be cut."""
    return all(re.fullmatch(r"[-+.0-9e]*", row.param(name)) for row in rows)


def _bar_of(trial: TrialView, scale: Scale, columns: int) -> str:
    return "" if trial.objective is None else bar(trial.objective, scale, columns)
