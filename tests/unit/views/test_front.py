"""Pareto fronts and hypervolumes, beside brute force and Optuna."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from operator import le

import pytest

from hpq.domain.constraint import Constraint
from hpq.domain.sweep import Goal, Metric
from hpq.domain.trial import TrialState, TrialView
from hpq_views.analysis.pareto_front import (
    Point,
    dominators,
    front_of,
    hypervolume,
    pareto,
    rivals,
)
from tests.support.views import sweep_view, trial_view

SWEEP = sweep_view(objectives=(Metric(name="acc", goal=Goal.MAXIMIZE), Metric(name="ms")))


def _trial(number: int, acc: float, ms: float, **more: float) -> TrialView:
    metrics = {"acc": acc, "ms": ms, **more}
    return trial_view(number, objective=acc, metrics=metrics, ended_ms=number)


def _points(rng: random.Random, metrics: int, count: int) -> list[Point]:
    """Return points of few different values, so that many are equal in some of them."""
    return [tuple(rng.randrange(6) / 5 for _ in range(metrics)) for _ in range(count)]


def _brute_front(points: Sequence[Point]) -> set[Point]:
    return {p for p in points if not any(q != p and all(map(le, q, p)) for q in points)}


@pytest.mark.parametrize("metrics", [1, 2, 3, 4, 6])
def test_the_front_is_what_comparing_every_pair_gives(metrics: int) -> None:
    rng = random.Random(metrics)
    for count in (0, 1, 2, 7, 40, 40, 40):
        points = _points(rng, metrics, count)
        assert pareto(points) == _brute_front(points)


@pytest.mark.parametrize("limit", [(), (Constraint.parse("ms <= 0.6"),)])
def test_the_rival_of_a_trial_is_the_first_of_the_front_that_dominates_it(limit) -> None:
    sweep, rng = replace(SWEEP, constraints=limit), random.Random(5)
    for count in (0, 1, 2, 60):
        trials = [
            _trial(n, rng.randrange(6) / 5, rng.randrange(6) / 5) for n in range(1, count + 1)
        ]
        front = front_of(sweep, trials)
        wanted = {
            trial.id.number: found[0].id.number
            for trial in trials
            if sweep.is_feasible(trial.metrics) and (found := dominators(sweep, front, trial))
        }
        assert rivals(sweep, front, trials) == wanted and (count < 60 or wanted)


@pytest.mark.parametrize("metrics", [2, 3, 4])
def test_the_hypervolume_is_the_share_of_cells_that_some_point_dominates(metrics: int) -> None:
    rng = random.Random(metrics)
    for count in (1, 2, 7, 30, 30):
        points = _points(rng, metrics, count)
        cells = [()]
        for _ in range(metrics):
            cells = [(*cell, i / 5) for cell in cells for i in range(5)]
        dominated = sum(any(all(map(le, p, cell)) for p in points) for cell in cells)
        corner = (1.0,) * metrics
        assert hypervolume(points, corner) == pytest.approx(dominated / len(cells))
        assert hypervolume(pareto(points), corner) == pytest.approx(dominated / len(cells))


@pytest.mark.parametrize("metrics", [2, 3, 4])
def test_the_hypervolume_is_that_of_optuna(metrics: int) -> None:
    numpy = pytest.importorskip("numpy")
    compute = pytest.importorskip("optuna._hypervolume").compute_hypervolume
    rng = random.Random(metrics)
    points = [tuple(rng.random() for _ in range(metrics)) for _ in range(60)]
    expected = compute(numpy.array(points), numpy.ones(metrics))
    assert hypervolume(points, (1.0,) * metrics) == pytest.approx(expected)


def test_a_front_of_20_000_trials_is_found_whole() -> None:
    turns = [n / 20_000 * math.pi / 2 for n in range(20_000)]
    trials = [_trial(n, math.cos(a), -math.sin(a)) for n, a in enumerate(turns, 1)]
    found = front_of(SWEEP, trials)
    assert [t.id.number for t in found.trials] == list(range(1, 20_001))
    assert found.hypervolumes() == []  # of so many, it would take long


def test_trials_without_finite_values_and_infeasible_ones_are_in_no_front() -> None:
    sweep = replace(SWEEP, constraints=(Constraint.parse("gb <= 24"),))
    trials = [
        _trial(1, 0.9, 10, gb=24),
        _trial(2, 0.9, 10, gb=23),  # equal: both are on the front
        _trial(3, 0.8, 5, gb=1),
        _trial(4, 0.8, 6, gb=1),
        _trial(5, math.inf, 1, gb=1),
        _trial(6, 0.99, math.nan, gb=1),
        _trial(7, 0.99, 1, gb=25),
        _trial(8, 0.99, 1),  # gb was not reported
        replace(_trial(9, 0.99, 1, gb=1), state=TrialState.PRUNED),
    ]
    found = front_of(sweep, trials)
    assert [t.id.number for t in found.trials] == [1, 2, 3]
    assert (found.dominated, found.infeasible, found.unmeasured) == (1, 2, 2)
    assert found.missing == ()
    assert [t.id.number for t in dominators(sweep, found, trials[3])] == [3]
    assert dominators(sweep, found, trials[2]) == []


def test_metrics_that_no_trial_reports_are_named() -> None:
    sweep = replace(
        SWEEP,
        objectives=(*SWEEP.objectives, Metric(name="gb")),
        constraints=(Constraint.parse("hours <= 1"),),
    )
    found = front_of(sweep, [_trial(1, 0.9, 10)])
    assert (found.trials, found.infeasible, found.missing) == ([], 1, ("gb", "hours"))
    assert front_of(sweep, []).missing == ()  # none has ended


def test_replicates_are_one_point_of_their_means() -> None:
    sweep = replace(SWEEP, replicates=2)
    trials = [
        _trial(1, 0.9, 10), _trial(2, 0.7, 20),
        _trial(3, 0.85, 15), replace(_trial(4, 0.0, 0.0), state=TrialState.FAILED),
        _trial(5, 0.5, 12), _trial(6, math.inf, 12),
    ]  # fmt: skip
    found = front_of(sweep, trials)
    assert [t.id.number for t in found.trials] == [3]
    assert (found.dominated, found.unmeasured) == (1, 1)
    assert sorted(found.points) == [(-0.85, 15), (pytest.approx(-0.8), 15)]


def test_the_hypervolume_over_trials_grows_to_that_of_the_front() -> None:
    rng = random.Random(1)
    trials = [_trial(n, rng.random(), rng.random()) for n in range(1, 101)]
    found = front_of(SWEEP, trials)
    counts, shares = zip(*found.hypervolumes(), strict=True)
    assert counts[-1] == 100 and len(counts) <= 40 and list(shares) == sorted(shares)
    assert 0.5 < shares[-1] < 1
    flat = front_of(SWEEP, [replace(t, metrics={**t.metrics, "ms": 1}) for t in trials])
    assert flat.hypervolumes() == front_of(SWEEP, []).hypervolumes() == []
    huge = front_of(SWEEP, [_trial(1, 1e308, 1), _trial(2, -1e308, 0)])
    assert huge.hypervolumes() == []
