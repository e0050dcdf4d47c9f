"""Distributions: over countable values, and over numbers, rounded to q or not. Pure.

Standard library only. Every draw comes from `rng.random()`, whose sequence all versions of Python
keep, so the same seed gives the same sets anywhere (only beta depends on Python's own method).
By quantiles, one draw of a number uses one random number. `size` is the number of values in a grid;
None if a grid cannot list them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from statistics import NormalDist

from hpq.domain.trial import Json
from hpq.search.conditions import key

Path = tuple[str | int, ...]  # of a key within a parameter's entry in the file


class Distribution:
    """Interface of distributions; the defaults are for one that a grid cannot list."""

    __slots__ = ()

    @property
    def size(self) -> int | None:
        """Number of values in a grid; None if a grid cannot list them."""
        return None

    @property
    def is_even(self) -> bool:
        """True if a random draw is one of the grid's values, all equally likely."""
        return False

    @property
    def is_fractional(self) -> bool:
        """True if draws are floats."""
        return False

    def at(self, index: int) -> Json:
        """Return the grid's value at an index below `size`."""
        raise NotImplementedError

    @property
    def outcomes(self) -> int | None:
        """Number of different values of draws; None if they cannot be counted."""
        return self.size if self.is_even else None

    def outcome(self, index: int) -> Json:
        """Return the value of a draw at an index below `outcomes`."""
        return self.at(index)

    def has(self, value: Json) -> bool:
        """True for a value that a draw can have."""
        count = self.outcomes or 0
        return any(key(self.outcome(index)) == key(value) for index in range(count))

    def draw(self, rng: Random) -> Json:
        """Draw one random value."""
        raise NotImplementedError

    def known(self) -> Iterator[tuple[Path, Json]]:
        """Yield values that draws can have or approach, each with its key in the file."""
        yield from ()


@dataclass(frozen=True, slots=True)
class Categorical(Distribution):
    """One of several different values of any type; a constant has one value."""

    values: tuple[Json, ...]
    constant: bool = False

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.values)

    @property
    def is_even(self) -> bool:
        """Always."""
        return True

    def at(self, index: int) -> Json:
        """Return the value at a place in the file's list."""
        return self.values[index]

    def draw(self, rng: Random) -> Json:
        """Draw one value; all are equally likely."""
        return self.values[int(rng.random() * len(self.values))]

    def known(self) -> Iterator[tuple[Path, Json]]:
        """Every value."""
        for index, value in enumerate(self.values):
            yield ("value",) if self.constant else ("values", index), value


@dataclass(frozen=True, slots=True)
class Weighted(Distribution):
    """One of several values with a probability each (their sum is 1); not for grids."""

    values: tuple[Json, ...]
    probabilities: tuple[float, ...]

    @property
    def outcomes(self) -> int:
        """Number of different values with a probability above 0."""
        return len(self._drawn())

    def outcome(self, index: int) -> Json:
        """Return the value at an index, in the file's order."""
        return self._drawn()[index]

    def _drawn(self) -> tuple[Json, ...]:
        some = zip(self.values, self.probabilities, strict=True)
        return tuple({key(value): value for value, chance in some if chance > 0}.values())

    def draw(self, rng: Random) -> Json:
        """Draw a value by its probability, never one of probability 0."""
        left = rng.random() * math.fsum(self.probabilities)
        last: Json = None
        for value, probability in zip(self.values, self.probabilities, strict=True):
            if probability > 0:
                last = value
                left -= probability
                if left < 0:
                    break
        return last

    def known(self) -> Iterator[tuple[Path, Json]]:
        """Every value."""
        for index, value in enumerate(self.values):
            yield ("values", index), value


@dataclass(frozen=True, slots=True)
class IntUniform(Distribution):
    """An integer from low to high, both included."""

    low: int
    high: int

    @property
    def size(self) -> int:
        """Number of integers."""
        return self.high - self.low + 1

    @property
    def is_even(self) -> bool:
        """Always."""
        return True

    def at(self, index: int) -> Json:
        """Return the integer at an index, counted from low."""
        return self.low + index

    def has(self, value: Json) -> bool:
        """True for an integer from low to high."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and self.low <= value <= self.high and value == int(value)  # type: ignore[operator, arg-type]

    def draw(self, rng: Random) -> Json:
        """Draw one integer; all are equally likely."""
        # As integers: a float would lose the last digits of a wide range.
        return self.low + (int(rng.random() * 2**53) * self.size >> 53)

    def known(self) -> Iterator[tuple[Path, Json]]:
        """Yield both limits."""
        yield ("min",), self.low
        yield ("max",), self.high


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
