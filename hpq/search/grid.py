"""A space of leaves that all take a finite number of values: its sets counted, and made by rank.

Nothing is listed but the combinations of the parameters that conditions ask
about: for each of them the others are a plain product, so a space of 10^18 sets costs nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, product

from hpq.domain.trial import Json
from hpq.search.conditions import MISSING, Condition, Names, Partial, drop_absent, find, key, nest

MOST = 200_000  # combinations that are gone through


class TooMany(ValueError):
    """Conditions or exclusions ask about more combinations than can be gone through."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A leaf: where it stands in a set, how many values it has, and each of them."""

    path: Names
    size: int
    at: Callable[[int], Json]


@dataclass(frozen=True, slots=True)
class Branch:
    """One combination of what conditions ask about, and the leaves that are free under it."""

    fixed: tuple[tuple[Names, Json], ...]
    free: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """How many sets it has."""
        return math.prod(axis.size for axis in self.free)

    def at(self, rank: int) -> dict[str, Json]:
        """The set at a rank: names sorted, the last varies fastest."""
        values = list(self.fixed)
        for axis in reversed(self.free):
            rank, index = divmod(rank, axis.size)
            values.append((axis.path, axis.at(index)))
        return nest(sorted(values, key=lambda pair: pair[0]))


class Lattice:
    """The sets that conditions leave, in order; `count` is without those that are excluded.

    What conditions ask about varies slowest; else the order is W&B's.
    """

    def __init__(
        self, axes: Sequence[Axis], when: tuple[Condition, ...], exclude: tuple[Partial, ...]
    ) -> None:
        """The axes' paths are sorted.

        Raises:
            TooMany: conditions or exclusions ask about too many combinations.
        """
        self._branches = list(_branches(axes, when))
        self._ends = list(accumulate(branch.size for branch in self._branches))
        self.size = self._ends[-1]
        self.count = (
            sum(_kept(branch, exclude) for branch in self._branches) if exclude else self.size
        )

    def at(self, rank: int) -> dict[str, Json]:
        """The set at a rank below `size`, which may be one that is excluded."""
        index = bisect_right(self._ends, rank)
        return self._branches[index].at(rank - (self._ends[index - 1] if index else 0))


def _branches(axes: Sequence[Axis], when: tuple[Condition, ...]) -> Iterator[Branch]:
    asked = {test.path for condition in when for test in condition.wanted.tests}
    parents = [axis for axis in axes if axis.path in asked]
    others = [axis for axis in axes if axis.path not in asked]
    conditional = {condition.path for condition in when}
    for values in _combinations(parents):
        fixed = nest(values)
        full = nest([*values, *((axis.path, None) for axis in others if axis.path in conditional)])
        kept = drop_absent(full, when)
        # A parent that is left out counts once, by its first value.
        gone = [axis for axis in parents if find(kept, axis.path) is MISSING]
        if any(key(find(fixed, axis.path)) != key(axis.at(0)) for axis in gone):
            continue
        yield Branch(
            tuple((path, value) for path, value in values if find(kept, path) is not MISSING),
            tuple(
                axis
                for axis in others
                if axis.path not in conditional or find(kept, axis.path) is not MISSING
            ),
        )


def _kept(branch: Branch, exclude: tuple[Partial, ...]) -> int:
    """How many sets of a branch are not excluded.

    The values of an axis are counted by which entries they let match, so the work is the sum of
    the axes' sizes, not their product.
    """
    fixed, axes = dict(branch.fixed), {axis.path: axis for axis in branch.free}
    open_ = [
        [test for test in partial.tests if test.path in axes]
        for partial in exclude
        if all(t.path in axes or t.takes(fixed.get(t.path, MISSING)) for t in partial.tests)
    ]
    counts = Counter({(1 << len(open_)) - 1: 1})  # bit i: entry i may match still
    for path, axis in axes.items():
        asked = [(1 << i, [t for t in tests if t.path == path]) for i, tests in enumerate(open_)]
        if not any(tests for _, tests in asked):
            counts = Counter({mask: number * axis.size for mask, number in counts.items()})
            continue
        if axis.size > MOST:
            name = ".".join(path)
            raise TooMany(f"{name} has {axis.size:,} values; at most {MOST:,} can be gone through")
        seen = Counter(
            sum(bit for bit, tests in asked if all(test.takes(value) for test in tests))
            for value in map(axis.at, range(axis.size))
        )
        both: Counter[int] = Counter()
        for (mask, number), (own, more) in product(counts.items(), seen.items()):
            both[mask & own] += number * more
        counts = both
    return counts[0]


def _combinations(axes: Sequence[Axis]) -> Iterator[list[tuple[Names, Json]]]:
    number = math.prod(axis.size for axis in axes)
    if number > MOST:
        names = ", ".join(".".join(axis.path) for axis in axes)
        raise TooMany(f"{number:,} combinations of {names}; at most {MOST:,} can be gone through")
    for indices in product(*(range(axis.size) for axis in axes)):
        yield [(axis.path, axis.at(i)) for axis, i in zip(axes, indices, strict=True)]
