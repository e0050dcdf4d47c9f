"""Is the winner real: gap, noise, luck, edges, curve; and what --confirm adds."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import fmean

import pytest

from hpq.domain.sweep import Counts, Goal, Launch, Metric, ObjectiveValue
from hpq.domain.trial import Checkpoint, Json, Point, ReplicateGroup, Start, TrialView
from hpq_views.analysis.winner_evidence import SURE, expected_best, judge, pooled_sd
from tests.support.views import sweep_view, trial_view

PARAMETERS: Json = {
    "lr": {"distribution": "log_uniform_values", "min": 1e-4, "max": 1e-1},
    "opt": {"parameters": {"momentum": {"values": [0.1, 0.5, 0.9]}}},
    "kind": {"values": ["a", "b", "c"]},
    "units": {"min": 8, "max": 256},
    "exponent": {"distribution": "log_uniform", "min": -9, "max": -1},
}
SWEEP = sweep_view(
    metric=Metric(name="acc", goal=Goal.MAXIMIZE), counts=Counts(finished=16),
    varying=("lr", "opt.momentum", "kind", "units", "exponent"), spec={"parameters": PARAMETERS},
)  # fmt: skip
MIDDLE: dict[str, Json] = {
    "lr": 3e-3, "opt": {"momentum": 0.5}, "kind": "a", "units": 128, "exponent": 0.01,
}  # fmt: skip


def _trial(number: int, objective: float, *replicates: float, **params: Json) -> TrialView:
    group = ReplicateGroup(first=number, of=len(replicates), objectives=replicates)
    group = group if replicates else None
    return trial_view(number, params={**MIDDLE, **params}, objective=objective, group=group)


def _points(*values: float) -> list[Point]:
    return [Point(step=n, name="acc", value=v) for n, v in enumerate(values, 1)]


@pytest.mark.parametrize(("count", "sd"), [(1, 0), (16, 1.77), (100, 2.5), (1000, 3.24)])
def test_the_luck_of_the_best_of_n(count: int, sd: float) -> None:
    assert expected_best(count) == pytest.approx(sd, abs=0.02)


def test_without_replicates_the_noise_is_unknown_and_the_remedy_is_named() -> None:
    found = judge(SWEEP, [_trial(7, 0.94), _trial(3, 0.93)], ())
    assert (found.gap, found.noise, found.second) == (pytest.approx(0.01), None, 3)
    lines = dict(found.lines(SWEEP.id))
    assert "hpq best demo-00000 -n 2 --confirm 5" in lines["verdict"]
    assert not found.has_verdict
    assert "luck" not in lines and found.luck == pytest.approx(1.77, abs=0.02)


def test_with_replicates_the_gap_is_held_against_the_noise() -> None:
    sweep = replace(SWEEP, replicates=3, counts=Counts(finished=6))
    near = [_trial(1, 0.92, 0.90, 0.92, 0.94), _trial(4, 0.91, 0.89, 0.91, 0.93)]
    found = judge(sweep, near, ())
    assert found.noise == pytest.approx(0.02) and found.has_verdict
    assert dict(found.lines("s"))["verdict"].startswith("not certain")
    assert found.stays_first is not None and 0.5 < found.stays_first < 0.95
    far = [_trial(1, 0.92, 0.90, 0.92, 0.94), _trial(4, 0.41, 0.39, 0.41, 0.43)]
    found = judge(sweep, far, ())
    assert dict(found.lines("s"))["verdict"].startswith("yes")
    assert (found.stays_first, found.order_holds) == (1.0, 1.0)


def test_one_rule_decides_the_verdict_and_the_share_that_stays_first() -> None:
    sweep = replace(SWEEP, replicates=3, counts=Counts(finished=27))
    spread = (-0.02, 0.0, 0.02)
    rest = [_trial(4 + n, 0.9, *(0.9 + one for one in spread)) for n in range(8)]
    for lead, others, verdict in ((0.05, rest[:1], "yes"), (0.035, rest, "not certain")):
        first = _trial(1, 0.9 + lead, *(0.9 + lead + one for one in spread))
        found = judge(sweep, [first, *others], ())
        assert found.stays_first is not None and found.gap == pytest.approx(lead)
        assert (found.stays_first >= SURE) == (verdict == "yes")
        text = dict(found.lines("s"))["verdict"]
        assert text.startswith(verdict) and f"{100 * found.stays_first:.3g}%" in text
        assert (f"{100 * SURE:.3g}%" in text) == (verdict == "not certain"), "what it misses"


def test_one_of_two_equal_sets_is_seldom_taken_for_the_winner() -> None:
    sweep, rng = replace(SWEEP, replicates=5, counts=Counts(finished=10)), random.Random(1)
    wrong = 0
    for _ in range(400):
        drawn = sorted(([rng.gauss(0, 1) for _ in range(5)] for _ in range(2)), key=fmean)
        best = [_trial(n, fmean(values), *values) for n, values in enumerate(drawn[::-1], 1)]
        wrong += dict(judge(sweep, best, ()).lines("s"))["verdict"].startswith("yes")
    assert wrong / 400 < 0.08  # 0.05, and three standard errors


def test_repetitions_that_ignore_the_seed_measure_no_noise() -> None:
    sweep = replace(SWEEP, replicates=2, counts=Counts(finished=4))
    mean = 0.1 + 0.2  # whose repetitions differ from their mean by rounding
    found = judge(sweep, [_trial(1, mean, *[mean] * 5), _trial(6, 0.2, *[0.2] * 5)], ())
    assert (found.noise, found.stays_first, found.ignores_seed) == (None, None, True)
    lines = dict(found.lines("s"))
    assert "HPQ_SEED" in lines["verdict"] and "luck" not in lines


def test_noise_is_pooled_over_groups_of_two_or_more() -> None:
    groups = [(1.0, 3.0), (5.0,), (10.0, 12.0)]
    found = pooled_sd([ReplicateGroup(first=1, of=2, objectives=g) for g in groups])
    assert found == pytest.approx(2**0.5)
    assert pooled_sd([]) is None


@pytest.mark.parametrize(
    ("params", "edge"),
    [
        ({}, ""),
        ({"lr": 1.1e-4}, "lr=0.00011 is the lowest"),
        ({"lr": 0.09}, "lr=0.09 is the highest"),
        ({"lr": 0.02}, ""),
        ({"opt": {"momentum": 0.9}}, "opt.momentum=0.9 is the highest"),
        ({"units": 8}, "units=8 is the lowest"),
        ({"exponent": 0.36}, "exponent=0.36 is the highest"),
        ({"kind": "c"}, ""),
    ],
)
def test_a_winner_at_the_edge_of_a_range_says_so(params: dict[str, Json], edge: str) -> None:
    found = judge(SWEEP, [_trial(7, 0.94, **params)], ())
    assert edge in " ".join(found.edges.values()) and len(found.edges) == bool(edge)
    assert found.gap is None
    assert "edge" not in dict(found.lines("s", negligible=found.edges))
    repeats = replace(SWEEP, tags=("confirms-demo-11111",))
    assert judge(repeats, [_trial(7, 0.94, **params)], ()).edges == {}


@pytest.mark.parametrize("take", ObjectiveValue)
def test_the_best_of_a_curve_of_replicates_is_that_of_one(take: ObjectiveValue) -> None:
    sweep = replace(SWEEP, metric=Metric(name="acc", goal=Goal.MAXIMIZE, take=take), replicates=2)
    found = judge(sweep, [_trial(1, 0.7, 0.6, 0.8)], _points(0.1, 0.5, 0.9, 0.8, 0.7, 0.6))
    assert "of one replicate" in found.steps


def test_a_curve_that_still_rises_and_one_that_fell_say_so() -> None:
    rising = judge(SWEEP, [_trial(1, 0.9)], _points(*(n / 20 for n in range(20))))
    flat = judge(SWEEP, [_trial(1, 0.9)], _points(0.1, *[0.9] * 19))
    fell = judge(SWEEP, [_trial(1, 0.6)], _points(0.1, 0.5, 0.9, 0.8, 0.7, 0.6))
    assert (rising.is_rising, flat.is_rising, fell.is_rising) == (True, False, False)
    assert "0.9000 at step 3 (`metric: {value: best}`" in fell.steps and flat.steps == ""
    assert "replicate" not in fell.steps
    best = replace(SWEEP, metric=Metric(name="acc", goal=Goal.MAXIMIZE, take=ObjectiveValue.BEST))
    assert "adds luck" in judge(best, [_trial(1, 0.9)], _points(0.1, 0.5, 0.9, 0.8)).steps
    falling_loss = replace(SWEEP, metric=Metric(name="loss"))
    assert judge(falling_loss, [_trial(1, 0.1)], _points(*(1 / n for n in range(1, 9)))).is_rising


def test_a_sweep_file_of_listed_sets_has_no_edges() -> None:
    for spec in ({}, {"parameters": None}, {"parameters": {"lr": 3}}):
        assert judge(replace(SWEEP, spec=spec), [_trial(1, 0.9, lr=1e-4)], ()).edges == {}


@pytest.mark.parametrize(
    ("entry", "value", "is_edge"),
    [
        ({"min": 0.0, "max": 0.5}, 0.0, False),  # a share, a weight or a count has no value below 0
        ({"values": [0, 0.1, 0.2]}, 0, False),
        ({"min": 0.0, "max": 0.5}, 0.5, True),
        ({"min": -1.0, "max": 0.0}, -1.0, True),
        ({"min": -1.0, "max": 0.0}, 0.0, True),
        ({"min": 0.0, "max": 1.0}, 1.0, False),  # a probability
        ({"min": 1, "max": 8}, 1, False),  # layers
        ({"min": 1, "max": 8}, 8, True),
        ({"min": 2, "max": 8}, 2, True),
        ({"min": 0.5, "max": 1.0}, 1.0, False),
    ],
)
def test_a_natural_bound_is_no_edge(entry: Json, value: Json, is_edge: bool) -> None:
    sweep = replace(SWEEP, spec={"parameters": {"x": entry}}, varying=("x",))
    assert bool(judge(sweep, [_trial(7, 0.94, x=value)], ()).edges) is is_edge


def test_the_best_of_a_minimized_curve_is_a_minimum() -> None:
    best = replace(SWEEP, metric=Metric(name="loss", take=ObjectiveValue.BEST))
    steps = judge(best, [_trial(1, 0.1)], _points(0.9, 0.5, 0.1, 0.2)).steps
    assert "minimum" in steps and "maximum" not in steps


def test_a_copy_of_the_best_result_is_no_rival() -> None:
    first = _trial(7, 0.94)
    copies = [
        replace(first, id=replace(first.id, number=n), reused=of)
        for n, of in ((8, "demo-00000/7"), (9, "older-1/3"), (10, "older-1/3 (other code)"))
    ]
    other = _trial(3, 0.93, lr=1e-2)
    assert judge(SWEEP, [first, copies[0], other], ()).second == 3
    assert judge(SWEEP, [copies[1], copies[2], other], ()).second == 3
    assert judge(SWEEP, [first, copies[0]], ()).second is None
    tie = _trial(8, 0.94, lr=1e-2)
    assert "a tie" in dict(judge(SWEEP, [first, tie], ()).lines("s"))["verdict"]


def test_more_training_is_proposed_only_where_a_trial_can_begin_at_the_winner_s_checkpoint() -> (
    None
):
    kept = replace(_trial(1, 0.9), checkpoint=Checkpoint(store="s", path="p"))
    rising = _points(*(n / 20 for n in range(20)))
    own = replace(SWEEP, launch=Launch(program="train.py"))
    confirms = replace(own, tags=("confirms-demo-11111",))
    cases = [(own, True), (SWEEP, False), (replace(own, replicates=3), False), (confirms, False)]
    for sweep, is_named in cases:
        curve = dict(judge(sweep, [kept], rising).lines(sweep.id))["curve"]
        assert ("hpq add demo-00000 --from 1" in curve) == is_named
    lost = judge(own, [_trial(1, 0.9)], rising)
    assert "hpq add" not in dict(lost.lines(own.id))["curve"]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_repetitions_are_proposed_only_of_trials_that_their_parameters_repeat(place: int) -> None:
    trials = [_trial(7, 0.94), _trial(3, 0.93), _trial(5, 0.92)]
    start = Start(trial=1, checkpoint=Checkpoint(store="s", path="p"))
    trials[place] = replace(trials[place], start=start)
    verdict = dict(judge(SWEEP, trials, ()).lines(SWEEP.id))["verdict"]
    assert ("--confirm" in verdict) == (place == 2)
    assert ("at the checkpoint of #1" in verdict) == (place < 2)
