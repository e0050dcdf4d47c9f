"""Distributions over countable values, and the interface of every distribution. Pure.

Every draw comes from `rng.random()`, whose sequence Python keeps from version to version, so the
same seed gives the same sets anywhere. `size` is the number of values in a grid; None if a grid
cannot list them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

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
