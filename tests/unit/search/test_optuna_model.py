"""What a Gaussian process is told of results: their order, with less of what is lopsided."""

from __future__ import annotations

import math
from statistics import fmean, pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("optuna")

import numpy as np

from hpq_worker.suggest.optuna_model import unmet, warped
from tests.support.libraries import needs

pytestmark = needs("scipy")

VALUES = st.lists(st.floats(-1e12, 1e12) | st.just(math.inf), min_size=1, max_size=60)


def order(values: list[float]) -> list[int]:
    """Each value's place among those that differ."""
    places = {value: place for place, value in enumerate(sorted(set(values)))}
    return [places[value] for value in values]


@settings(max_examples=50)
@given(VALUES)
def test_the_order_stays_and_nothing_becomes_infinite(values: list[float]) -> None:
    known = [value for value in values if math.isfinite(value)]
    told = warped(values)
    worst = max(known, default=0.0)
    assert order(told) == order([min(value, worst) for value in values])
    assert all(map(math.isfinite, told))


def test_what_is_near_the_best_is_told_apart() -> None:
    """Of a valley with high walls: the lower half of the values is not one height any more."""
    values = [math.expm1(k / 3) for k in range(30)]  # 0 to 14,000
    told = warped(values)
    share = (told[22] - told[0]) / (told[29] - told[0])
    assert (values[22] - values[0]) / (values[29] - values[0]) < 0.1 < 0.5 < share < 0.7


def test_a_valley_is_not_made_flatter() -> None:
    values = [-math.expm1(k / 3) for k in range(30)]
    told = warped(values)
    share = (told[22] - told[0]) / (told[29] - told[0])
    assert share == pytest.approx((values[22] - values[0]) / (values[29] - values[0]))


def test_a_transformed_value_is_what_yeo_and_johnson_define() -> None:
    """Of the standardized values and the exponent that the article's likelihood prefers."""
    values = [1.0, 2.0, 4.0, 8.0, 100.0]
    middle, spread = fmean(values), pstdev(values)
    level = [(value - middle) / spread for value in values]

    def moved(value: float, k: float) -> float:
        if value >= 0:
            return math.log1p(value) if abs(k) < 1e-9 else ((value + 1) ** k - 1) / k
        return -((1 - value) ** (2 - k) - 1) / (2 - k)

    def likelihood(k: float) -> float:
        told = [moved(value, k) for value in level]
        powers = sum(math.copysign(math.log1p(abs(value)), value) for value in level)
        return -len(level) * math.log(pstdev(told)) + (k - 1) * powers

    best = max((k / 1000 for k in range(-20_000, 1000)), key=likelihood)
    assert warped(values) == pytest.approx([moved(value, best) for value in level], rel=0.01)


@pytest.mark.parametrize(
    "values",
    [
        [1.0, math.nextafter(1.0, 2), 1.0 + 1e-15],
        [0.0, 5e-324, 1e-323, 3.0],
        [1e308, 1.7e308, 1.6e308, -1.7e308],
        [1.0, 2.0, -1.7e308, 1.7e308, math.inf],
        [1e12] * 10 + [1e12 + 1e-3, 1e12 + 2e-3, 3.0],
    ],
)
def test_values_nearly_equal_or_huge_can_be_standardized_without_a_warning(
    values: list[float],
) -> None:
    told = warped(values)
    assert all(map(math.isfinite, told)) and told.index(min(told)) == values.index(min(values))
    assert np.isfinite(np.std(told)) and len(told) == len(values)


@pytest.mark.parametrize("values", [[], [1.0], [2.0, 2.0, 2.0], [3.0, 1.0], [math.inf, 4.0]])
def test_too_few_values_stay_as_they_are(values: list[float]) -> None:
    assert warped(values) == [4.0 if value == math.inf else value for value in values]


def test_a_violation_that_is_unknown_is_not_met_though_all_others_are() -> None:
    first, unknown, last = unmet([-3.0, math.inf, -1.0])
    assert (first, last) == (-3.0, -1.0) and 0 < unknown < math.inf
    assert unmet([2.0, math.inf]) == [2.0, 2.0]
