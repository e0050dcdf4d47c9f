"""Distributions over numbers, with or without rounding to a multiple of q. Pure.

Standard library only: quantiles and `rng.random()`, so that one draw uses one random number and
the same seed gives the same sets anywhere (only beta depends on Python's own method).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from statistics import NormalDist

from hpq.domain.trial import Json
from hpq.search.discrete import Distribution, Path

_STANDARD = NormalDist()
_SMALLEST = 2.0**-54  # half of rng.random()'s step; replaces 0, which has no quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedDistribution(Distribution):
    """A continuous distribution; with q, each draw is rounded to a multiple of q."""

    q: float | int | None = None

    @property
    def is_fractional(self) -> bool:
        """False only with an integer q."""
        return not isinstance(self.q, int)

    def reach(self) -> tuple[float, float]:
        """Return the limits of draws before rounding; infinite if there is none."""
        return -math.inf, math.inf

    @property
    def outcomes(self) -> int | None:
        """Number of multiples of q that draws are rounded to; None without q or limits."""
        first, last = self._counted()
        return None if first is None or last is None else max(1, last - first + 1)

    def outcome(self, index: int) -> Json:
        """Return the outcome at an index; they are counted by q from the lowest."""
        first, _ = self._counted()
        assert first is not None and self.q is not None
        return _multiple(first + index, self.q)

    def has(self, value: Json) -> bool:
        """True for a number within the limits; with q, for a multiple of it."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        low, high = self.reach()
        if self.q is None:
            return low <= value <= high
        first, last = self._counted()
        count = round(value / self.q)
        is_multiple = math.isclose(count * self.q, value, rel_tol=1e-9, abs_tol=1e-12)
        return is_multiple and (first is None or count >= first) and (last is None or count <= last)

    def _counted(self) -> tuple[int | None, int | None]:
        """Return the lowest and the highest multiple of q that draws are rounded to."""
        if self.q is None:
            return None, None
        low, high = (end / self.q for end in self.reach())
        first = math.floor(low + 0.5) if math.isfinite(low) else None
        return first, math.ceil(high - 0.5) if math.isfinite(high) else None

    def draw(self, rng: Random) -> Json:
        """Draw and round half to even, as W&B does; the value may leave [min, max] by up to q/2."""
        return self.quantize(self.sample(rng))

    def sample(self, rng: Random) -> float:
        """Draw without rounding."""
        raise NotImplementedError

    def quantize(self, value: float) -> float | int:
        """Round a value to a multiple of q; a q too small to matter has no effect."""
        if self.q is None or not math.isfinite(value / self.q):
            return value
        return _multiple(round(value / self.q), self.q)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranged(QuantizedDistribution):
    """A number between low and high."""

    low: float
    high: float

    def reach(self) -> tuple[float, float]:
        """Return both limits."""
        return self.low, self.high

    def known(self) -> Iterator[tuple[Path, Json]]:
        """Yield both limits, rounded."""
        yield ("min",), self.quantize(self.low)
        yield ("max",), self.quantize(self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniform(_Ranged):
    """A uniform number; with q a grid steps from low by q, high excluded."""

    @property
    def size(self) -> int | None:
        """Number of steps below high; None without q, or if it is infinite."""
        if self.q is None or not math.isfinite(steps := (self.high - self.low) / self.q):
            return None
        # A step that differs from high by a rounding error is not below it.
        return max(1, math.ceil(steps - 1e-9))

    def at(self, index: int) -> Json:
        """Return the value at an index, counted from low by q."""
        assert self.q is not None
        if isinstance(self.low, int):
            return _multiple(index, self.q, self.low)
        return _tidy(self.low + index * self.q)

    def sample(self, rng: Random) -> float:
        """Draw without overflow, even if the range is as wide as floats go."""
        u = rng.random()
        return self.low * (1 - u) + self.high * u


@dataclass(frozen=True, slots=True, kw_only=True)
class LogUniform(_Ranged):
    """A number whose logarithm is uniform; both ends are above 0.

    W&B's inv_log_uniform, in which 1/x has these properties, is the same distribution.
    """

    def sample(self, rng: Random) -> float:
        """Draw within the limits, which exp(log(x)) may miss by a rounding error."""
        u = rng.random()
        value = math.exp(math.log(self.low) * (1 - u) + math.log(self.high) * u)
        return min(max(value, self.low), self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal(QuantizedDistribution):
    """A normal number, or (log) e to the power of one."""

    mu: float = 0.0
    sigma: float = 1.0
    log: bool = False

    def reach(self) -> tuple[float, float]:
        """Return infinite limits, or 0 and infinity for a log-normal number."""
        return (0.0 if self.log else -math.inf), math.inf

    def sample(self, rng: Random) -> float:
        """Draw by the quantile, which uses one random number."""
        value = self.mu + self.sigma * _STANDARD.inv_cdf(rng.random() or _SMALLEST)
        return math.exp(value) if self.log else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Beta(QuantizedDistribution):
    """A number from 0 to 1 with density ~ x^(a-1) (1-x)^(b-1)."""

    a: float = 1.0
    b: float = 1.0

    def reach(self) -> tuple[float, float]:
        """Return 0 and 1."""
        return 0.0, 1.0

    def sample(self, rng: Random) -> float:
        """Draw as the standard library does, by two gammas."""
        return rng.betavariate(self.a, self.b)


def _multiple(count: int, q: float | int, start: int = 0) -> float | int:
    value = start + count * q
    return value if isinstance(q, int) else _tidy(value)


def _tidy(value: float) -> float:
    """Return 0.30000000000000004 as 0.3."""
    return float(f"{value:.12g}")
