"""Parameters of `zip`: in each group, one leads and the others follow. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property

from hpq.domain.trial import Json, Params
from hpq.search.conditions import Partial, Test, key


@dataclass(frozen=True)
class Follower:
    """A parameter whose value follows from that of a leaf."""

    name: str
    leader: str
    leading: tuple[Json, ...]  # the leader's values, all different
    values: tuple[Json, ...]  # one for each of them

    @cached_property
    def _rows(self) -> dict[Hashable, Json]:
        return dict(zip(map(key, self.leading), self.values, strict=True))

    def value(self, params: Params) -> Json:
        """Return the value in a set that has the leader's."""
        return self._rows[key(params[self.leader])]

    def lead(self, partial: Partial) -> Partial:
        """Replace tests of this parameter by tests of the leader, which is an axis of grids."""
        return Partial(tuple(map(self._lead, partial.tests)))

    def _lead(self, test: Test) -> Test:
        if test.path != (self.name,):
            return test
        passing = [leading for leading in self.leading if test.takes(self._rows[key(leading)])]
        return Test(path=(self.leader,), values=tuple(passing))
