"""What a Gaussian process is told of results: their order, with less of what is lopsided."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("scipy")

from worker.suggest.warp import warped

VALUES = st.lists(st.floats(-1e12, 1e12) | st.just(math.inf), min_size=1, max_size=60)


def order(values: list[float]) -> list[int]:
    """Each value's place among those that differ."""
    places = {value: place for place, value in enumerate(sorted(set(values)))}
    return [places[value] for value in values]


@settings(deadline=None, max_examples=50)
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


@pytest.mark.parametrize("values", [[], [1.0], [2.0, 2.0, 2.0], [3.0, 1.0], [math.inf, 4.0]])
def test_too_few_values_stay_as_they_are(values: list[float]) -> None:
    assert warped(values) == [4.0 if value == math.inf else value for value in values]
