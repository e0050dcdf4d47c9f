"""The search space: named distributions, conditions and exclusions. Pure.

The producer reads it from a sweep file; a suggester uses it while the sweep runs. Nested
`parameters` become nested sets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

from hpq.domain.trial import Json, Params
from hpq.search.conditions import MISSING, Condition, Names, Partial, drop_absent, find, nest
from hpq.search.continuous import QuantizedDistribution
from hpq.search.discrete import Distribution
from hpq.search.grid import Axis, Lattice, TooMany

TRIES = 10_000
_NEAR = 1e-9  # of a limit or a step: draws reach it through logarithms, or rounding, and back


class NothingLeft(ValueError):
    """All of many draws are excluded."""


@dataclass(frozen=True)
class Space:
    """Leaves in W&B's order (names sorted; the last varies fastest).

    A leaf's path has one name, or more if parameters are nested. `varying` are the names whose
    value can differ between sets, dotted if nested, in the file's order. In `when`, each condition
    follows the conditions of the names that it tests.
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
        """Create a space from leaves in the file's order."""
        conditional = {condition.path for condition in when}
        varying = tuple(
            ".".join(path) for path, leaf in leaves.items() if leaf.size != 1 or path in conditional
        )
        ordered = tuple(sorted(leaves.items(), key=lambda leaf: leaf[0]))
        return cls(ordered, varying, when, exclude)

    @property
    def size(self) -> int | None:
        """Number of sets of the grid, which are not listed; None if there is no grid."""
        return self.grid.count if self.grid else None

    @property
    def outcomes(self) -> int | None:
        """Number of different sets that can be drawn; None if they cannot be counted."""
        return self.drawn.count if self.drawn else None

    @property
    def is_even(self) -> bool:
        """True if a random set is one of the grid's, all equally likely."""
        return not self.when and all(leaf.is_even for _, leaf in self.leaves)

    @cached_property
    def grid(self) -> Lattice | None:
        """The sets of the grid; None if a parameter has no finite list (TooMany: see Lattice)."""
        axes = [Axis(path, leaf.size, leaf.at) for path, leaf in self.leaves if leaf.size]
        return Lattice(axes, self.when, self.exclude) if len(axes) == len(self.leaves) else None

    @cached_property
    def drawn(self) -> Lattice | None:
        """The sets that can be drawn; None if they are not finite, or too many to count."""
        counted = [(path, leaf, leaf.outcomes) for path, leaf in self.leaves]
        axes = [Axis(path, size, leaf.outcome) for path, leaf, size in counted if size]
        if len(axes) < len(self.leaves):
            return None
        try:
            return Lattice(axes, self.when, self.exclude)
        except TooMany:
            return None

    def allows(self, params: Mapping[str, Json]) -> bool:
        """False for an excluded set."""
        return not any(partial.matches(params) for partial in self.exclude)

    def settle(self, params: dict[str, Json]) -> dict[str, Json]:
        """Remove the parameters whose conditions do not hold; return the set."""
        return drop_absent(params, self.when)

    def draw(self, rng: Random) -> dict[str, Json]:
        """Draw a random set that is not excluded.

        Raises:
            NothingLeft: 10,000 draws in a row are excluded.
        """
        for _ in range(TRIES):
            params = self.settle(nest([(path, leaf.draw(rng)) for path, leaf in self.leaves]))
            if self.allows(params):
                return params
        raise NothingLeft(f"`exclude` excludes {TRIES:,} draws in a row")

    def assemble(self, values: Sequence[Json]) -> dict[str, Json]:
        """Return the set of these values, one for each leaf; conditions may remove some."""
        paths = [path for path, _ in self.leaves]
        return self.settle(nest(list(zip(paths, values, strict=True))))

    def contains(self, params: Params) -> bool:
        """True if each parameter of the space has an allowed value, and the set has no others."""
        for condition in self.when:
            is_absent = find(params, condition.path) is MISSING
            if is_absent == condition.wanted.matches(params):
                return False
        found: list[tuple[Names, Json]] = []
        conditional = {condition.path for condition in self.when}
        for path, leaf in self.leaves:
            value: Any = find(params, path)
            if value is not MISSING:
                found.append((path, value))
            if not (path in conditional if value is MISSING else _allows(leaf, value)):
                return False
        return self.allows(params) and nest(found) == dict(params)


def _allows(leaf: Distribution, value: Json) -> bool:
    if not isinstance(leaf, QuantizedDistribution):
        return leaf.has(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if leaf.has(value):
        return True
    ends = leaf.reach() if leaf.q is None else ()
    return any(math.isclose(end, value, rel_tol=_NEAR, abs_tol=1e-12) for end in ends)
