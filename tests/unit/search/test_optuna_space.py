"""Each distribution as Optuna searches it: values that W&B could draw, and found again."""

from __future__ import annotations

import json
from random import Random

import pytest

pytest.importorskip("optuna")

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import RandomSampler
from optuna.study import create_study

from hpq.domain.identity import canonical
from hpq.search.distributions import Distribution, IntUniform, Uniform
from hpq_worker.suggest.optuna_space import axis_of
from tests.support.spaces import SPACE

LEAVES = {".".join(path): leaf for path, leaf in SPACE.leaves}
FIXED = {"constant", "fixed"}


def coordinates(leaf: Distribution, count: int) -> list:
    axis = axis_of(leaf)
    study = create_study(sampler=RandomSampler(seed=1))
    return [study.ask({"a": axis.distribution}).params["a"] for _ in range(count)]


def test_what_has_one_value_is_not_searched() -> None:
    assert {name for name, leaf in LEAVES.items() if axis_of(leaf) is None} == FIXED


@pytest.mark.parametrize("name", sorted(LEAVES.keys() - FIXED))
def test_a_value_leads_back_to_its_coordinate(name: str) -> None:
    axis = axis_of(LEAVES[name])
    for at in coordinates(LEAVES[name], 200):
        value = axis.value(at)
        again = axis.value(axis.find(value))
        if isinstance(value, float):
            assert again == pytest.approx(value, rel=1e-9, abs=1e-9)
        else:
            assert again == value and type(again) is type(value)
        json.dumps(value, allow_nan=False)


@pytest.mark.parametrize("name", sorted(LEAVES.keys() - FIXED))
def test_what_the_file_draws_has_a_place(name: str) -> None:
    """Also what was rounded out of the range, or lies far in a tail."""
    leaf = LEAVES[name]
    axis, rng = axis_of(leaf), Random(3)
    for _ in range(500):
        assert axis.distribution._contains(
            axis.distribution.to_internal_repr(axis.find(leaf.draw(rng)))
        )


@pytest.mark.parametrize("name", sorted(LEAVES.keys() - FIXED - {"weighted", "q_beta"}))
def test_both_draw_from_the_same_range(name: str) -> None:
    leaf, rng = LEAVES[name], Random(5)
    axis = axis_of(leaf)
    theirs = [axis.value(at) for at in coordinates(leaf, 2000)]
    ours = [leaf.draw(rng) for _ in range(2000)]
    if isinstance(axis.distribution, CategoricalDistribution):
        assert {canonical({"": v}) for v in theirs} == {canonical({"": v}) for v in ours}
        return
    low, high = (sorted(ours)[i] for i in (20, -20))
    low_, high_ = (sorted(theirs)[i] for i in (20, -20))
    wide = high - low
    slack = 0.5 if name == "beta" else 0.12  # of beta the value itself is searched
    assert low_ == pytest.approx(low, abs=slack * wide)
    assert high_ == pytest.approx(high, abs=slack * wide)


def test_what_is_never_drawn_is_never_tried() -> None:
    axis = axis_of(LEAVES["weighted"])
    assert axis.distribution == CategoricalDistribution((0, 1))
    assert {axis.value(0), axis.value(1)} == {"x", "y"}


def test_a_logarithm_is_searched_as_one() -> None:
    axis = axis_of(LEAVES["log_uniform_values"])
    assert axis.distribution == FloatDistribution(0.5, 30.0, log=True)


def test_the_order_of_keys_is_nothing() -> None:
    axis = axis_of(LEAVES["choice"])
    assert axis.find(1.0) == 0  # 3.0 is 3, as in a trial's identity
    with pytest.raises(ValueError, match="z"):
        axis.find("z")


@pytest.mark.parametrize(
    "leaf", [IntUniform(-5, 10**9), Uniform(low=-0.5, high=10**9 - 0.6, q=1)], ids=["int", "q"]
)
def test_a_wide_whole_number_is_searched_as_a_float_where_each_value_would_be_looked_at(
    leaf: Distribution,
) -> None:
    axis = axis_of(leaf, 10_000)
    assert isinstance(axis.distribution, FloatDistribution)
    ends = [axis.value(at) for at in (axis.distribution.low, axis.distribution.high)]
    assert ends in ([-5, 10**9], [0, 10**9 - 1]) and all(leaf.has(end) for end in ends)
    assert [axis.value(axis.find(end)) for end in ends] == ends


def test_what_q_rounds_is_searched_where_it_is_drawn() -> None:
    leaf = Uniform(low=0.5, high=2.5, q=1)
    axis = axis_of(leaf)
    assert axis.distribution == IntDistribution(1, 2) and leaf.outcomes == 2
