"""The search space: named distributions, what exists under which condition, what is excluded. Pure.

Both sides import it: the producer, which reads it from a sweep file, and a worker that makes sets
while a sweep runs. Nested `parameters` become nested sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

from hpq.domain.trial import Json
from hpq.search.conditions import Condition, Names, Partial, drop_absent, nest
from hpq.search.discrete import Distribution
from hpq.search.grid import Axis, Lattice, TooMany

TRIES = 10_000


class NothingLeft(ValueError):
    """Draw after draw is excluded."""


@dataclass(frozen=True)
class Space:
    """Leaves in W&B's order (names sorted; the last varies fastest).

    A leaf's path has one name, or more where parameters are nested. `varying` are the names, with
    dots between those of a path, whose value can differ between sets, in the file's order. `when`
    is in an order in which each condition comes after those of the names that it asks about.
    """

    leaves: tuple[tuple[Names, Distribution], ...]
    varying: tuple[str, ...]
    when: tuple[Condition, ...] = ()
    exclude: tuple[Partial, ...] = ()

    @classmethod
    def of(
        cls,
        leaves: Mapping[Names, Distribution],
        when: tuple[Condition, ...] = (),
        exclude: tuple[Partial, ...] = (),
    ) -> Space:
        """A space of leaves that are given in the file's order."""
        conditional = {condition.path for condition in when}
        varying = tuple(
            ".".join(path) for path, leaf in leaves.items() if leaf.size != 1 or path in conditional
        )
        ordered = tuple(sorted(leaves.items(), key=lambda leaf: leaf[0]))
        return cls(ordered, varying, when, exclude)

    @property
    def size(self) -> int | None:
        """The number of sets of the grid, counted without making it; None where there is none."""
        return self.grid.count if self.grid else None

    @property
    def outcomes(self) -> int | None:
        """The number of different sets that draws take; None where they cannot be counted."""
        return self.drawn.count if self.drawn else None

    @property
    def is_even(self) -> bool:
        """True where a random set is one of the grid's, each as likely."""
        return not self.when and all(leaf.is_even for _, leaf in self.leaves)

    @cached_property
    def grid(self) -> Lattice | None:
        """What a grid steps through; None where it cannot (TooMany: see there)."""
        axes = [Axis(path, leaf.size, leaf.at) for path, leaf in self.leaves if leaf.size]
        return Lattice(axes, self.when, self.exclude) if len(axes) == len(self.leaves) else None

    @cached_property
    def drawn(self) -> Lattice | None:
        """What draws can come to; None where that has no number, or takes too long to count."""
        counted = [(path, leaf, leaf.outcomes) for path, leaf in self.leaves]
        axes = [Axis(path, size, leaf.outcome) for path, leaf, size in counted if size]
        if len(axes) < len(self.leaves):
            return None
        try:
            return Lattice(axes, self.when, self.exclude)
        except TooMany:
            return None

    def allows(self, params: Mapping[str, Json]) -> bool:
        """False for a set that is excluded."""
        return not any(partial.matches(params) for partial in self.exclude)

    def settle(self, params: dict[str, Json]) -> dict[str, Json]:
        """The set without the parameters that do not exist in it."""
        return drop_absent(params, self.when)

    def draw(self, rng: Random) -> dict[str, Json]:
        """One random set, none that is excluded.

        Raises:
            NothingLeft: 10,000 draws in a row are excluded.
        """
        for _ in range(TRIES):
            params = self.settle(nest([(path, leaf.draw(rng)) for path, leaf in self.leaves]))
            if self.allows(params):
                return params
        raise NothingLeft("all that was drawn is excluded")

    def assemble(self, values: Sequence[Json]) -> dict[str, Json]:
        """The set of these values, one for each leaf in order, without those that do not exist."""
        paths = [path for path, _ in self.leaves]
        return self.settle(nest(list(zip(paths, values, strict=True))))
