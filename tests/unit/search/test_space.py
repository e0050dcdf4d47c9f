"""Search spaces: what keys mean, what draws look like, and the order of grids."""

from __future__ import annotations

import math
import statistics
from itertools import islice, product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpq.domain.identity import ParameterSet
from hpq.domain.trial import Json, flatten
from hpq.search import samplers
from hpq.search.distributions import (
    Beta,
    Categorical,
    Distribution,
    IntUniform,
    LogUniform,
    Normal,
    Uniform,
    Weighted,
)
from hpq.search.samplers import Search
from hpq.search.space import Space
from hpq.store.wire.search import decode_search, encode_search
from hpq.yamlfile import yaml_reader
from hpq.yamlfile.problems import Problems, SourceMap
from hpq_producer.sweepfile import parameters


def space_of(text: str) -> Space:
    out = Problems(SourceMap(file="s.yaml"))
    space = Space.of(parameters.read_leaves(yaml_reader.parse(text, "s.yaml").data, (), out))
    assert not out.errors
    return space


def one(text: str) -> Distribution:
    ((_, leaf),) = space_of(f"p: {text}").leaves
    return leaf


@pytest.mark.parametrize(
    ("text", "leaf"),
    [
        ("{value: 3}", Categorical((3,), constant=True)),
        ("{value: null}", Categorical((None,), constant=True)),
        ("{values: [a, 1, [2], {b: 3}]}", Categorical(("a", 1, [2], {"b": 3}))),
        ("{values: [3, 3.0, true, 1]}", Categorical((3, True, 1))),
        ("{values: [a, b], probabilities: [0.25, 0.75]}", Weighted(("a", "b"), (0.25, 0.75))),
        ("{min: 1, max: 4}", IntUniform(1, 4)),
        ("{min: 0, max: 0.1}", Uniform(low=0, high=0.1)),
        ("{min: 1e-4, max: 1e-1}", Uniform(low=1e-4, high=0.1)),
        ("{distribution: uniform, min: 0, max: 1}", Uniform(low=0, high=1)),
        ("{distribution: q_uniform, min: 0, max: 9}", Uniform(low=0, high=9, q=1)),
        (
            "{distribution: log_uniform_values, min: 0.1, max: 1}",
            LogUniform(low=0.1, high=1),
        ),
        (
            "{distribution: q_log_uniform_values, min: 1, max: 9, q: 2}",
            LogUniform(low=1, high=9, q=2),
        ),
        (
            "{distribution: inv_log_uniform_values, min: 0.1, max: 1}",
            LogUniform(low=0.1, high=1),
        ),
        (
            "{distribution: log_uniform, min: -1, max: 2}",
            LogUniform(low=math.exp(-1), high=math.exp(2)),
        ),
        (
            "{distribution: inv_log_uniform, min: -1, max: 2}",
            LogUniform(low=math.exp(-2), high=math.exp(1)),
        ),
        ("{distribution: normal}", Normal(mu=0, sigma=1)),
        ("{distribution: q_normal, mu: 5, q: 0.5}", Normal(mu=5, sigma=1, q=0.5)),
        ("{distribution: log_normal, sigma: 2}", Normal(mu=0, sigma=2, log=True)),
        ("{distribution: q_log_normal}", Normal(mu=0, sigma=1, q=1, log=True)),
        ("{distribution: beta, a: 2}", Beta(a=2, b=1)),
        ("{distribution: q_beta, q: 0.1}", Beta(a=1, b=1, q=0.1)),
    ],
)
def test_the_keys_of_a_parameter_name_its_distribution(text: str, leaf: Distribution) -> None:
    assert one(text) == leaf


def test_a_deprecated_distribution_warns_and_names_its_twin() -> None:
    out = Problems(SourceMap(file="s.yaml"))
    data: Json = {"lr": {"distribution": "log_uniform", "min": -3, "max": 0}}
    Space.of(parameters.read_leaves(data, (), out))
    (warning,) = out.sorted_warnings()
    assert warning.code == "exponents" and "s.yaml: lr.distribution: " in warning.text
    assert "log_uniform_values" in warning.text


def draws(text: str, n: int = 4000) -> list[float]:
    leaf, rng = one(text), Random(1)
    values = [leaf.draw(rng) for _ in range(n)]
    assert all(isinstance(v, int | float) for v in values)
    return [v for v in values if isinstance(v, int | float)]


@pytest.mark.parametrize(
    ("text", "middle", "low", "high"),
    [
        ("{min: 1, max: 9}", 5, 1, 9),
        ("{min: 2.0, max: 4.0}", 3, 2, 4),
        ("{distribution: log_uniform_values, min: 0.01, max: 100}", 1, 0.01, 100),
        ("{distribution: inv_log_uniform_values, min: 0.01, max: 100}", 1, 0.01, 100),
        ("{distribution: log_uniform, min: 0, max: 2}", math.e, 1, math.exp(2)),
        ("{distribution: inv_log_uniform, min: 0, max: 2}", 1 / math.e, math.exp(-2), 1),
        ("{distribution: normal, mu: 3, sigma: 0.5}", 3, -1, 7),
        ("{distribution: log_normal, mu: 1, sigma: 0.1}", math.e, 1, 8),
        ("{distribution: beta, a: 3, b: 3}", 0.5, 0, 1),
    ],
)
def test_draws_lie_where_the_distribution_says(
    text: str, middle: float, low: float, high: float
) -> None:
    values = draws(text)
    assert low <= min(values) and max(values) <= high
    assert statistics.median(values) == pytest.approx(middle, rel=0.12)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("{distribution: q_uniform, min: 0, max: 0.5, q: 0.1}", {0, 0.1, 0.2, 0.3, 0.4, 0.5}),
        ("{distribution: q_uniform, min: 1, max: 8, q: 3}", {0, 3, 6, 9}),
        ("{distribution: q_beta, q: 0.5}", {0, 0.5, 1}),
        ("{min: -1, max: 1}", {-1, 0, 1}),
    ],
)
def test_q_rounds_to_multiples_without_noise(text: str, values: set[float]) -> None:
    assert set(draws(text)) == values


def test_an_integer_q_gives_integers_and_a_float_q_floats() -> None:
    assert {type(v) for v in draws("{distribution: q_normal, sigma: 10, q: 2}", 50)} == {int}
    assert {type(v) for v in draws("{distribution: q_normal, sigma: 10, q: 2.0}", 50)} == {float}


def test_probabilities_are_kept_and_zero_is_never() -> None:
    leaf, rng = Weighted(("a", "b", "c"), (0.2, 0.0, 0.8)), Random(3)
    seen = [leaf.draw(rng) for _ in range(5000)]
    assert seen.count("b") == 0
    assert seen.count("a") == pytest.approx(1000, rel=0.15)


def test_a_grid_goes_by_sorted_names_and_the_last_varies_fastest() -> None:
    space = space_of("b: {values: [x, y]}\na: {min: 1, max: 3}\nc: {value: 0}")
    assert [(s["a"], s["b"], s["c"]) for s in samplers.grid(space)] == [
        (1, "x", 0), (1, "y", 0), (2, "x", 0), (2, "y", 0), (3, "x", 0), (3, "y", 0),
    ]  # fmt: skip
    assert space.varying == ("b", "a")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("{min: 2, max: 4}", [2, 3, 4]),
        ("{distribution: q_uniform, min: 0, max: 10, q: 5}", [0, 5]),
        ("{distribution: q_uniform, min: 0, max: 11, q: 5}", [0, 5, 10]),
        ("{distribution: q_uniform, min: 0.1, max: 0.4, q: 0.1}", [0.1, 0.2, 0.3]),
        ("{distribution: q_uniform, min: 1, max: 2, q: 7}", [1]),
        ("{values: [1, 1.0, 2]}", [1, 2]),
    ],
)
def test_a_grid_steps_as_wandb_does(text: str, values: list[float]) -> None:
    assert [s["p"] for s in samplers.grid(space_of(f"p: {text}"))] == values


def test_nested_parameters_become_nested_sets() -> None:
    space = space_of("opt: {parameters: {lr: {values: [1, 2]}, name: {value: sgd}}}\nb: {value: 3}")
    assert list(samplers.grid(space)) == [
        {"b": 3, "opt": {"lr": 1, "name": "sgd"}},
        {"b": 3, "opt": {"lr": 2, "name": "sgd"}},
    ]
    assert space.varying == ("opt.lr",)


def test_a_grid_names_the_parameter_that_it_cannot_step_through() -> None:
    with pytest.raises(ValueError, match=r"^opt\.lr: "):
        samplers.grid(space_of("a: {value: 1}\nopt: {parameters: {lr: {min: 0.0, max: 1.0}}}"))


def test_a_grid_is_counted_without_being_made() -> None:
    space = space_of("\n".join(f"p{i}: {{min: 1, max: 1000000}}" for i in range(9)))
    assert space.size == 10**54
    assert next(samplers.grid(space))["p0"] == 1
    assert len(list(islice(samplers.random(space, None, 0), 5))) == 5


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
WORDS = st.text("aé0 ", max_size=5)
VALUES = st.lists(st.integers() | WORDS | st.booleans() | FLOATS, min_size=1, max_size=4)
NAMES = st.text("abcdef", min_size=1, max_size=3)
FINITE = st.dictionaries(NAMES, VALUES, min_size=1, max_size=3)


def finite(values: dict[str, list[Json]]) -> Space:
    out = Problems(SourceMap(file="s.yaml"))
    return Space.of(parameters.read_leaves({k: {"values": v} for k, v in values.items()}, (), out))


@given(FINITE)
def test_a_grids_count_is_its_length_and_no_set_is_there_twice(
    values: dict[str, list[Json]],
) -> None:
    space = finite(values)
    sets = list(samplers.grid(space))
    assert len(sets) == space.size == len({s.identity for s in sets})
    everything = [dict(zip(values, row, strict=True)) for row in product(*values.values())]
    assert {s.identity for s in sets} == {ParameterSet(s).identity for s in everything}


@given(FINITE, st.integers(0, 2**63))
def test_random_and_shuffle_go_through_a_finite_space_once_and_end(
    values: dict[str, list[Json]], seed: int
) -> None:
    space = finite(values)
    every = sorted(s.identity for s in samplers.grid(space))
    assert sorted(s.identity for s in samplers.random(space, None, seed)) == every
    shuffled = samplers.grid(space, shuffle=True, seed=seed)
    assert sorted(s.identity for s in shuffled) == every


MIXED = "a: {min: 0.0, max: 1.0}\nb: {values: [1, 2, 3]}\nc: {distribution: normal}"


@given(st.integers(0, 2**63), st.integers(1, 30))
def test_the_same_seed_gives_the_same_sets_and_more_of_them_begin_alike(seed: int, n: int) -> None:
    space = space_of(MIXED)
    first = list(samplers.random(space, n, seed))
    assert first == list(samplers.random(space, n, seed))
    assert first == list(islice(samplers.random(space, None, seed), n))
    assert len(first) == n


@pytest.mark.parametrize("space", [space_of(MIXED), space_of("a: {min: 1, max: 100000}")])
def test_seeds_differ(space: Space) -> None:
    assert list(samplers.random(space, 5, 0)) != list(samplers.random(space, 5, 1))


def test_random_sets_do_not_change_from_version_to_version() -> None:
    first, second = samplers.random(space_of(MIXED), 2, 7)
    assert first == {"a": 0.7059339087777089, "b": 2, "c": pytest.approx(-1.1556790778787178)}
    assert second == {"a": 0.05507912152868766, "b": 1, "c": pytest.approx(-0.5121151355327873)}
    order = [s["a"] for s in samplers.random(space_of("a: {min: 1, max: 9}"), 9, 7)]
    assert order == [2, 6, 5, 9, 7, 4, 8, 3, 1]


def test_draws_that_repeat_are_left_out_until_nothing_is_new() -> None:
    weighted = space_of("a: {values: [1, 2, 3], probabilities: [0.6, 0.3, 0.1]}")
    assert sorted(s["a"] for s in samplers.random(weighted, None, 0)) == [1, 2, 3]
    rounded = space_of("a: {distribution: q_uniform, min: 0, max: 4}")
    assert sorted(s["a"] for s in samplers.random(rounded, 100, 0)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000])
def test_a_shuffle_is_a_shuffle(size: int) -> None:
    order = [samplers.permuted(i, size, 5) for i in range(size)]
    assert sorted(order) == list(range(size))


def test_a_shuffle_favors_no_place() -> None:
    firsts = [samplers.permuted(0, 5, seed) for seed in range(2000)]
    assert all(320 < firsts.count(place) < 480 for place in range(5))


@pytest.mark.parametrize(
    "text",
    [
        "{distribution: q_uniform, min: 1.0, max: 1.0e+300, q: 1.0e-300}",
        "{min: -1.7e+308, max: 1.7e+308}",
        "{min: 0, max: 1000000000000000000000000000000}",
        "{distribution: normal, sigma: 0}",
    ],
)
def test_far_numbers_do_not_overflow(text: str) -> None:
    assert all(math.isfinite(v) for v in draws(text, 100))


class Always(Random):
    """Gives one number for ever."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def random(self) -> float:
        return self.value


LOWEST, HIGHEST = Always(0.0), Always(1 - 2.0**-53)


@pytest.mark.parametrize(
    "text",
    ["{distribution: normal}", "{min: 1, max: 3}", "{values: [1, 2]}", "{min: 0.5, max: 1.5}"],
)
def test_the_outermost_random_numbers_have_a_value(text: str) -> None:
    for rng in (LOWEST, HIGHEST):
        value = one(text).draw(rng)
        assert isinstance(value, int | float) and math.isfinite(value)


def test_a_value_of_probability_zero_is_not_drawn_by_rounding() -> None:
    values = tuple("abcdefghijk")
    leaf = Weighted(("-", *values[:10], "+"), (0.0, *[0.1] * 10, 0.0))
    assert (leaf.draw(LOWEST), leaf.draw(HIGHEST)) == ("a", "j")


@given(st.floats(1e-9, 1.0), st.floats(1.5, 1e9))
def test_a_log_uniform_stays_within_its_ends(low: float, high: float) -> None:
    leaf = LogUniform(low=low, high=high)
    assert low <= leaf.sample(LOWEST) <= leaf.sample(HIGHEST) <= high


def test_nested_parameters_vary_by_their_dotted_names_in_the_files_order() -> None:
    space = space_of(
        "opt: {parameters: {name: {values: [sgd, adam]}, lr: {min: 0.1, max: 0.2}}}\n"
        "b: {value: 3}\na: {values: [1, 2]}"
    )
    assert space.varying == ("opt.name", "opt.lr", "a")


def test_steps_beyond_counting_vary_and_make_no_grid() -> None:
    space = space_of("p: {distribution: q_uniform, min: 1.0, max: 1.0e+300, q: 1.0e-300}")
    assert (space.size, space.varying) == (None, ("p",))


def test_sets_have_the_order_of_the_file_also_nested_ones() -> None:
    space = space_of(
        "z: {values: [1]}\n"
        "opt: {parameters: {name: {values: [adam]}, lr: {min: 0.1, max: 1.0}}}\n"
        "a: {min: 0.0, max: 1.0}\n"
    )
    read = decode_search("key", encode_search(Search(space=space))).space
    for one in (space, read):
        drawn = one.draw(Random(0))
        assert list(flatten(drawn)) == ["z", "opt.name", "opt.lr", "a"]
