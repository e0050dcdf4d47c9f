"""Distributions over values that can be counted, and what every distribution has. Pure.

Every draw comes from `rng.random()`, whose sequence Python keeps from version to version, so the
same seed gives the same sets anywhere. `size` counts what a grid steps through, without making it;
None where a grid cannot.
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
    """What all have; the defaults are those of one that a grid cannot step through."""

    __slots__ = ()

    @property
    def size(self) -> int | None:
        """How many values a grid has here."""
        return None

    @property
    def is_even(self) -> bool:
        """True where a random draw is one of the grid's values, each as likely."""
        return False

    @property
    def is_fractional(self) -> bool:
        """True where draws are floats."""
        return False

    def at(self, index: int) -> Json:
        """The grid's value at an index below `size`."""
        raise NotImplementedError

    @property
    def outcomes(self) -> int | None:
        """How many different values draws take; None where they cannot be counted."""
        return self.size if self.is_even else None

    def outcome(self, index: int) -> Json:
        """The value of a draw at an index below `outcomes`."""
        return self.at(index)

    def has(self, value: Json) -> bool:
        """True for a value that a draw can take."""
        count = self.outcomes or 0
        return any(key(self.outcome(index)) == key(value) for index in range(count))

    def draw(self, rng: Random) -> Json:
        """One random value."""
        raise NotImplementedError

    def known(self) -> Iterator[tuple[Path, Json]]:
        """Values that draws can take or approach, with the key that each comes from."""
        yield from ()


@dataclass(frozen=True, slots=True)
class Categorical(Distribution):
    """One of some values of any type, no two of them equal; a constant has one."""

    values: tuple[Json, ...]
    constant: bool = False

    @property
    def size(self) -> int:
        """The number of values."""
        return len(self.values)

    @property
    def is_even(self) -> bool:
        """Always."""
        return True

    def at(self, index: int) -> Json:
        """The value in that place of the file."""
        return self.values[index]

    def draw(self, rng: Random) -> Json:
        """Each value as likely."""
        return self.values[int(rng.random() * len(self.values))]

    def known(self) -> Iterator[tuple[Path, Json]]:
        """Every value."""
        for index, value in enumerate(self.values):
            yield ("value",) if self.constant else ("values", index), value


@dataclass(frozen=True, slots=True)
class Weighted(Distribution):
    """One of some values with a probability each (which sum to 1); no grid takes it."""

    values: tuple[Json, ...]
    probabilities: tuple[float, ...]

    @property
    def outcomes(self) -> int:
        """The number of different values that are drawn at all."""
        return len(self._drawn())

    def outcome(self, index: int) -> Json:
        """Counted in the file's order."""
        return self._drawn()[index]

    def _drawn(self) -> tuple[Json, ...]:
        some = zip(self.values, self.probabilities, strict=True)
        return tuple({key(value): value for value, chance in some if chance > 0}.values())

    def draw(self, rng: Random) -> Json:
        """A value by its probability; one of probability 0 never."""
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
        """The number of integers."""
        return self.high - self.low + 1

    @property
    def is_even(self) -> bool:
        """Always."""
        return True

    def at(self, index: int) -> Json:
        """Counted from low."""
        return self.low + index

    def has(self, value: Json) -> bool:
        """A whole number from low to high."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and self.low <= value <= self.high and value == int(value)  # type: ignore[operator, arg-type]

    def draw(self, rng: Random) -> Json:
        """Each integer as likely."""
        # As integers: a float would lose the last digits of a wide range.
        return self.low + (int(rng.random() * 2**53) * self.size >> 53)

    def known(self) -> Iterator[tuple[Path, Json]]:
        """Both ends."""
        yield ("min",), self.low
        yield ("max",), self.high
