"""Conditions on sets of parameters: `when` and `exclude` of a sweep file. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass

from hpq.domain.identity import canonical
from hpq.domain.trial import Json

Names = tuple[str, ...]  # path of a leaf in a set: one name, or more if it is nested
MISSING = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """A parameter exists and has one of some values, or is a number from low to high."""

    path: Names
    values: tuple[Json, ...] = ()
    low: float | None = None
    high: float | None = None

    def holds(self, params: Mapping[str, Json]) -> bool:
        """True if the set passes."""
        return self.takes(find(params, self.path))

    def takes(self, value: object) -> bool:
        """True if the value passes."""
        if value is MISSING:
            return False
        if self.low is None and self.high is None:
            return key(value) in map(key, self.values)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


@dataclass(frozen=True, slots=True)
class Partial:
    """Tests that must all hold."""

    tests: tuple[Test, ...]

    def matches(self, params: Mapping[str, Json]) -> bool:
        """True if all of them hold."""
        return all(test.holds(params) for test in self.tests)


@dataclass(frozen=True, slots=True)
class Condition:
    """A leaf exists only in sets that match."""

    path: Names
    wanted: Partial


def key(value: object) -> Hashable:
    """Return a key that only equal values share: 3.0 equals 3, but true is not 1."""
    if isinstance(value, list | dict):
        return canonical({"": value})
    return isinstance(value, bool), value


def find(params: Mapping[str, Json], path: Names) -> object:
    """Return the value at a path of a set, or MISSING."""
    inside: object = params
    for name in path:
        if not isinstance(inside, dict) or name not in inside:
            return MISSING
        inside = inside[name]
    return inside


def nest(pairs: Iterator[tuple[Names, Json]] | list[tuple[Names, Json]]) -> dict[str, Json]:
    """Return a set of these values by path, in this order."""
    out: dict[str, Json] = {}
    for path, value in pairs:
        inside = out
        for name in path[:-1]:
            deeper = inside.setdefault(name, {})
            assert isinstance(deeper, dict)
            inside = deeper
        inside[path[-1]] = value
    return out


def drop_absent(params: dict[str, Json], when: tuple[Condition, ...]) -> dict[str, Json]:
    """Remove the parameters whose conditions do not hold, and nested mappings that become empty.

    Each condition must follow the conditions of the names that it tests.
    """
    for condition in when:
        if not condition.wanted.matches(params):
            _drop(params, condition.path)
    return params


def _drop(params: dict[str, Json], path: Names) -> None:
    inside = params.get(path[0])
    if len(path) > 1 and isinstance(inside, dict):
        _drop(inside, path[1:])
        if inside:
            return
    params.pop(path[0], None)
