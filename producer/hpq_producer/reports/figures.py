"""Figures of a sweep, made with plotly: curves, parallel coordinates, importance, slices, history.

plotly interprets HTML, `$` and entities in texts, so every name passes `_text`.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from hpq.domain.sweep import Goal, SweepView
from hpq.domain.trial import Curve, Json, TrialState, TrialView, flatten
from hpq_producer.analysis.space import are_numbers, is_log, space_of
from hpq_producer.analysis.summary import SweepSummary
from hpq_producer.extras import library
from hpq_producer.query.selection import rank_trials
from hpq_producer.terminal.text import clean, value

_MOST_LINES, _BEST, _SAMPLE = 500, 20, 300  # trials of curves and parallel coordinates
_MOST_AXES = 12  # parameters of parallel coordinates and slices
_COLORS = "Viridis_r"  # ends with the best: dark violet, as on the page
_WORST = 0.93  # of the way from the best: the last yellow is too pale on white
_ACTIVE = str.maketrans({"<": "‹", ">": "›", "$": "＄", "&": "＆"})


def drawn_trials(sweep: SweepView, trials: Sequence[TrialView]) -> list[TrialView]:
    """Return all trials, or of more than 500 the best 20 and a sample of 300, always the same."""
    if len(trials) <= _MOST_LINES:
        return list(trials)
    best, rest = (ranked := rank_trials(sweep, trials))[:_BEST], ranked[_BEST:]
    rest += [trial for trial in trials if trial.objective is None]
    chosen = best + random.Random(0).sample(rest, min(_SAMPLE, len(rest)))
    return sorted(chosen, key=lambda trial: trial.id.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureData:
    """What was read of a sweep; `curves` are those of its metric for the trials to draw."""

    sweep: SweepView
    trials: Sequence[TrialView]
    curves: Sequence[Curve] = ()

    @property
    def metric(self) -> str:
        """The name of the metric for titles."""
        return _text(self.sweep.metric.name) if self.sweep.metric else "objective"


def curves(data: FigureData) -> Any:
    """Draw the metric over the steps, a line a trial: colored by rank, pruned ones dashed."""
    go = _plotly()
    shown = {curve.trial: curve for curve in data.curves}
    order = {t.id.number: i for i, t in enumerate(rank_trials(data.sweep, data.trials))}
    states = {t.id.number: t.state for t in data.trials}
    colors = _colors(len(order))
    lines = []
    for number in sorted(shown, key=lambda n: -order.get(n, len(order))):  # the best on top
        line = {"color": colors[order[number]] if number in order else "#999", "width": 1}
        if states.get(number) is TrialState.PRUNED:
            line["dash"] = "dash"
        values = [v if math.isfinite(v) else None for v in shown[number].values]
        lines.append(
            go.Scatter(x=shown[number].steps, y=values, mode="lines", name=f"#{number}", line=line)
        )
    title = f"{data.metric}: {len(shown):,} of {len(data.trials):,} trials drawn"
    return _layout(data, go.Figure(lines, {"showlegend": False}), title, "step", data.metric)


def parallel(data: FigureData) -> Any:
    """Draw parallel coordinates of the parameters that vary, the objective last."""
    go, ranked = _plotly(), rank_trials(data.sweep, data.trials)
    chosen = {trial.id for trial in drawn_trials(data.sweep, ranked)}
    shown = {-i: trial for i, trial in enumerate(ranked) if trial.id in chosen}
    sets, leaves = [flatten(trial.params) for trial in shown.values()], space_of(data.sweep)
    axes = [
        {"label": _text(name), **_axis(leaves.get(name), [one.get(name) for one in sets])}
        for name in _names(data, sets)
    ]
    # plotly draws the highest color last.
    line = {"color": list(shown), "colorscale": _COLORS, "cmin": -len(ranked) / _WORST, "cmax": 0}
    axes.append({"label": data.metric, "values": [t.objective for t in shown.values()]})
    title = f"{len(shown):,} of {len(ranked):,} trials with a result"
    return _layout(data, go.Figure(go.Parcoords(dimensions=axes, line=line)), title)


def importance(data: FigureData) -> Any:
    """Draw each parameter's share of the explained variance, with 90 % intervals."""
    go, found = _plotly(), SweepSummary(sweep=data.sweep).add(data.trials).importance
    shares = found.shares[:_MOST_AXES][::-1]
    ends = {
        "array": [one.high - one.share for one in shares],
        "arrayminus": [one.share - one.low for one in shares],
    }
    names = [_text(one.param) for one in shares]
    bars = go.Bar(x=[s.share for s in shares], y=names, orientation="h", error_x=ends)
    return _layout(data, go.Figure(bars), _text(found.verdict), "share of the explained variance")


def slices(data: FigureData) -> Any:
    """Draw the objective against each parameter, on one scale, the most important first."""
    go, subplots = _plotly(), library("plotly.subplots", "figure()")
    ranked, leaves = rank_trials(data.sweep, data.trials), space_of(data.sweep)
    sets = [flatten(trial.params) for trial in ranked]
    names = _names(data, sets)
    titles = [_text(name) for name in names]
    shown = subplots.make_subplots(1, max(1, len(names)), shared_yaxes=True, subplot_titles=titles)
    for column, name in enumerate(names, start=1):
        pairs = [(s[name], t) for s, t in zip(sets, ranked, strict=True) if name in s]
        values = [v for v, _ in pairs]
        log = is_log(leaves.get(name), values)
        x = values if are_numbers(values) else [_text(value(v)) for v in values]
        points = go.Scattergl if len(ranked) > 2_000 else go.Scatter
        marks = points(
            x=x, y=[t.objective for _, t in pairs], text=[f"#{t.id.number}" for _, t in pairs],
            mode="markers", marker={"size": 5, "opacity": 0.6}, showlegend=False,
        )  # fmt: skip
        shown.add_trace(marks, row=1, col=column)
        kind = "log" if log else None
        shown.update_xaxes(type=kind, exponentformat="e", row=1, col=column)
    return _layout(data, shown, f"{data.metric} of {len(ranked):,} trials")


def history(data: FigureData) -> Any:
    """Draw the objectives in the order in which the trials ended, and the best so far."""
    go, ranked = _plotly(), rank_trials(data.sweep, data.trials)
    ended = sorted(ranked, key=lambda trial: (trial.ended_ms, trial.id.number))
    values = [trial.objective for trial in ended if trial.objective is not None]
    is_max = data.sweep.metric and data.sweep.metric.goal is Goal.MAXIMIZE
    best = list(accumulate(values, max if is_max else min))
    x = list(range(1, len(values) + 1))
    names = [f"#{trial.id.number}" for trial in ended]
    points = go.Scattergl if len(values) > 2_000 else go.Scatter
    marks = points(x=x, y=values, text=names, mode="markers", name="trial")
    line = go.Scatter(x=x, y=best, mode="lines", line={"shape": "hv"}, name="best so far")
    return _layout(data, go.Figure([marks, line]), "best so far", "trials that ended", data.metric)


Kind = Literal["curves", "parallel", "importance", "slices", "history"]
FIGURES: Mapping[str, Callable[[FigureData], Any]] = {
    draw.__name__: draw for draw in (curves, parallel, importance, slices, history)
}


def _plotly() -> Any:
    return library("plotly.graph_objects", "figure()")


def _text(name: str) -> str:
    return clean(name).translate(_ACTIVE)


def _layout(data: FigureData, figure: Any, title: str, x: str = "", y: str = "") -> Any:
    title = f"{data.sweep.id}: {title}"
    return figure.update_layout(title=title, xaxis_title=x, yaxis_title=y)


def _colors(count: int) -> list[str]:
    """Return a color for each rank, the best first."""
    colors = library("plotly.colors", "figure()")
    places = [1 - _WORST * i / max(1, count - 1) for i in range(count)]
    return list(colors.sample_colorscale(_COLORS, places)) if places else []


def _names(data: FigureData, sets: Sequence[Mapping[str, Json]]) -> list[str]:
    """Return at most 12 parameters that differ between these sets, the most important first."""
    found = SweepSummary(sweep=data.sweep).add(data.trials).importance
    order = {one.param: i for i, one in enumerate(found.shares)}
    varied = [n for n in data.sweep.varying if len({json.dumps(s.get(n)) for s in sets}) > 1]
    return sorted(varied, key=lambda name: order.get(name, len(order)))[:_MOST_AXES]


def _axis(leaf: Any, values: Sequence[Json]) -> dict[str, Any]:
    """Return an axis of parallel coordinates, which knows numbers only."""
    present = [v for v in values if v is not None]
    if are_numbers(values):
        if not is_log(leaf, values):
            return {"values": list(values)}
        logs = [math.log10(v) for v in present if isinstance(v, int | float)]
        ticks = range(math.floor(min(logs)), math.ceil(max(logs)) + 1)
        return {"values": logs, "tickvals": list(ticks), "ticktext": [f"1e{n}" for n in ticks]}
    words = [_text("none" if v is None else value(v)) for v in values]
    levels = {word: i for i, word in enumerate(sorted(set(words)))}
    return {
        "values": [levels[word] for word in words],
        "tickvals": list(levels.values()),
        "ticktext": list(levels),
    }
