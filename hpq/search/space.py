"""The search space: distributions, conditions, exclusions, zipped and derived parameters. Pure.

The producer reads it from a sweep file; a suggester uses it while the sweep runs. Nested
`parameters` become nested sets.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

from hpq.domain.expression import Expression
from hpq.domain.trial import Json, Params, flatten
from hpq.search.conditions import (
    MISSING,
    Condition,
    Names,
    Partial,
    Test,
    drop_absent,
    find,
    key,
    nest,
)
from hpq.search.distributions import Categorical, Distribution, QuantizedDistribution
from hpq.search.grid import MOST, Axis, Lattice, TooMany, in_digits

TRIES = 10_000
_NEAR = 1e-9  # of a limit or a step: draws reach it through logarithms, or rounding, and back


class NothingLeft(ValueError):
    """All of many draws are rejected."""


class Rejected(Exception):
    """A set does not run: `exclude` matches it, or an expression rejects it.

    `place` is the entry's path in the file. `reason` says why an expression has no value; "" if it
    has one.
    """

    def __init__(self, *place: str | int, reason: str = "") -> None:
        super().__init__(*place)
        self.place = place
        self.reason = reason


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
        """Return the value in a set that has the leader's.

        Raises:
            Rejected: no value goes with the leader's.
        """
        try:
            return self._rows[key(params[self.leader])]
        except KeyError:
            needs = f"no {self.name} goes with {self.leader}={params[self.leader]}"
            raise Rejected("zip", reason=needs) from None

    def lead(self, partial: Partial) -> Partial:
        """Replace tests of this parameter by tests of the leader, which is an axis of grids."""
        return Partial(tuple(map(self._lead, partial.tests)))

    def _lead(self, test: Test) -> Test:
        if test.path != (self.name,):
            return test
        passing = [leading for leading in self.leading if test.takes(self._rows[key(leading)])]
        return Test(path=(self.leader,), values=tuple(passing))


@dataclass(frozen=True)
class Space:
    """Leaves in W&B's order (names sorted; the last varies fastest).

    A leaf's path has one name, or more if parameters are nested. `varying` are the names whose
    value can differ between sets, dotted if nested, in the file's order. In `when`, each condition
    follows the conditions of the names that it tests; in `derive`, each name those that it needs.
    Of each group of `zip`, one parameter is a leaf; the others are in `followers`. Sets have the
    `order` of the file, derived parameters last.
    """

    leaves: tuple[tuple[Names, Distribution], ...]
    varying: tuple[str, ...]
    when: tuple[Condition, ...] = ()
    exclude: tuple[Partial, ...] = ()
    derive: tuple[tuple[str, Expression], ...] = ()
    require: tuple[Expression, ...] = ()
    followers: tuple[Follower, ...] = ()
    order: tuple[Names, ...] = ()

    @classmethod
    def of(
        cls,
        leaves: Mapping[Names, Distribution],
        when: tuple[Condition, ...] = (),
        exclude: tuple[Partial, ...] = (),
        derive: tuple[tuple[str, Expression], ...] = (),
        require: tuple[Expression, ...] = (),
        followers: tuple[Follower, ...] = (),
    ) -> Space:
        """Create a space from leaves in the file's order, with those of followers."""
        conditional = {condition.path for condition in when}
        varying = [
            ".".join(path) for path, leaf in leaves.items() if leaf.size != 1 or path in conditional
        ]
        for name, expression in derive:
            if any(needed.text in varying for needed in expression.names):
                varying.append(name)
        for one in followers:
            when = tuple(Condition(c.path, one.lead(c.wanted)) for c in when)
            exclude = tuple(map(one.lead, exclude))
        own = leaves.keys() - {(one.name,) for one in followers}
        ordered = tuple((path, leaves[path]) for path in sorted(own))
        order = (*leaves, *((name,) for name, _ in derive))
        return cls(ordered, tuple(varying), when, exclude, derive, require, followers, order)

    @property
    def parameters(self) -> dict[Names, Distribution]:
        """The leaves and the followers."""
        return dict(self.leaves) | {(one.name,): Categorical(one.values) for one in self.followers}

    @cached_property
    def size(self) -> int | None:
        """Number of sets of the grid, which are listed for expressions only; None without a grid.

        Raises:
            TooMany: see Lattice; or expressions would be computed for too many sets.
        """
        return self._count(self.grid) if self.grid else None

    @cached_property
    def outcomes(self) -> int | None:
        """Number of different sets that can be drawn; None if they cannot be counted."""
        try:
            return self._count(self.drawn) if self.drawn else None
        except TooMany:
            return None

    def _count(self, lattice: Lattice) -> int:
        if not self.has_expressions:
            return lattice.count
        if lattice.size > MOST:
            raise TooMany(
                f"{in_digits(lattice.size)} combinations to compute; at most {MOST:,} can be"
            )
        return sum(self.complete(lattice.at(rank)) is not None for rank in range(lattice.size))

    @property
    def has_expressions(self) -> bool:
        """True if each set is computed before it is known whether it runs."""
        return bool(self.derive or self.require)

    @property
    def is_even(self) -> bool:
        """True if a random set is one of the grid's, all equally likely, and few are rejected."""
        if self.when or not all(leaf.is_even for _, leaf in self.leaves):
            return False
        return not self.has_expressions or math.prod(n.size or 1 for _, n in self.leaves) <= MOST

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

    def check(self, params: Mapping[str, Json]) -> dict[str, Json]:
        """Return a set with its followers and derived parameters, in the order of the file.

        An expression that lacks an absent parameter gives an absent one, or requires nothing.

        Raises:
            Rejected: the set does not run.
        """
        if any(partial.matches(params) for partial in self.exclude):
            raise Rejected("exclude")
        out = self.fill(params)
        values = flatten(out) if self.require else {}
        for place, expression in enumerate(self.require):
            if _compute(expression, values, "require", place) is False:
                raise Rejected("require", place)
        return out

    def fill(self, params: Mapping[str, Json], *, is_zipped: bool = True) -> dict[str, Json]:
        """Return a set as `check` does, also one that `exclude` or `require` rejects.

        Without `is_zipped`, the parameters of `zip` keep the values that the set has.

        Raises:
            Rejected: a parameter of `zip` or `derive` has no value.
        """
        out = dict(params)
        for one in self.followers if is_zipped else ():
            wanted = one.value(params)
            if out.setdefault(one.name, wanted) != wanted:
                needs = f"{one.leader}={out[one.leader]} needs {one.name}={wanted}"
                raise Rejected("zip", reason=needs)
        values = flatten(out) if self.derive else {}
        for name, expression in self.derive:
            value = _compute(expression, values, "derive", name)
            if value is not None:
                out[name] = values[name] = value
        found: list[tuple[Names, Any]] = [(path, find(out, path)) for path in self.order]
        ordered = nest([(path, value) for path, value in found if value is not MISSING])
        return ordered | {name: value for name, value in out.items() if name not in ordered}

    def complete(self, params: Mapping[str, Json]) -> dict[str, Json] | None:
        """Return a set with its derived parameters; None if it does not run."""
        try:
            return self.check(params)
        except Rejected:
            return None

    def without_inactive(self, params: dict[str, Json]) -> dict[str, Json]:
        """Remove the parameters whose conditions do not hold; return the set."""
        return drop_absent(params, self.when)

    def draw(self, rng: Random) -> dict[str, Json]:
        """Draw a random set that runs.

        Raises:
            NothingLeft: 10,000 draws in a row are rejected.
        """
        for _ in range(TRIES):
            params = self.assemble([leaf.draw(rng) for _, leaf in self.leaves])
            if params is not None:
                return params
        raise NothingLeft(f"{TRIES:,} draws in a row are rejected")

    def assemble(self, values: Sequence[Json]) -> dict[str, Json] | None:
        """Return the set of these values, one for each leaf; None if it does not run.

        Conditions may remove some; followers and derived ones are added.
        """
        paths = [path for path, _ in self.leaves]
        return self.complete(self.without_inactive(nest(list(zip(paths, values, strict=True)))))

    def contains(self, params: Params, *, is_grid: bool = False) -> bool:
        """True if each parameter of the space has an allowed value, and the set has no others.

        These are the values that draws can have, or those of the grid.
        """
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
            is_allowed = path in conditional if value is MISSING else allows(leaf, value, is_grid)
            if not is_allowed:
                return False
        return self.complete(nest(found)) == dict(params)


def _compute(expression: Expression, values: Params, *place: str | int) -> Any:
    """Compute an expression, None if parameters are absent; reject the set if it has no value."""
    found = expression.of(values.get)
    if found is not None:
        return found
    names = dict.fromkeys(one.text for one in expression.names if not one.may_be_text)
    if not all(name in values for name in names):
        return None
    has_null = any(values[name] is None for name in names)
    some = ", ".join(f"{name}={'null' if (v := values[name]) is None else v}" for name in names)
    why = "null is a missing value" if has_null else "a division by zero, or a number above 2^53"
    reason = f"no value with {some} ({why})"
    raise Rejected(*place, reason=reason)


def allows(leaf: Distribution, value: Json, is_grid: bool = False) -> bool:
    """True for a value that a draw, or else the grid, can have, but for a rounding error."""
    if not isinstance(leaf, QuantizedDistribution):
        return leaf.has(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if is_grid and leaf.q is not None and leaf.size is not None:
        low, high = leaf.reach()
        if not low - leaf.q <= value <= high:
            return False
        place = round((value - low) / leaf.q)  # a grid steps from the lower limit
        return 0 <= place < leaf.size and _is_near(leaf.at(place), value)
    if leaf.has(value):
        return True
    ends = leaf.reach() if leaf.q is None else ()
    return any(_is_near(end, value) for end in ends)


def _is_near(one: Json, other: float) -> bool:
    return isinstance(one, int | float) and math.isclose(one, other, rel_tol=_NEAR, abs_tol=1e-12)
