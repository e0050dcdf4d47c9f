"""A sweep's distributions as Optuna's, and values there and back.

Optuna works on coordinates: a number within limits, its logarithm, or the index of a value. Normal
parameters are searched by their quantile, so that the file's mean and spread are the prior;
rounded ones by the count of their q, or rounded at the end where their logarithm is searched.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from hpq.domain.identity import canonical
from hpq.domain.trial import Json
from hpq.search.distributions import (
    Beta,
    Categorical,
    Distribution,
    IntUniform,
    LogUniform,
    Normal,
    QuantizedDistribution,
    Uniform,
    Weighted,
)

Coordinate = float | int
_TAIL = 1e-6  # quantiles within it of 0 and 1 are not searched
_MOST = 2**53  # the largest range of integers that floats represent exactly


@dataclass(frozen=True, slots=True)
class OptunaAxis:
    """One parameter: Optuna's distribution, from a coordinate to the value, and back.

    `find` raises ValueError or TypeError for a value that is none of the parameter's.
    """

    distribution: BaseDistribution
    value: Callable[[Coordinate], Json]
    find: Callable[[Json], Coordinate]


def axis_of(leaf: Distribution, widest: int | None = None) -> OptunaAxis | None:
    """Return a parameter's axis; None if it has a single value.

    An integer of more than `widest` values is searched as a float, and rounded at the end.
    """
    if isinstance(leaf, Categorical):
        return _choice(leaf.values) if len(leaf.values) > 1 else None
    if isinstance(leaf, Weighted):
        chances = zip(leaf.values, leaf.probabilities, strict=True)
        values = tuple(value for value, chance in chances if chance > 0)
        return _choice(values) if len(values) > 1 else None
    if isinstance(leaf, IntUniform):
        return _whole(leaf.low, leaf.high, widest, int, _number)
    if isinstance(leaf, Normal):
        return _normal(leaf) if leaf.sigma > 0 else None
    if isinstance(leaf, Beta):
        return _float(leaf, 0.0, 1.0)
    if isinstance(leaf, Uniform) and leaf.q is not None:
        return _counted(leaf, leaf.q, widest)
    if isinstance(leaf, Uniform | LogUniform):
        return _float(leaf, leaf.low, leaf.high, log=isinstance(leaf, LogUniform))
    raise TypeError(f"{type(leaf).__name__} has no axis")


def _choice(values: tuple[Json, ...]) -> OptunaAxis:
    places = {canonical({"": value}): index for index, value in reversed([*enumerate(values)])}

    def find(value: Json) -> int:
        place = places.get(canonical({"": value}))
        if place is None:
            raise ValueError(value)
        return place

    indices = CategoricalDistribution(tuple(range(len(values))))
    return OptunaAxis(indices, lambda index: values[int(index)], find)


def _whole(
    low: int,
    high: int,
    widest: int | None,
    value: Callable[[int], Json],
    count: Callable[[Json], float],
) -> OptunaAxis:
    clamped = _within(low, high, int)
    if widest is None or high - low < widest:
        return OptunaAxis(
            IntDistribution(low, high), lambda n: value(int(n)), lambda v: clamped(count(v))
        )
    ends = FloatDistribution(low - 0.5, high + 0.5)
    return OptunaAxis(ends, lambda at: value(int(clamped(at))), lambda v: clamped(count(v)))


def _counted(leaf: Uniform, q: float, widest: int | None) -> OptunaAxis | None:
    """Return the axis of a uniform parameter: multiples of q, from the lowest to the highest."""
    outcomes = leaf.outcomes or 1
    if outcomes == 1:
        return None
    low = round(_number(leaf.outcome(0)) / q)
    high = low + outcomes - 1
    if max(abs(low), abs(high)) > _MOST:
        return _float(leaf, leaf.low, leaf.high)
    return _whole(low, high, widest, lambda n: leaf.quantize(n * q), lambda v: _number(v) / q)


def _float(
    leaf: QuantizedDistribution, low: float, high: float, *, log: bool = False
) -> OptunaAxis:
    distribution = FloatDistribution(low, high, log=log)
    return OptunaAxis(distribution, leaf.quantize, _within(low, high, float))


def _normal(leaf: Normal) -> OptunaAxis:
    curve = NormalDist(leaf.mu, leaf.sigma)
    clamped = _within(_TAIL, 1 - _TAIL, float)

    def value(quantile: Coordinate) -> Json:
        drawn = curve.inv_cdf(quantile)
        return leaf.quantize(math.exp(drawn) if leaf.log else drawn)

    def find(value: Json) -> Coordinate:
        number = _number(value)
        if leaf.log:  # a value that was rounded down to 0 is the least
            number = math.log(number) if number > 0 else -math.inf
        return clamped(curve.cdf(number))

    return OptunaAxis(FloatDistribution(_TAIL, 1 - _TAIL), value, find)


def _within(
    low: float, high: float, kind: Callable[[float], Coordinate]
) -> Callable[[Json], Coordinate]:
    def clamped(value: Json) -> Coordinate:
        number = _number(value)
        return kind(min(max(round(number) if kind is int else number, low), high))

    return clamped


def _number(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    return value
