"""Collect what the page shows of a sweep, and encode it for the browser."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from hpq.domain.status import SweepStatus
from hpq.domain.sweep import Goal, Metric, SweepView
from hpq.domain.trial import Json, TrialState, TrialView
from hpq.search.replicates import first_of_set
from hpq_views.analysis.importance import Importance
from hpq_views.analysis.output_records import finite
from hpq_views.analysis.pareto_front import Front, metrics_of, rivals
from hpq_views.analysis.rank_results import Results, Standings, progress_of, standings_of
from hpq_views.analysis.selection import drawn_trials
from hpq_views.analysis.space import are_numbers, is_log_axis, space_of
from hpq_views.analysis.summary import SweepSummary, summaries_of
from hpq_views.analysis.trial_row import TrialRow
from hpq_views.analysis.winner_evidence import Winner
from hpq_views.page.curve_reads import step_metrics, system_metrics
from hpq_views.page.curves import POINTS, Curve, pack_curves, points_of
from hpq_views.page.trial_table import encode_table
from hpq_views.text.charts import axis_of, is_wide
from hpq_views.text.text import clean, value

MOST_POINTS = 200_000  # of a file: of the sweep's metric, and of all others; 1 MB each
_MEMBERS = 8  # of a front, on the first screen
_WHOLE = ("of", "best")  # of an order, beside its columns
_EXACT = 2**53  # JavaScript's integers; a larger one is sent as text
_STATES = [state.value for state in TrialState]


@dataclass(frozen=True, kw_only=True)
class SweepData:
    """One moment of a sweep: everything that its page shows."""

    status: SweepStatus
    trials: Sequence[TrialView]
    curves: Mapping[int, Curve]
    winner: Winner | None
    known: Mapping[str, Importance] | None = None  # of a moment before; it takes seconds
    cache: Path | None = None  # as of SweepSummary

    unshown: Mapping[int, float] = field(default_factory=dict)  # results of trials beyond the page
    of_all: SweepSummary | None = None  # of more trials than the page shows, as of its opening
    standings_of_all: Standings | None = None  # likewise, of several metrics

    more: Mapping[str, Mapping[int, Curve]] = field(default_factory=dict)  # of other metrics
    readings: frozenset[str] = frozenset()  # of running trials, while none with any has ended
    pages: Mapping[int, str] = field(default_factory=dict)  # of trials, in a file: HTML
    points: int = POINTS  # at most, of a curve
    longest: int = 0  # values of a curve before it was thinned
    was_log: bool | None = None  # the metric's axis a moment before; open pages keep it

    @cached_property
    def metrics(self) -> list[str]:
        """The logged metrics, the sweep's first, then as they were first reported."""
        first = [self.sweep.metric.name] if self.sweep.metric else []
        found = dict.fromkeys(name for trial in self.trials for name in trial.metrics)
        return [n for n in dict.fromkeys([*first, *found]) if n in found]

    @cached_property
    def is_log(self) -> bool:
        """Whether every panel draws the metric on a logarithmic axis."""
        values = [v for curve in self.curves.values() for _, v in curve]
        return (
            is_wide([*values, *self.summary.objectives]) if self.was_log is None else self.was_log
        )

    @property
    def sweep(self) -> SweepView:
        """The sweep."""
        return self.status.sweep

    @property
    def system(self) -> dict[str, str]:
        """Name and title of what trials used of their machines."""
        return system_metrics(self.trials, self.readings)

    @property
    def command(self) -> str:
        """The command that runs the winner again, or shows one that only its script can run."""
        if self.front or not self.status.best:
            return f"hpq best {self.sweep.id}" if self.front else ""
        trial, launch = self.status.best[0].id, self.sweep.launch
        if launch.is_function:
            return f"hpq show {trial}"
        return f"hpq try {trial}" + " --as-enqueued" * launch.bundled

    @cached_property
    def summary(self) -> SweepSummary:
        """What summaries compute of all trials."""
        return self.of_all or SweepSummary(self.sweep, self.cache).add(self.trials)

    @property
    def front(self) -> Front | None:
        """The front of a sweep with several metrics."""
        return self.standings.front

    @cached_property
    def standings(self) -> Standings:
        """Where every trial stands."""
        return self.standings_of_all or standings_of(self.sweep, self.trials, self.unshown)

    @cached_property
    def by_metric(self) -> Mapping[str, Standings]:
        """Where the settings stand by each metric, by its name; "" if the sweep has none."""
        if self.sweep.objectives:
            return {one.name: _by_metric(self, one) for one in self.sweep.objectives}
        return {self.sweep.metric.name if self.sweep.metric else "": self.standings}

    @cached_property
    def rivals(self) -> Mapping[int, int]:
        """The member of the front that dominates a trial, by the trial's number."""
        return rivals(self.sweep, self.front, self.trials) if self.front else {}

    @property
    def drawn(self) -> Sequence[TrialView]:
        """The trials that charts of curves draw."""
        return drawn_trials(self.standings, self.trials)

    @property
    def members(self) -> Sequence[TrialView]:
        """Trials from end to end of the front, for the first screen."""
        every = self.front.trials if self.front else ()
        return [*every[:: -(-len(every) // _MEMBERS) or 1][:-1], *every[-1:]]

    @cached_property
    def volumes(self) -> list[tuple[int, float]]:
        """The hypervolume of the first N trials; none if it takes long."""
        return self.front.hypervolumes() if self.front else []

    @cached_property
    def importances(self) -> Mapping[str, Importance]:
        """Which parameter matters, for each metric; "" if the sweep has none."""
        if self.known is not None:
            return self.known
        others = summaries_of(self.sweep, self.cache)[1:]
        found = [self.summary, *(one.add(self.trials) for one in others)]
        names = [metric.name for metric in metrics_of(self.sweep)] or [""]
        return dict(zip(names, (one.importance for one in found), strict=True))

    @property
    def importance(self) -> Importance:
        """Which parameter matters for the first metric."""
        return next(iter(self.importances.values()))

    @cached_property
    def names(self) -> list[str]:
        """The varying parameters, the most important first."""
        ranked = [one.param for one in self.importance.shares]
        return list(dict.fromkeys([*ranked, *self.sweep.varying]))


def encode_sweep(data: SweepData) -> dict[str, Any]:
    """Return the data of the sweep's charts: columns, with an entry a trial."""
    sweep = data.sweep
    points = points_of(sum(map(len, data.more.values())), MOST_POINTS)
    return {
        "id": sweep.id,
        "at": data.status.at_ms,
        "metric": sweep.metric.name if sweep.metric else "",
        "max": sweep.metric is not None and sweep.metric.goal is Goal.MAXIMIZE,
        "replicates": sweep.replicates,
        "states": _STATES,
        "winner": data.winner.trial if data.winner else 0,
        "standing": encode_standing(data),
        "progress": encode_progress(data),
        "axes": _axes(data),
        "trials": encode_trials(sweep, data.trials, data.names, data.rivals),
        "curves": pack_curves(data.curves, data.is_log, data.points, data.longest),
        "metrics": data.metrics,
        "table": encode_table(data.standings, data.trials, "", data.metrics) if data.more else None,
        "pages": [*data.pages],
        "system": data.system,
        "by": step_metrics(data.trials, data.metrics),
        "more": {name: pack_curves(some, None, points) for name, some in data.more.items()},
        "scale": encode_scale(data),
        **encode_objectives(data),
    }


def encode_standing(data: SweepData) -> dict[str, Any]:
    """Return the order of the settings by each metric, which no chart computes again.

    `n` are the first trials of the settings, best first; after `of` feasible ones come those that
    meet no constraint. Replicates add columns: mean, standard deviation and number of results.
    """
    return {name: _order(standings) for name, standings in data.by_metric.items()}


def encode_progress(data: SweepData) -> dict[str, Any]:
    """Return how the best value improved, by each metric.

    `n` are the first trials of the settings, in the order in which they ended. `best` has pairs:
    how many had ended, and the best value of these; None if it is infinite.
    """
    found = {name: progress_of(one, data.trials) for name, one in data.by_metric.items()}
    return {
        name: {
            "n": one.order,
            "of": len(one.order),
            "best": [(place, finite(value)) for place, value in one.best],
        }
        for name, one in found.items()
    }


def encode_moves(
    data: SweepData, orders: Mapping[str, Mapping[str, Any]], changed: Iterable[int]
) -> dict[str, Any]:
    """Return the new places in `orders` of the settings of these trials, from 0; -1: it has none.

    They changed, or came to the front of several metrics or left it. The others keep their order.
    """
    firsts = sorted({first_of_set(data.sweep, number) for number in changed})
    return {name: _moves(whole, firsts) for name, whole in orders.items()}


def _moves(whole: Mapping[str, Any], moved: Sequence[int]) -> dict[str, Any]:
    places = {first: place for place, first in enumerate(whole["n"])}
    firsts = sorted(moved, key=lambda first: places.get(first, -1))
    columns = {
        column: [some[places[first]] if first in places else None for first in firsts]
        for column, some in whole.items()
        if column not in ("n", *_WHOLE)
    }
    to = [places.get(first, -1) for first in firsts]
    same = {name: whole[name] for name in _WHOLE if name in whole}
    return {"moved": firsts, "to": to, **same, **columns}


def _by_metric(data: SweepData, metric: Metric) -> Standings:
    """Rank by one of several metrics: the front first."""
    results = Results(sweep=replace(data.sweep, metric=metric))
    for trial in data.trials:
        if trial.state.is_complete:
            results.add(trial, finite(trial.metrics.get(metric.name)))
    found, members = results.ranked(), data.standings.members
    return replace(found, order=sorted(found.order, key=lambda first: first not in members))


def _order(standings: Standings) -> dict[str, Any]:
    firsts = [*standings.order, *standings.infeasible]
    found: dict[str, Any] = {"n": firsts, "of": len(standings.order)}
    if standings.sweep.replicates > 1:
        groups = [standings.groups[first] for first in firsts]
        found["mean"] = [finite(group.mean) for group in groups]
        found["sd"] = [finite(group.spread) for group in groups]
        found["runs"] = [len(group.objectives) for group in groups]
    return found


def encode_objectives(data: SweepData) -> dict[str, Any]:
    """Return the axes of several metrics, the front, and the hypervolume of the first N trials."""
    front, metrics = data.front, data.sweep.objectives
    if front is None:
        return {}
    axes = []
    for metric, found in zip(metrics, data.importances.values(), strict=True):
        values = [v for t in data.trials if (v := finite(t.metrics.get(metric.name))) is not None]
        is_log = is_wide(values)
        scale, front_at = axis_of(values, is_log), [t.metrics[metric.name] for t in front.trials]
        places = [math.log10(v) for v in front_at] if is_log else front_at
        axes.append(
            {
                "name": metric.name,
                "max": metric.goal is Goal.MAXIMIZE,
                "log": is_log,
                "scale": [min([scale.low, *places]), max([scale.high, *places])],
                "shares": {clean(s.param): s.share for s in found.shares},
            }
        )
    return {
        "objectives": axes,
        "front": [[t.id.number, *(t.metrics[m.name] for m in metrics)] for t in front.trials],
        "rest": {"dominated": front.dominated, "infeasible": front.infeasible},
        "volume": data.volumes,
    }


def encode_scale(data: SweepData) -> list[float]:
    """Return the ends of the metric's axis, which all panels of results share."""
    results = data.summary.objectives
    goal = data.sweep.metric.goal if data.sweep.metric else Goal.MINIMIZE
    best = (max if goal is Goal.MAXIMIZE else min)(results, default=None)
    scale = axis_of(results, data.is_log, best)
    return [scale.low, scale.high]


def encode_trials(
    sweep: SweepView,
    trials: Sequence[TrialView],
    names: Sequence[str],
    rivals: Mapping[int, int] = {},
) -> dict[str, Any]:
    """Return a list for each column; times in seconds since the sweep was created."""
    rows = [TrialRow(trial=trial, sweep=sweep) for trial in trials]
    return {
        "n": [t.id.number for t in trials],
        "state": [_STATES.index(t.state.value) for t in trials],
        "y": [finite(row.newest_value) for row in rows],  # whole: ties change ranks
        **({"all": [_values(sweep, t) for t in trials]} if sweep.objectives else {}),
        **({"by": [rivals.get(t.id.number) for t in trials]} if sweep.objectives else {}),
        **({"ok": [sweep.is_feasible(t.metrics) for t in trials]} if sweep.constraints else {}),
        **({"seed": [row.seed for row in rows]} if sweep.replicates > 1 else {}),
        "step": [t.step for t in trials],
        "start": [
            round((t.claimed_ms - sweep.created_ms) / 1000, 1) if t.claimed_ms else None
            for t in trials
        ],
        "took": [row.taken_ms / 1000 if row.taken_ms else None for row in rows],
        "worker": [t.worker for t in trials],
        "name": [row.run.get("name", "") for row in rows],
        "tags": [row.run.get("tags", "") for row in rows],
        "why": [row.why for row in rows],
        "p": [[_cell(row.params.get(name)) for row in rows] for name in names],
    }


def _values(sweep: SweepView, trial: TrialView) -> list[float | None]:
    """Return the newest value of each of several metrics; what a queued trial has is older."""
    found = {} if trial.state is TrialState.QUEUED else trial.metrics
    return [finite(found.get(metric.name)) for metric in sweep.objectives]


def _axes(data: SweepData) -> list[dict[str, Any]]:
    """Return how each parameter is drawn: linear, log or category."""
    rows = [TrialRow(trial=trial, sweep=data.sweep).params for trial in data.trials]
    space = space_of(data.sweep)
    shares = {s.param: s.share for s in data.importance.shares}
    axes: list[dict[str, Any]] = []
    for name in data.names:
        present = [v for row in rows if (v := row.get(name)) is not None]
        kind = "log" if is_log_axis(space.get(name), present) else "linear"
        kind = kind if present and are_numbers(present) else "category"
        axes.append({"name": clean(name), "share": shares.get(name), "kind": kind})
    return axes


def _cell(v: Json) -> Json:
    if v is None or (isinstance(v, int) and not isinstance(v, bool) and abs(v) <= _EXACT):
        return v
    if isinstance(v, float):  # with six digits, which a screen shows
        return finite(float(f"{v:.6g}"))
    return value(v)
