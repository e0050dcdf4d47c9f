"""Print trials as tables: the rows of `hpq results`, and a ranking with bars."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpq.domain.sweep import Sweep
from hpq.domain.trial import ALTERED, Json, TrialView
from hpq.search.samplers import seed_of_result
from hpq_producer.analysis.pruning import describe_early_end
from hpq_producer.analysis.records import source_of_result
from hpq_producer.analysis.scores import param_text, score
from hpq_producer.query.selection import field_of
from hpq_producer.reports.trial_rows import STATE_STYLE, column_names
from hpq_producer.terminal.charts import Scale, bar, ends_of
from hpq_producer.terminal.console import show_legend, show_lines, stdout_info
from hpq_producer.terminal.style import Span, Style
from hpq_producer.terminal.tables import Column, lay
from hpq_producer.terminal.text import clean, duration, failure_words, measure, value

_BARS = (30, 24, 18, 12, 8)  # columns: the widest bar that leaves the titles uncut


def result_columns(sweep: Sweep, metrics: Sequence[str] = (), sorted_by: str = "") -> list[Column]:
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
    trial: TrialView, sweep: Sweep, metrics: Sequence[str] = (), sorted_by: str = ""
) -> list[Span]:
    """Return a trial's cells: varying parameters, metrics, why it failed or was stopped early."""
    failure = trial.failure
    has_seeds = sweep.replicates > 1
    why = f"{failure_words(failure.kind)}: {clean(failure.message)}" if failure else ""
    taken = f"of {clean(source_of_result(trial, sweep))}" if trial.reused else ""
    why = why or describe_early_end(trial, sweep) or taken
    return [
        Span(str(trial.id.number)),
        Span(trial.state.value, STATE_STYLE[trial.state]),
        *(Span(param_text(trial.params, p)) for p in sweep.varying),
        *([Span(str(seed_of_result(sweep, trial)))] if has_seeds else []),
        Span("" if trial.objective is None else measure(trial.objective), Style.BOLD),
        *(Span(measure(trial.metrics[m]) if m in trial.metrics else "") for m in metrics),
        *([Span(_shown(field_of(sweep, trial, sorted_by)))] if sorted_by else []),
        Span(str(trial.step or "")),
        Span(duration(trial.duration_ms) if trial.duration_ms else ""),
        Span(why),
    ]


def _shown(found: Json) -> str:
    return "" if found is None else value(found)


def show_ranking(sweep: Sweep, trials: Sequence[TrialView], scale: Scale | None = None) -> None:
    """Print ranked trials, best first; with a scale, a bar for each."""
    name = clean(sweep.metric.name) if sweep.metric else "objective"
    columns = [
        Column(title="rank", keep=50, right=True),
        Column(title="#", keep=100, right=True),
        *(
            Column(title=clean(p), keep=80 - i, least=None if _are_numbers(trials, p) else 6)
            for i, p in enumerate(sweep.varying)
        ),
        Column(title="time", keep=40, right=True),
        Column(title=name, keep=95, right=True),
        *([Column(title="", keep=30, least=_BARS[-1])] if scale else []),
    ]
    rows = []
    for rank, trial in enumerate(trials, start=1):
        row = [
            Span(str(rank)),
            Span(str(trial.id.number)),
            *(Span(param_text(trial.params, p)) for p in sweep.varying),
            Span("reused" if trial.reused else duration(trial.duration_ms)),
            Span(ALTERED.kind, Style.RED)
            if trial.failure is ALTERED
            else Span(score(trial), Style.BOLD),
        ]
        rows.append(row)
    names = column_names(sweep)
    total = stdout_info().columns
    for room in _BARS if scale else (0,):
        # Bars shrink before titles do; a cut bar would show a wrong length.
        shown = [
            [*row, Span(_bar_of(trial, scale, room), Style.GREEN)] if scale else row
            for row, trial in zip(rows, trials, strict=True)
        ]
        layout = lay(columns, shown, total)
        if not layout.legend(names):
            break
    show_lines([layout.header(), *(layout.row(row) for row in shown)])
    if scale and layout.widths[-1] is not None and (words := ends_of(scale)):
        show_lines([[Span(f"({words})", Style.DIM)]])
    show_legend(layout, names)


def _are_numbers(trials: Sequence[TrialView], name: str) -> bool:
    """Return True if a parameter has only numbers, which must not be cut."""
    cells = [param_text(trial.params, name) for trial in trials]
    return all(re.fullmatch(r"[-+.0-9e]*", text) for text in cells)


def _bar_of(trial: TrialView, scale: Scale, columns: int) -> str:
    return "" if trial.objective is None else bar(trial.objective, scale, columns)
