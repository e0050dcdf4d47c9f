"""Lay out the table of `hpq watch`: which columns fit a terminal, and a trial's cells. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hpq.domain.sweep import SweepView
from hpq_views.analysis.pareto_front import metrics_of
from hpq_views.analysis.trial_row import TrialRow
from hpq_views.text.style import Span, Style
from hpq_views.text.tables import Column, lay
from hpq_views.text.text import clean, planned

_FIRST_TO_STAY = (75, 70, 55)  # the first varying parameters outlast curve and step
_CURVES, _CURVES_WIDE = (12, 9, 6), (24, 18, 12, 9, 6)  # columns, the widest that fits
_LEAST_FOR_CURVES = 60  # columns of a terminal
_SHARE_OF_METRIC = 8  # of the columns its whole name may take: v_loss looks like another one
_NARROWEST = 4  # columns of a parameter, with the gap
WIDE = 120  # columns of a terminal that has room for wide curves


def shown_names(
    sweep: SweepView, chosen: Sequence[str], columns: int
) -> tuple[list[str], dict[str, str]]:
    """Return the names of columns that fit, the chosen ones first, and the shown titles.

    The titles fit usual cells, so that they stay while states and values change.
    """
    metrics = _metrics(sweep)
    is_mean = sweep.replicates > 1 and not sweep.objectives
    result = "0.1234 ± 0.1234 (3 of 3)" if is_mean else "0.1234"
    whole = [name for name in metrics if len(name) < columns // _SHARE_OF_METRIC]
    names = [*chosen, *(name for name in sweep.varying if name not in chosen)]
    names = names[: columns // _NARROWEST]
    number = f"▶●{planned(sweep.counts)}"
    for room in curve_widths(columns):
        curve = "▁" * max(room, len("▁0.1 █0.9")) if room else ""
        heads = trial_columns(sweep, names, chosen, curve, {})
        heads = [replace(c, short=c.title) if c.title in whole else c for c in heads]
        values = ["values"] * len(names), [result] * len(metrics)
        cells = [number, *values[0], "1000", *values[1], curve, "9m59s", "9m59s left"]
        layout = lay(heads, [[Span(cell) for cell in cells if cell]], columns)
        if layout.is_whole:
            break
    sizes = layout.widths[1 : 1 + len(names)]
    return [name for name, size in zip(names, sizes, strict=True) if size], layout.titles


def trial_columns(
    sweep: SweepView,
    names: Sequence[str],
    chosen: Sequence[str],
    curve_title: str,
    titles: Mapping[str, str],
) -> list[Column]:
    """Return the columns of `trial_cells`; the chosen names are dropped last.

    `titles` are the shown titles by the full ones; without them, columns are as narrow as they may
    become.
    """
    least = 6 if titles else _NARROWEST
    keeps = [92] * len(chosen) + [*_FIRST_TO_STAY, *range(40, 0, -1)]
    columns = [
        Column(title="#", keep=100, right=True),
        *(
            Column(title=clean(name), keep=keeps[min(i, len(keeps) - 1)], least=least)
            for i, name in enumerate(names)
        ),
        Column(title="step", keep=60, right=True),
        *(Column(title=name, keep=95, right=True) for name in _metrics(sweep)),
        *([Column(title=curve_title, keep=50)] if curve_title else []),
        Column(title="time", keep=80, right=True),
        Column(title="state", keep=90, least=10),
    ]
    return [replace(column, short=titles.get(column.title, "")) for column in columns]


def _metrics(sweep: SweepView) -> list[str]:
    return [clean(metric.name) for metric in metrics_of(sweep)] or ["objective"]


def curve_widths(columns: int) -> tuple[int, ...]:
    """Return widths of curves to try, from the widest; curves shrink before values are cut."""
    return _CURVES_WIDE if columns >= WIDE else _CURVES if columns >= _LEAST_FOR_CURVES else (0,)


def trial_cells(row: TrialRow, names: Sequence[str], drawn: str | None, mark: str) -> list[Span]:
    """Return the cells of one trial; `drawn` is its curve, None without that column."""
    return [
        Span(f"{mark}{row.trial.id.number}", Style.GREEN if mark.strip() else Style.PLAIN),
        *(Span(row.param(name) or row.metric(name) or row.run.get(name, "")) for name in names),
        Span(row.step),
        *(Span(text, Style.BOLD) for text in row.results),
        *([Span(drawn, Style.CYAN)] if drawn is not None else []),
        Span(row.time),
        row.progress,
    ]
