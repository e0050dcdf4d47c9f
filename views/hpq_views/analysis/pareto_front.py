"""Find the Pareto front of a sweep with several metrics, and how much space it dominates. Pure.

A trial dominates another if it is at least as good in every metric and better in one. The front
holds the finished trials that meet the constraints and that no other such trial dominates. Pruned
trials are in no front, since their values are of an earlier step.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, groupby
from operator import le, or_

from hpq.domain.constraint import Constraint
from hpq.domain.sweep import Goal, Metric, SweepView
from hpq.domain.trial import ReplicateGroup, Standing, TrialState, TrialView
from hpq_views.text.text import first_of

Point = tuple[float, ...]  # a value of each metric, the lower the better

_BLOCK = 4_096  # trials whose views are kept until the front of them is found
_MOMENTS = 40  # of a sweep, at which the hypervolume is computed
# Members of a front, by the number of metrics, whose hypervolumes take at most about a second.
_MOST = {2: 5_000, 3: 5_000, 4: 200}


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """The front, best by the first metric first, and how many trials are not in it.

    `unmeasured` trials finished without a finite value of every metric. `missing` are the metrics,
    also of constraints, that no finished trial reported. `points` are the values of the feasible
    trials, in order of end.
    """

    metrics: Sequence[Metric]
    trials: Sequence[TrialView]
    dominated: int
    infeasible: int
    unmeasured: int
    missing: tuple[str, ...]
    points: Sequence[Point]

    @property
    def order(self) -> list[int]:
        """The numbers of the members, each with its replicates."""
        groups = [
            range(g.first, g.first + g.of) if (g := t.group) else [t.id.number] for t in self.trials
        ]
        return [*chain(*groups)]

    @property
    def numbers(self) -> frozenset[int]:
        """The same numbers, to look one up."""
        return frozenset(self.order)

    def best_by(self, name: str) -> list[TrialView]:
        """Return the members, the best by one of the metrics first."""
        metric = next(one for one in self.metrics if one.name == name)
        is_descending = metric.goal is Goal.MAXIMIZE
        return sorted(self.trials, key=lambda t: t.metrics[name], reverse=is_descending)

    def hypervolumes(self) -> list[tuple[int, float]]:
        """Return the share of the space that the first N trials dominate, at 40 N at most.

        The space lies between the best and the worst value of each metric among all feasible
        trials: the reference point is the worst. [] if a metric did not vary, or if it would take
        long: more than 4 metrics, or a large front.

        Zitzler and Thiele, PPSN 1998; exact by slices, as While et al., IEEE TEC 10 (1), 2006.
        """
        columns = zip(*self.points, strict=True)
        spans = [(min(values), max(values) - min(values)) for values in columns]
        is_flat = not all(0 < size < math.inf for _, size in spans)
        if is_flat or len(self.trials) > _MOST.get(len(spans), -1):
            return []
        scaled = [
            tuple((v - low) / size for v, (low, size) in zip(point, spans, strict=True))
            for point in self.points
        ]
        found = list[tuple[int, float]]()
        front = set[Point]()
        stride = -(-len(scaled) // _MOMENTS)
        for start in range(0, len(scaled), stride):
            front = pareto((*front, *(block := scaled[start : start + stride])))
            found.append((start + len(block), hypervolume(front, (1.0,) * len(spans))))
        return found


def metrics_of(sweep: SweepView) -> Sequence[Metric]:
    """Return the metrics of a sweep: none, one or several."""
    return sweep.objectives or ([sweep.metric] if sweep.metric else [])


def front_of(sweep: SweepView, trials: Iterable[TrialView]) -> Front:
    """Return the front of a sweep's trials, which come in order of number.

    Replicates count as one trial with the mean of each metric.
    """
    kept = list[tuple[Point, TrialView]]()
    reported, points = set[str](), list[tuple[int, Point]]()
    infeasible = unmeasured = i = 0
    for i, trial in enumerate(averaged(sweep, trials), start=1):
        reported.update(trial.metrics)
        point = point_of(sweep, trial)
        if not sweep.is_feasible(trial.metrics):
            infeasible += 1
        elif point is None:
            unmeasured += 1
        else:
            points.append((trial.ended_ms, point))
            kept.append((point, trial))
        if i % _BLOCK == 0:
            kept = _best(kept)
    kept = _best(kept)
    names = (*(m.name for m in metrics_of(sweep)), *sweep.further_metrics)
    return Front(
        metrics=metrics_of(sweep),
        trials=[
            replace(trial, standing=Standing(setting=_setting(trial), is_front=True))
            for _, trial in sorted(kept, key=lambda pair: (pair[0], pair[1].id.number))
        ],
        dominated=len(points) - len(kept),
        infeasible=infeasible,
        unmeasured=unmeasured,
        missing=tuple(name for name in dict.fromkeys(names) if i and name not in reported),
        points=[point for _, point in sorted(points)],
    )


def _setting(trial: TrialView) -> int:
    group = trial.group
    return (group.first - 1) // group.of + 1 if group else trial.id.number


def _best(found: Sequence[tuple[Point, TrialView]]) -> list[tuple[Point, TrialView]]:
    front = pareto(point for point, _ in found)
    return [pair for pair in found if pair[0] in front]


def point_of(sweep: SweepView, trial: TrialView) -> Point | None:
    """Return the values of a trial, the lower the better; None if one is missing or not finite."""
    values, goals = values_of(sweep, trial), (one.goal for one in metrics_of(sweep))
    if not values:
        return None
    return tuple(-v if g is Goal.MAXIMIZE else v for v, g in zip(values, goals, strict=True))


def values_of(sweep: SweepView, trial: TrialView) -> list[float]:
    """Return the value of each metric of a trial; [] if one is missing or not finite."""
    values = [trial.metrics.get(one.name, math.nan) for one in sweep.objectives]
    if not sweep.objectives and trial.objective is not None:
        values = [trial.objective]
    return values if all(map(math.isfinite, values)) else []


def violated(sweep: SweepView, trial: TrialView) -> list[Constraint]:
    """Return the constraints that a trial does not meet."""
    return [one for one in sweep.constraints if not one.violation(trial.metrics) <= 0]


def dominators(sweep: SweepView, front: Front, trial: TrialView) -> list[TrialView]:
    """Return the members of the front that dominate a trial."""
    point = point_of(sweep, trial)
    if point is None:
        return []
    pairs = ((point_of(sweep, other) or (math.inf,), other) for other in front.trials)
    return [other for its, other in pairs if its != point and all(map(le, its, point))]


def rivals(sweep: SweepView, front: Front, trials: Iterable[TrialView]) -> dict[int, int]:
    """Return the first member of the front that dominates each trial, both by number.

    Trials of the front and infeasible ones have none. Replicates have that of their mean, and the
    trials come in order of number.

    For each metric, a bit for each member says which are at least as good as a value: 10,000 trials
    beside a front of 675 take 0.3 s.
    """
    members = [point_of(sweep, one) or () for one in front.trials]
    scales = list[tuple[list[float], list[int]]]()
    for values in zip(*members, strict=True):
        order = sorted(range(len(values)), key=values.__getitem__)
        masks = [0, *accumulate((1 << i for i in order), or_)]
        scales.append(([values[i] for i in order], masks))
    numbers, found = front.numbers, dict[int, int]()
    for trial in averaged(sweep, trials):
        number, mine = trial.id.number, point_of(sweep, trial)
        if mine is None or number in numbers or not sweep.is_feasible(trial.metrics):
            continue
        as_good = -1 if members else 0
        for value, (ends, masks) in zip(mine, scales, strict=False):
            as_good &= masks[bisect_right(ends, value)]
        if as_good:
            rival = front.trials[(as_good & -as_good).bit_length() - 1].id.number
            of = trial.group.of if trial.group else 1
            found.update(dict.fromkeys(range(number, number + of), rival))
    return found


def place_of(sweep: SweepView, front: Front, trial: TrialView) -> str:
    """Say if a feasible trial is on the front, or which members dominate it; "" of other trials."""
    if trial.state is not TrialState.FINISHED or not sweep.is_feasible(trial.metrics):
        return ""
    if trial.id.number in front.numbers:
        return f"one of {len(front.trials):,}"
    if point_of(sweep, trial) is None:
        return "not on it: a metric has no finite value"
    names = [f"#{other.id.number}" for other in dominators(sweep, front, trial)]
    return f"dominated by {first_of(names, 3)}" if names else "not on it, by the mean of its seeds"


def averaged(sweep: SweepView, trials: Iterable[TrialView]) -> Iterator[TrialView]:
    """Yield the finished trials; of replicates the first, with the mean of each metric."""
    finished = (trial for trial in trials if trial.state is TrialState.FINISHED)
    of = sweep.replicates
    if of < 2:
        yield from finished
        return
    for place, same in groupby(finished, key=lambda trial: (trial.id.number - 1) // of):
        some = list(same)
        names = [n for n in some[0].metrics if all(n in trial.metrics for trial in some)]
        # Divided first: a sum may overflow.
        means = {n: sum(t.metrics[n] / len(some) for t in some) for n in names}
        objectives = tuple(t.objective for t in some if t.objective is not None)
        group = ReplicateGroup(first=place * of + 1, of=of, objectives=objectives)
        ended = max(trial.ended_ms for trial in some)
        yield replace(
            some[0], metrics=means, group=group, ended_ms=ended,
            objective=group.mean if objectives else None,
        )  # fmt: skip


def pareto(points: Iterable[Point]) -> set[Point]:
    """Return the points that no other one dominates.

    A bit for each point says which earlier ones, in the order of the first value, are as good in
    another value: 20,000 points of any front take 0.2 s and 50 MB.
    """
    ordered = sorted(set(points))
    rivals = [(1 << i) - 1 for i in range(len(ordered))]
    for k in range(1, len(ordered[0]) if ordered else 0):
        as_good = 0
        by_value = sorted(range(len(ordered)), key=lambda i: ordered[i][k])
        for _, same in groupby(by_value, key=lambda i: ordered[i][k]):
            equal = list(same)
            as_good |= sum(1 << i for i in equal)
            for i in equal:
                rivals[i] &= as_good
    return {point for point, better in zip(ordered, rivals, strict=True) if not better}


def hypervolume(points: Iterable[Point], corner: Point) -> float:
    """Return the volume between the points and a corner; all values of a point are lower."""
    ordered = sorted(points, key=lambda point: point[-1])
    if len(corner) == 2:
        return max(_areas(ordered, corner), default=0.0)
    flat, rest = [point[:-1] for point in ordered], corner[:-1]
    slices = (
        _areas(flat, rest)
        if len(rest) == 2
        else (hypervolume(flat[: i + 1], rest) for i in range(len(flat)))
    )
    ends = chain((point[-1] for point in ordered[1:]), corner[-1:])
    return sum(
        area * (end - point[-1]) for area, end, point in zip(slices, ends, ordered, strict=True)
    )


def _areas(points: Iterable[Point], corner: Point) -> Iterator[float]:
    """Yield the area between a corner and the points so far, after each point."""
    area = 0.0
    # Of a staircase, going down.
    xs = [-math.inf, corner[0]]
    ys = [corner[1], -math.inf]
    for x, y in points:
        first = last = bisect_right(xs, x)
        left, height = x, ys[first - 1]
        while height > y:
            area += (xs[last] - left) * (height - y)
            left, height = xs[last], ys[last]
            last += 1
        if left > x:
            xs[first : last - 1], ys[first : last - 1] = [x], [y]
        yield area
