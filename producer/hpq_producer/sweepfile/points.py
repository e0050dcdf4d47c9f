"""Read parameter sets of a space: the `points` of a sweep file, and what `hpq add` adds.

A set has a value for every parameter that can vary; constants and derived parameters are completed.
Nested names may be joined with dots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import NamedTuple

from hpq.domain.identity import ParameterSet
from hpq.domain.trial import Json, Params
from hpq.errors import BadParams
from hpq.search.conditions import MISSING, Names, find, nest
from hpq.search.distributions import Distribution
from hpq.search.space import Rejected, Space, allows
from hpq.yamlfile.problems import KeyPath, Problems, dotted, shown
from hpq_producer.sweepfile.conditions import add_unknown, leaf_of
from hpq_producer.sweepfile.parameters import check_value

_MOST_SHOWN = 10  # values of a parameter
_FORM = "{lr: 0.1, momentum: 0.9}"


class Point(NamedTuple):
    """A parameter set, and whether it is outside the space."""

    params: ParameterSet
    is_outside: bool = False


class PointRules(NamedTuple):
    """The space that points are checked against; `may_be_outside` allows others of the same types.

    Such a point may also match `exclude`, or break `require` or `zip`. `parent` has the values that
    a point does not write, of the trial at whose checkpoint it begins; they may be outside the
    space. `remedy` ends the message about a value outside the space.
    """

    space: Space
    is_grid: bool
    may_be_outside: bool = False
    parent: Params | None = None
    remedy: str = ""


def read_points(
    data: Json, rules: PointRules, out: Problems, path: KeyPath = ("points",)
) -> tuple[Point, ...]:
    """Read the distinct points of a list at a path; report and skip errors."""
    if not isinstance(data, list) or not data:
        out.add(path, f"{shown(data)} is not a list; write - {_FORM}")
        return ()
    found: dict[bytes, Point] = {}
    for index, item in enumerate(data):
        point = read_point(item, (*path, index), rules, out)
        if point is None:
            continue
        if found.setdefault(point.params.identity, point) is not point:
            out.warn((*path, index), "duplicate trial; hpq runs it once", code="duplicate-set")
    return tuple(found.values())


def read_point(item: Json, path: KeyPath, rules: PointRules, out: Problems) -> Point | None:
    """Read one point; report errors and return None if there are any."""
    if not isinstance(item, dict):
        out.add(path, f"{shown(item)} is not a mapping; write {_FORM}")
        return None
    space = rules.space
    leaves = space.parameters
    before = len(out.errors)
    values = dict(_flatten(item, (), path, space, out))
    for names, value in values.items():
        check_value(value, (*path, *names), out)
    if len(out.errors) > before:
        return None
    outside = _outside(values, rules)
    for names in outside:
        _check_outside(leaves[names], values[names], (*path, *names), rules, out)
    inherited = _inherited(rules, values)
    is_outside = bool(outside or _outside(inherited, rules))
    if len(out.errors) > before:
        return None
    point = _with_constants(values, inherited, path, space, out)
    if len(out.errors) > before:
        return None
    try:
        return _complete(point, is_outside, rules)
    except Rejected as error:
        why = f" ({error.reason})" if error.reason else ""
        verb = "matches" if error.place == ("exclude",) else "rejects"
        text = f"{dotted(error.place)} {verb} this trial{why}; remove one of the two"
        out.add(path, text, code="condition-unmet")
    except BadParams as error:
        out.add(path, str(error), code="set-too-large")
    return None


def _outside(values: Mapping[Names, Json], rules: PointRules) -> list[Names]:
    """Return the names of the values that the space cannot have."""
    leaves = rules.space.parameters
    return [n for n, value in values.items() if not allows(leaves[n], value, rules.is_grid)]


def _inherited(rules: PointRules, values: Mapping[Names, Json]) -> dict[Names, Json]:
    """Return the parent's values of the leaves that a point does not write."""
    inherited: dict[Names, Json] = {}
    for names in rules.space.parameters if rules.parent else ():
        value = find(rules.parent or {}, names)
        if names not in values and value is not MISSING:
            inherited[names] = value  # type: ignore[assignment]
    return inherited


def _with_constants(
    values: dict[Names, Json],
    inherited: dict[Names, Json],
    path: KeyPath,
    space: Space,
    out: Problems,
) -> dict[str, Json]:
    """Return a point with its constants, nested; report what it lacks, or has too much."""
    leaves = space.parameters
    constants = {names: leaf.at(0) for names, leaf in leaves.items() if leaf.size == 1} | inherited
    full = {names: values.get(names, constants.get(names)) for names in leaves}
    point = space.without_inactive(nest(list(full.items())))
    for names in leaves:
        exists = find(point, names) is not MISSING
        if exists and names not in values and names not in constants:
            out.add(
                path,
                f"lacks {dotted(names)}; a trial needs a value for every parameter",
                code="missing-parameter",
            )
        elif names in values and not exists:
            out.add(
                (*path, *names),
                "does not exist in this trial (see when); remove it",
                code="condition-unmet",
            )
    return point


def _complete(point: dict[str, Json], is_outside: bool, rules: PointRules) -> Point:
    """Return a point with its zipped and derived parameters.

    Raises:
        Rejected: the point does not run.
        BadParams: it is too large.
    """
    try:
        params = ParameterSet(rules.space.check(point))
    except Rejected as error:
        if not rules.may_be_outside or error.place[0] not in ("exclude", "require", "zip"):
            raise
        params = ParameterSet(rules.space.fill(point, is_zipped=False))
        is_outside = True
    params.identity  # noqa: B018 - reports a set that is too large
    return Point(params, is_outside)


def _check_outside(
    leaf: Distribution, value: Json, path: KeyPath, rules: PointRules, out: Problems
) -> None:
    """Report a value outside the space, unless such values of its type are allowed."""
    types = {_type_of(known) for _, known in leaf.known()} | {_type_of(leaf.draw(Random(0)))}
    if _type_of(value) not in types:
        wanted = " or ".join(sorted(types))
        out.add(path, f"{shown(value)} is not {wanted}", code="outside-space")
    elif not rules.may_be_outside:
        text = f"{shown(value)} is outside the space{_has(leaf)}{rules.remedy}"
        out.add(path, text, code="outside-space")


def _has(leaf: Distribution) -> str:
    """Return the limits or the values of a parameter; "" if it has neither, or many."""
    known = {path[-1]: shown(value) for path, value in leaf.known()}
    if known.keys() == {"min", "max"}:
        return f", which has {known['min']} to {known['max']}"
    return f", which has {', '.join(known.values())}" if 0 < len(known) <= _MOST_SHOWN else ""


def _type_of(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a text"
    return "a mapping" if isinstance(value, dict) else "a list"


def _flatten(
    item: dict[str, Json], parents: Names, path: KeyPath, space: Space, out: Problems
) -> Iterator[tuple[Names, Json]]:
    """Yield the leaves and values of a point, written nested or as names with dots."""
    leaves = space.parameters
    for name, value in item.items():
        names = (*parents, name)
        leaf_names = names if names in leaves else None if parents else leaf_of(name, leaves)
        if leaf_names is not None:
            yield leaf_names, value
        elif isinstance(value, dict) and any(leaf[: len(names)] == names for leaf in leaves):
            yield from _flatten(value, names, path, space, out)
        elif not parents and name in dict(space.derive):
            out.add_conflict((*path, name), "is computed (see derive); remove it")
        else:
            add_unknown((*path, *names), dotted(names), leaves, out)
