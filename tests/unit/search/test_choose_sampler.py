"""Which sets are chosen: each once, the same for the same seed, better ones with results."""

from __future__ import annotations

import json
import math
from statistics import fmean

import pytest

pytest.importorskip("optuna")

from hpq.domain.identity import ParameterSet
from hpq.extras import install_command
from hpq.search import conditions, samplers
from hpq.search.distributions import Categorical, IntUniform, LogUniform, Uniform
from hpq.search.samplers import Sampler, Search, missing, unaided
from hpq.search.space import Space
from hpq_worker.suggest.choose_sampler import Chooser
from tests.support.spaces import SPACE

PLAIN = Space.of({("x",): Uniform(low=-5.0, high=10.0), ("y",): LogUniform(low=1e-4, high=1.0)})
FEW = Space.of({("a",): Categorical((1, 2, 3)), ("b",): IntUniform(1, 4)})
FAR = conditions.Partial((conditions.Test(path=("x",), low=3.0),))
CONDITIONAL = Space(PLAIN.leaves, PLAIN.varying, (conditions.Condition(("y",), FAR),))
MODELS = [Sampler.TPE, Sampler.CMAES, Sampler.QMC, Sampler.NSGA2]


def value(params: dict) -> float:
    return (params["x"] - 3) ** 2 + abs(params.get("y", 0.0) - 0.01)


def course(chooser: Chooser, count: int, first: int = 1) -> list[dict]:
    out = []
    for number in range(first, first + count):
        params = chooser.ask(number, {})
        out.append(params)
        chooser.trial_ended(number, value(params))
    return out


@pytest.mark.parametrize("sampler", [*MODELS, Sampler.RANDOM])
def test_the_same_seed_gives_the_same_sets(sampler: Sampler) -> None:
    one, other = (course(Chooser(Search(space=PLAIN, sampler=sampler)), 25) for _ in range(2))
    assert one == other
    another = course(Chooser(Search(space=PLAIN, sampler=sampler, seed=1)), 25)
    assert all(params not in one for params in another)


def test_it_begins_with_what_random_draws() -> None:
    """So `hpq plan` can show them, and open-ended random is random with a count, without it."""
    drawn = samplers.random(PLAIN, None, 0)
    expected = [next(drawn) for _ in range(30)]
    assert course(Chooser(Search(space=PLAIN, sampler=Sampler.RANDOM)), 30) == expected
    assert course(Chooser(Search(space=PLAIN)), 10) == expected[:10]


def test_results_lead_to_better_sets() -> None:
    values = [value(p) for p in course(Chooser(Search(space=PLAIN)), 60)]
    assert sum(values[-20:]) / 20 < sum(values[:20]) / 20 / 3


def test_eight_that_ask_at_once_get_eight_sets() -> None:
    chooser = Chooser(Search(space=PLAIN))
    course(chooser, 15)
    asked = [chooser.ask(16 + i, {}) for i in range(8)]
    assert len({params.identity for params in asked}) == 8
    assert max(p["x"] for p in asked) - min(p["x"] for p in asked) > 0.01


@pytest.mark.parametrize("sampler", [*MODELS, Sampler.RANDOM])
def test_every_set_of_a_small_space_comes_once_and_then_no_more(sampler: Sampler) -> None:
    chooser, seen = Chooser(Search(space=FEW, sampler=sampler)), set()
    for number in range(1, 13):
        params = chooser.ask(number, {})
        assert params is not None
        seen.add(params.identity)
        chooser.trial_ended(number, float(number))
    assert len(seen) == FEW.size == 12
    assert chooser.ask(13, {}) is None


def test_every_distribution_can_be_searched() -> None:
    chooser = Chooser(Search(space=SPACE))
    for number in range(1, 20):
        params = chooser.ask(number, {})
        assert params is not None and params["constant"] is None and params["fixed"] == 1.0
        assert 0 <= params["nested"]["deep"]["lr"] <= 1
        chooser.trial_ended(number, params["uniform"])


@pytest.mark.parametrize(
    ("sampler", "space"),
    [
        (Sampler.TPE, PLAIN),
        (Sampler.TPE, SPACE),
        (Sampler.TPE, CONDITIONAL),
        (Sampler.TPE, FEW),
        (Sampler.QMC, FEW),
        (Sampler.QMC, PLAIN),
        (Sampler.NSGA2, PLAIN),
        pytest.param(Sampler.GP, PLAIN, marks=pytest.mark.torch),
    ],
)
def test_whoever_takes_over_makes_the_same_sets(sampler: Sampler, space: Space) -> None:
    """A set follows from the seed, its number and what is known, whoever makes it."""
    if sampler is Sampler.GP:
        pytest.importorskip("torch")
    search = Search(space=space, sampler=sampler)

    def told(params: dict) -> float:
        return (
            params.get("uniform", params.get("a", 0.0)) if space in (SPACE, FEW) else value(params)
        )

    def go_on(chooser: Chooser, first: int, last: int) -> list[dict]:
        out = []
        for number in range(first, last + 1):
            out.append(chooser.ask(number, {}))
            if number > 1:  # one is always a set ahead
                chooser.trial_ended(number - 1, told((known + out)[number - 2]))
        return out

    known: list[dict] = []
    is_short = space is FEW or sampler is Sampler.GP
    sets = go_on(Chooser(search), 1, 12 if is_short else 18)
    for cut in [11] if is_short else [11, 14]:
        second, known = Chooser(search), sets[:cut]
        for number, params in enumerate(known, 1):
            second.add(number, ParameterSet(json.loads(json.dumps(params))))
            if number < cut:
                second.trial_ended(number, told(params))
        assert go_on(second, cut + 1, len(sets)) == sets[cut:]


def test_results_that_a_sweep_begins_with_are_learned_from_at_once() -> None:
    chooser = Chooser(Search(space=PLAIN))
    for number, params in enumerate(course(Chooser(Search(space=PLAIN)), 12), 1):
        chooser.add(number, params)
        chooser.trial_ended(number, value(params))
    assert chooser.ask(13, {}) is not None and chooser.by is Sampler.TPE


def test_cmaes_begins_where_others_found_the_best(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever takes over has none of its state, but the results."""
    sets = course(Chooser(Search(space=PLAIN, sampler=Sampler.RANDOM)), 40)
    near = []
    for known in (sets, sets[:1]):
        found = []
        for seed in range(8):
            chooser = Chooser(Search(space=PLAIN, sampler=Sampler.CMAES, seed=seed))
            for number, params in enumerate(known, 1):
                chooser.add(number, params)
                chooser.trial_ended(number, value(params))
            found += map(value, course(chooser, 6, len(known) + 1))
        near.append(sum(found))
    assert near[0] < 0.75 * near[1] and not caplog.records


def test_a_set_of_another_space_is_passed_over() -> None:
    chooser = Chooser(Search(space=FEW))
    chooser.add(1, ParameterSet(a=9, b="text"))
    chooser.trial_ended(1, 0.0)
    chooser.trial_requeued(1)
    assert chooser.ask(2, {}) is not None


def test_a_result_outside_the_space_changes_no_suggestion() -> None:
    space = Space.of({("x",): Uniform(low=0.0, high=1.0), ("k",): Categorical((5,))})
    outside = [{"x": 7.0, "k": 5}, {"x": 0.5, "k": 6}]
    made = []
    for known in ([], outside):
        chooser = Chooser(Search(space=space, sampler=Sampler.TPE))
        for number in range(1, 16):
            chooser.add(number, ParameterSet(x=number / 20, k=5))
            chooser.trial_ended(number, number / 20)
        for number, params in enumerate(known, 16):
            chooser.add(number, ParameterSet(params))
            chooser.trial_ended(number, -1.0)
        made.append(chooser.ask(18, {}))
    assert made[0] == made[1] and made[0] is not None


def test_what_runs_counts_as_its_stand_in_while_a_set_is_made() -> None:
    """And as running again after it: the next results are not mixed with it."""
    chooser = Chooser(Search(space=PLAIN))
    course(chooser, 12)
    running = chooser.ask(13, {})
    plain = chooser.ask(14, {13: -100.0})
    assert plain not in (None, running)
    chooser.trial_ended(13, 5.0)
    assert chooser.ask(15, {}) is not None


def test_a_sampler_that_fails_is_said_once_and_sets_are_drawn_meanwhile(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: object) -> None:
        raise MemoryError("7 TiB")

    chooser = Chooser(Search(space=PLAIN))
    course(chooser, 12)
    with monkeypatch.context() as patch:
        patch.setattr("optuna.samplers.TPESampler.sample_relative", fail)
        drawn = course(chooser, 5, first=13)
    assert len({params.identity for params in drawn}) == 5
    (line,) = (r.getMessage() for r in caplog.records)
    assert "tpe" in line and "MemoryError: 7 TiB" in line
    assert course(chooser, 3, first=18)


@pytest.mark.torch
def test_the_gaussian_process_needs_few_results() -> None:
    pytest.importorskip("torch")
    values = [value(p) for p in course(Chooser(Search(space=PLAIN, sampler=Sampler.GP)), 13)]
    assert min(values[10:]) < min(values[:10]) / 2


def test_results_that_the_model_lacks_do_not_end_the_draws() -> None:
    """Trials outside the space, and those that begin at a checkpoint, which are never added."""
    search = Search(space=PLAIN, sampler=Sampler.TPE)
    chooser = Chooser(search)
    for number in range(1, 11):
        chooser.add(number, ParameterSet(x=100.0 + number, y=0.5))
        chooser.trial_ended(number, 0.5)
    chooser.trial_ended(11, 0.5)
    assert makers(chooser, 4, first=12) == [Sampler.RANDOM] * 3 + [Sampler.TPE]


def makers(
    chooser: Chooser,
    count: int,
    made: list[dict] | None = None,
    first: int = 1,
    **how: bool,
) -> list[Sampler]:
    """Who makes each of so many sets, one after the other."""
    out = []
    for number in range(first, first + count):
        params = chooser.ask(number, {}, **how)
        assert params is not None
        out.append(chooser.by)
        if made is not None:
            made.append(params)
        chooser.trial_ended(number, value(params))
    return out


@pytest.mark.torch
def test_by_default_a_gaussian_process_makes_sets_while_results_are_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("hpq_worker.suggest.choose_sampler._MOST_GP", 11)
    one: list[dict] = []
    other: list[dict] = []
    search = Search(space=PLAIN, sampler=Sampler.AUTO)
    by = makers(Chooser(search), 14, one)
    assert by == makers(Chooser(search), 14, other) and one == other
    assert by == [Sampler.RANDOM] * 10 + [Sampler.GP] * 2 + [Sampler.TPE] * 2


@pytest.mark.parametrize(
    "why",
    [
        "scipy or torch is missing",
        "gp knows no conditions",
        "gp was killed",
        "workers would wait for gp",
        "results exceed 9",
    ],
)
def test_by_default_tpe_makes_the_sets_where_a_gaussian_process_cannot(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpq_worker.suggest.choose_sampler._MOST_GP", 9 if "exceed" in why else 200)
    space = CONDITIONAL if "conditions" in why else PLAIN
    has = {"optuna"} if "missing" in why else {"optuna", "scipy", "torch"}
    search = Search(space=space, sampler=Sampler.AUTO)
    chooser = Chooser(search, has_module=has.__contains__, may_gp="killed" not in why)
    by = makers(chooser, 12, is_hurried="wait" in why)
    assert by == [Sampler.RANDOM] * 10 + [Sampler.TPE] * 2
    assert chooser.why == why


@pytest.mark.torch
def test_where_the_gaussian_process_fails_tpe_makes_the_set(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("torch")

    def fail(*args: object) -> None:
        raise RuntimeError("no optimum")

    monkeypatch.setattr("optuna.samplers.GPSampler.sample_relative", fail)
    chooser = Chooser(Search(space=PLAIN, sampler=Sampler.AUTO))
    assert makers(chooser, 10)[-1] is Sampler.RANDOM and chooser.why == "results are few"
    by = makers(chooser, 3, first=11)
    assert by == [Sampler.TPE] * 3 and chooser.why == "gp had no new set"
    (line,) = (r.getMessage() for r in caplog.records)
    assert "gp" in line and "RuntimeError: no optimum" in line and "tpe" in line


def test_what_a_sampler_lacks_is_one_line() -> None:
    assert missing(Sampler.RANDOM, lambda _: False) is None
    assert missing(Sampler.TPE, lambda _: True) is None
    line = missing(Sampler.GP, lambda name: name == "optuna")
    assert line and "scipy, torch" in line and line.endswith("pip install scipy torch")


def test_what_the_default_would_do_better_with_is_one_line() -> None:
    assert missing(Sampler.AUTO, lambda name: name == "optuna") is None
    line = f"sampler auto is tpe alone without torch; run: {install_command('torch')}"
    assert unaided(Sampler.AUTO, lambda name: name != "torch") == line
    assert unaided(Sampler.AUTO, lambda _: True) is None
    assert unaided(Sampler.AUTO, lambda _: False) is None  # `missing` says it
    assert unaided(Sampler.TPE, lambda name: name == "optuna") is None


def bargain(params: dict) -> tuple[float, float]:
    """A front at x from -2 to 2 with y at 0.01: no value of x is the best of both."""
    off = abs(math.log10(params["y"]) + 2)
    return (params["x"] + 2) ** 2 + 9 * off, (params["x"] - 2) ** 2 + 9 * off


def dominated_area(values: list[tuple[float, float]], corner: float = 60.0) -> float:
    """Return the area between a corner and the values that no other is better than in both."""
    area, low = 0.0, corner
    for one, other in sorted(values):
        if one < corner and other < low:
            area += (corner - one) * (low - other)
            low = other
    return area


def several(sampler: Sampler, count: int, seed: int) -> list[tuple[float, float]]:
    chooser, values = Chooser(Search(**BOTH, sampler=sampler, seed=seed)), []
    for number in range(1, count + 1):
        params = chooser.ask(number, {})
        values.append(bargain(params))
        fails = number % 9 == 0
        chooser.trial_ended(number, (math.inf, math.inf) if fails else values[-1])
    assert chooser.by is sampler
    return values


BOTH = {"space": PLAIN, "maximizes": (False, False)}
LEARNS = [Sampler.TPE, Sampler.NSGA2, pytest.param(Sampler.GP, marks=pytest.mark.torch)]


@pytest.mark.parametrize("sampler", LEARNS)
def test_two_metrics_lead_to_a_better_front_than_chance(sampler: Sampler) -> None:
    if sampler is Sampler.GP:  # each set takes half a second
        pytest.importorskip("torch")
    count, seeds = (13, 1) if sampler is Sampler.GP else (50, 4)
    learned, drawn = (
        [dominated_area(several(by, count, seed)) for seed in range(tries)]
        for by, tries in ((sampler, seeds), (Sampler.RANDOM, 4))
    )
    assert fmean(learned) > fmean(drawn) and min(learned) > min(drawn)


def feasible(sampler: Sampler, maximizes: tuple, count: int, seed: int) -> int:
    """Return how many sets, of those made from results, meet a constraint: by chance 2 in 15."""
    search = Search(space=PLAIN, sampler=sampler, maximizes=maximizes, constraints=1, seed=seed)
    chooser, met = Chooser(search), 0
    for number in range(1, count + 1):
        params = chooser.ask(number, {})
        violation, values = abs(params["x"] - 6) - 1, bargain(params)
        met += violation <= 0 and chooser.by is sampler
        if number % 9 == 0:  # it fails, and has reported nothing
            violation, values = math.inf, (math.inf, math.inf)
        chooser.trial_ended(number, values if maximizes else values[0], (violation,))
    assert chooser.by is sampler
    return met


@pytest.mark.parametrize("sampler", LEARNS)
@pytest.mark.parametrize("maximizes", [(), (False, False)])
def test_constraints_lead_to_trials_that_meet_them(sampler: Sampler, maximizes: tuple) -> None:
    """Although the best values are elsewhere."""
    if sampler is Sampler.GP:  # each set takes half a second
        pytest.importorskip("torch")
    # Chance makes 1 of 4, and 21 of 160.
    count, seeds, least = (14, [2], 2) if sampler is Sampler.GP else (50, range(4), 32)
    assert sum(feasible(sampler, maximizes, count, seed) for seed in seeds) >= least


def test_a_stand_in_of_a_search_with_constraints_is_no_result_after_it() -> None:
    chooser = Chooser(Search(space=PLAIN, sampler=Sampler.TPE, constraints=1))
    for number, params in enumerate(course(Chooser(Search(space=PLAIN)), 12), 1):
        chooser.add(number, params)
        chooser.trial_ended(number, value(params), (params["x"],))
    assert chooser.ask(13, {}) is not None and chooser.ask(14, {13: -100.0}) is not None
    chooser.trial_ended(13, 5.0, (1.0,))
    assert chooser.ask(15, {}) is not None and chooser.by is Sampler.TPE
