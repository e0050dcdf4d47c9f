"""The search space: named distributions, and how they are read from a sweep file's parameters.

The rules are W&B's (which keys go together, what is inferred where `distribution` is left out),
but what W&B only warns about is an error here. Nested `parameters` become nested sets. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from hpq.search.distributions import Distribution
from hpq.trial import Json, Params


@dataclass(frozen=True, slots=True)
class Space:
    """Leaves in W&B's order (names sorted; the last varies fastest).

    A leaf's path has one name, or more where parameters are nested. `varying` are the names, with
    dots between those of a path, whose value can differ between sets, in the file's order.
    """

    leaves: tuple[tuple[tuple[str, ...], Distribution], ...]
    varying: tuple[str, ...]

    @classmethod
    def of(cls, leaves: Mapping[tuple[str, ...], Distribution]) -> Space:
        """A space of leaves that are given in the file's order."""
        varying = tuple(".".join(path) for path, leaf in leaves.items() if leaf.size != 1)
        return cls(tuple(sorted(leaves.items(), key=lambda leaf: leaf[0])), varying)

    @property
    def size(self) -> int | None:
        """The number of sets of the grid, counted without making it; None where there is none."""
        sizes = [leaf.size for _, leaf in self.leaves]
        return None if None in sizes else math.prod(size for size in sizes if size is not None)

    @property
    def is_even(self) -> bool:
        """True where a random set is one of the grid's, each as likely."""
        return all(leaf.is_even for _, leaf in self.leaves)

    def at(self, rank: int) -> dict[str, Json]:
        """The grid's set at a rank below `size`."""
        values: list[Json] = []
        for _, leaf in reversed(self.leaves):
            size = leaf.size
            assert size is not None
            rank, index = divmod(rank, size)
            values.append(leaf.at(index))
        return self._set(values[::-1])

    def draw(self, rng: Random) -> dict[str, Json]:
        """One random set."""
        return self._set([leaf.draw(rng) for _, leaf in self.leaves])

    def assemble(self, values: Sequence[Json]) -> dict[str, Json]:
        """The set of these values, one for each leaf in order."""
        return self._set(values)

    def value(self, params: Params, path: tuple[str, ...]) -> Json:
        """A leaf's value in a set.

        Raises:
            KeyError: the set has none.
        """
        inside: Json = dict(params)
        for name in path:
            if not isinstance(inside, dict):
                raise KeyError(name)
            inside = inside[name]
        return inside

    def _set(self, values: Sequence[Json]) -> dict[str, Json]:
        out: dict[str, Json] = {}
        for (path, _), value in zip(self.leaves, values, strict=True):
            inside = out
            for name in path[:-1]:
                deeper = inside.setdefault(name, {})
                assert isinstance(deeper, dict)
                inside = deeper
            inside[path[-1]] = value
        return out
