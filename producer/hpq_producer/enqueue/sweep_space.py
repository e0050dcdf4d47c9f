"""The space of an existing sweep, and the parameter sets that are added to it.

The space is read from the sweep's signed record, so that nothing unsigned in Redis becomes a
parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import SweepView
from hpq.domain.trial import Json, Params, flatten
from hpq.errors import UserError
from hpq.search.samplers import Search
from hpq.search.space import Space
from hpq.store.wire.search import decode_search
from hpq_producer.sweepfile import parameters
from hpq_producer.sweepfile.parameters import listed_sets
from hpq_producer.sweepfile.points import Point
from hpq_producer.sweepfile.spec import LIST

MOST = 10_000  # trials of a call: about 0.2 s of the server


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSets:
    """Checked parameter sets for a sweep; `file` is the record of the sweep file that has them.

    `redraw` draws others of those that are drawn, once the sweep has some of these.
    """

    points: tuple[Point, ...]
    varying: tuple[str, ...]
    file: str = ""
    notes: tuple[str, ...] = ()
    redraw: Callable[[], NewSets] | None = None


@dataclass(frozen=True, slots=True)
class SweepSpace:
    """The parameters that a sweep has; `search` is None if it lists its sets."""

    sweep: SweepView
    search: Search | None

    @classmethod
    def of(cls, sweep: SweepView) -> SweepSpace:
        """Read the space of a sweep.

        Raises:
            UserError: the sweep only repeats trials of another one.
        """
        if sweep.search:
            return cls(sweep, decode_search(sweep.id, sweep.search))
        if sweep.method != LIST:
            raise UserError(f"{sweep.id} confirms trials of another sweep; add trials to that one")
        return cls(sweep, None)

    @property
    def is_grid(self) -> bool:
        """Whether the sweep runs each combination of its values."""
        return self.sweep.method == "grid"

    @property
    def listed(self) -> list[Params]:
        """The sets that the sweep file lists."""
        return list(listed_sets(self.sweep.spec.get(LIST)))

    def names(self) -> list[str]:
        """Return the first names of the sweep's parameters, and nested ones with dots."""
        if self.search is None:
            return list(dict.fromkeys(name for params in self.listed for name in params))
        space = self.search.space
        paths = [*space.parameters, *((name,) for name, _ in space.derive)]
        return list(dict.fromkeys([*(path[0] for path in paths), *map(".".join, paths)]))

    def check_count(self, sets: int) -> None:
        """Refuse more sets than a call may add."""
        total = sets * self.sweep.replicates
        if total > MOST:
            text = f"{total:,} trials, more than {MOST:,}; add them in several calls"
            raise UserError(text, code="too-many-sets")

    def varying(self, points: Sequence[Point]) -> tuple[str, ...]:
        """Return the names that vary with these sets, which may change a constant."""
        varying = dict.fromkeys(self.sweep.varying)
        if self.search is None:
            listed = map(ParameterSet, self.listed)
            every = (*listed, *(point.params for point in points))
            return tuple(varying | dict.fromkeys(parameters.varying(every)))
        constants = _constants(self.search.space)
        for point in points if any(point.is_outside for point in points) else ():
            for name, value in flatten(point.params).items():
                if name in constants and constants[name] != value:
                    varying[name] = None
        return tuple(varying)


def _constants(space: Space) -> dict[str, Json]:
    return {".".join(names): leaf.at(0) for names, leaf in space.leaves if leaf.size == 1}
