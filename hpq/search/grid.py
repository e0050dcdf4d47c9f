"""Count the sets of a space whose parameters have finitely many values; return each by its rank.

Only the combinations of parameters that conditions test are listed. Under each of them the other
parameters are a plain product, so a space of 10^18 sets costs nothing.
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

MOST = 200_000  # combinations that may be listed
_LONGEST = 10**24  # a number that is printed in full


class TooMany(ValueError):
    """Conditions or exclusions test more combinations than may be listed."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A leaf: its path in a set, its number of values, and the value at an index."""

    path: Names
    size: int
    at: Callable[[int], Json]


@dataclass(frozen=True, slots=True)
class Branch:
    """One combination of the parameters that conditions test, and the leaves free under it."""

    fixed: tuple[tuple[Names, Json], ...]
    free: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """Number of its sets."""
        return math.prod(axis.size for axis in self.free)

    def at(self, rank: int) -> dict[str, Json]:
        """Return the set at a rank: names sorted, the last varies fastest."""
        values = list(self.fixed)
        for axis in reversed(self.free):
            rank, index = divmod(rank, axis.size)
            values.append((axis.path, axis.at(index)))
        return nest(sorted(values, key=lambda pair: pair[0]))


class Lattice:
    """The sets that conditions allow, in order; `count` leaves out excluded sets.

    Parameters that conditions test vary slowest; else the order is W&B's.
    """

    def __init__(
        self, axes: Sequence[Axis], when: tuple[Condition, ...], exclude: tuple[Partial, ...]
    ) -> None:
        """Count the sets; the axes' paths must be sorted.

        Raises:
            TooMany: conditions or exclusions test too many combinations.
        """
        self._branches = list(_branches(axes, when))
        self._ends = list(accumulate(branch.size for branch in self._branches))
        self.size = self._ends[-1]
        self.count = (
            sum(_kept(branch, exclude) for branch in self._branches) if exclude else self.size
        )

    def at(self, rank: int) -> dict[str, Json]:
        """Return the set at a rank below `size`; it may be an excluded one."""
        index = bisect_right(self._ends, rank)
        return self._branches[index].at(rank - (self._ends[index - 1] if index else 0))


def _branches(axes: Sequence[Axis], when: tuple[Condition, ...]) -> Iterator[Branch]:
    tested = {test.path for condition in when for test in condition.wanted.tests}
    parents = [axis for axis in axes if axis.path in tested]
    others = [axis for axis in axes if axis.path not in tested]
    conditional = {condition.path for condition in when}
    for values in _combinations(parents):
        fixed = nest(values)
        full = nest([*values, *((axis.path, None) for axis in others if axis.path in conditional)])
        kept = drop_absent(full, when)
        # A parent that is left out counts once, by its first value.
        absent = [axis for axis in parents if find(kept, axis.path) is MISSING]
        if any(key(find(fixed, axis.path)) != key(axis.at(0)) for axis in absent):
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
    """Count the sets of a branch that are not excluded.

    The values of an axis are counted by the exclusions that they may match, so the work is the sum
    of the axes' sizes, not their product.
    """
    fixed, axes = dict(branch.fixed), {axis.path: axis for axis in branch.free}
    open_ = [
        [test for test in partial.tests if test.path in axes]
        for partial in exclude
        if all(t.path in axes or t.takes(fixed.get(t.path, MISSING)) for t in partial.tests)
    ]
    counts = Counter({(1 << len(open_)) - 1: 1})  # bit i: entry i may match still
    for path, axis in axes.items():
        entries = [(1 << i, [t for t in tests if t.path == path]) for i, tests in enumerate(open_)]
        if not any(tests for _, tests in entries):
            counts = Counter({mask: number * axis.size for mask, number in counts.items()})
            continue
        if axis.size > MOST:
            name = ".".join(path)
            raise TooMany(f"{name} has {axis.size:,} values; at most {MOST:,} can be checked")
        seen = Counter(
            sum(bit for bit, tests in entries if all(test.takes(value) for test in tests))
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
        raise TooMany(
            f"{in_digits(number)} combinations of {names}; at most {MOST:,} can be checked"
        )
    for indices in product(*(range(axis.size) for axis in axes)):
        yield [(axis.path, axis.at(i)) for axis, i in zip(axes, indices, strict=True)]


def in_digits(count: int) -> str:
    """Return a number for people; Python itself prints none of more than 4,300 digits."""
    return f"{count:,}" if count < _LONGEST else f"at least 10^{math.floor(math.log10(count))}"
