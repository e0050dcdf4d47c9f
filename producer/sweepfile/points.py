"""A sweep file's `points`: sets that run before all others, checked against the space.

Imported by load. A point gives every parameter that exists in it, but for those that have one
value only.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpq.identity import identity
from hpq.search.conditions import MISSING, Names, find, nest
from hpq.search.space import Space
from hpq.trial import Json
from producer.sweepfile.conditions import can_be, leaf_of
from producer.sweepfile.problems import Path, Problems, dotted, shown
from producer.sweepfile.values import nearest

Points = tuple[dict[str, Json], ...]


def read(data: Json, space: Space, is_grid: bool, out: Problems) -> Points:
    """The different points of a list; what is wrong is noted and left out."""
    if not isinstance(data, list) or not data:
        out.add(("points",), f"{shown(data)} is not a list; write - {{lr: 0.1, momentum: 0.9}}")
        return ()
    found: dict[bytes, dict[str, Json]] = {}
    for index, item in enumerate(data):
        here: Path = ("points", index)
        if not isinstance(item, dict):
            out.add(here, f"{shown(item)} is not a set; write {{lr: 0.1, momentum: 0.9}}")
            continue
        point = _point(item, here, space, is_grid, out)
        if point is None:
            continue
        if identity(point) in found:
            out.warn(here, "the same point again; run once", code="duplicate-set")
        found.setdefault(identity(point), point)
    return tuple(found.values())


def _point(
    item: dict[str, Json], path: Path, space: Space, is_grid: bool, out: Problems
) -> dict[str, Json] | None:
    leaves = dict(space.leaves)
    before = len(out.errors)
    given = dict(_spread(item, (), path, space, out))
    for names, value in given.items():
        if not can_be(leaves[names], value, is_grid):
            out.add((*path, *names), f"{shown(value)} is outside the space", code="outside-space")
    if len(out.errors) > before:
        return None
    single = {names: leaf.at(0) for names, leaf in leaves.items() if leaf.size == 1}
    full = {names: given.get(names, single.get(names)) for names in leaves}
    point = space.settle(nest(list(full.items())))
    for names in leaves:
        is_there = find(point, names) is not MISSING
        if is_there and names not in given and names not in single:
            out.add(
                path, f"lacks {dotted(names)}; a point is a whole set", code="missing-parameter"
            )
        elif names in given and not is_there:
            out.add(
                (*path, *names),
                "does not exist in this set (see when); remove it",
                code="condition-unmet",
            )
    if len(out.errors) == before and not space.allows(point):
        out.add(path, "is excluded (see exclude); remove one of the two", code="condition-unmet")
    return point if len(out.errors) == before else None


def _spread(
    item: dict[str, Json], above: Names, path: Path, space: Space, out: Problems
) -> Iterator[tuple[Names, Json]]:
    """The leaves that a point gives: nested, or by names with dots."""
    leaves = dict(space.leaves)
    for name, value in item.items():
        names = (*above, name)
        whole = None if above else leaf_of(name, leaves)
        if names in leaves or whole is not None:
            yield (names if names in leaves else whole or names), value
        elif isinstance(value, dict) and any(leaf[: len(names)] == names for leaf in leaves):
            yield from _spread(value, names, path, space, out)
        else:
            known = tuple(map(dotted, leaves))
            hint = nearest(dotted(names), known) or f"; there are {', '.join(known)}"
            out.add((*path, *names), f"no parameter of that name{hint}", code="unknown-parameter")
