"""A sweep file's `when`, `exclude` and `points`, checked against the space.

`when` says which parameters exist in a set, `exclude` which sets are not run. Both are made of
partial sets: `{optimizer: sgd}`, `{optimizer: [sgd, adam]}` (any of), `{layers: {min: 3}}`. Every
name and value is looked up in the space; what can never match is an error. `points` are sets that
run before all others: each gives every parameter that exists in it and has more than one value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hpq.domain.identity import ParameterSet
from hpq.domain.trial import Json
from hpq.search.conditions import MISSING, Condition, Names, Partial, Test, find, key, nest
from hpq.search.discrete import Distribution
from hpq.search.space import Space
from hpq_producer.sweepfile import schema
from hpq_producer.sweepfile.errors import KeyPath, Problems, dotted, shown
from hpq_producer.sweepfile.values import nearest

Leaves = Mapping[Names, Distribution]
_FORM = "write {optimizer: sgd}, {optimizer: [sgd, adam]} or {layers: {min: 3}}"
_MOST = 10_000  # values of a parameter that are looked through


def read_when(data: Json, leaves: Leaves, is_grid: bool, out: Problems) -> tuple[Condition, ...]:
    """The conditions of `when`, each after those of the names that it asks about."""
    if not isinstance(data, dict) or not data:
        what = "is not a mapping; write momentum: {optimizer: sgd}"
        out.add(("when",), f"{shown(data)} {what}")
        return ()
    found: dict[Names, list[Condition]] = {}
    before = len(out.errors)
    for name, wanted in data.items():
        here: KeyPath = ("when", name)
        below = _below(name, leaves)
        if not below:
            out.add(
                here, f"no parameter of that name{_close(name, leaves)}", code="unknown-parameter"
            )
        partial = _partial(wanted, here, leaves, is_grid, out)
        for path in below if partial else ():
            assert partial is not None
            found.setdefault(path, []).append(Condition(path, partial))
    return _in_order(found, out) if len(out.errors) == before else ()


def read_exclude(data: Json, leaves: Leaves, is_grid: bool, out: Problems) -> tuple[Partial, ...]:
    """The partial sets of `exclude`."""
    if not isinstance(data, list) or not data:
        out.add(("exclude",), f"{shown(data)} is not a list; {_FORM}, one an item")
        return ()
    read = [
        _partial(item, ("exclude", index), leaves, is_grid, out) for index, item in enumerate(data)
    ]
    return tuple(partial for partial in read if partial is not None)


def can_be(leaf: Distribution, value: Json, is_grid: bool) -> bool:
    """True for a value that a grid (or a draw) can come to."""
    if not is_grid or leaf.size is None or leaf.size > _MOST:
        return leaf.has(value)
    return any(key(leaf.at(index)) == key(value) for index in range(leaf.size))


def leaf_of(name: str, leaves: Leaves) -> Names | None:
    """The leaf of a name, with dots where it is nested."""
    return (name,) if (name,) in leaves else next((p for p in leaves if ".".join(p) == name), None)


def _below(name: str, leaves: Leaves) -> list[Names]:
    """The leaf of a name, or those of a nested parameter."""
    leaf = leaf_of(name, leaves)
    if leaf is not None:
        return [leaf]
    return [p for p in leaves if any(".".join(p[:n]) == name for n in range(1, len(p)))]


def _close(name: Json, leaves: Leaves) -> str:
    known = tuple(".".join(path) for path in leaves)
    return nearest(name, known) or f"; there are {', '.join(known)}"


def _partial(
    data: Json, path: KeyPath, leaves: Leaves, is_grid: bool, out: Problems
) -> Partial | None:
    if not isinstance(data, dict) or not data:
        out.add(path, f"{shown(data)} is not a partial set; {_FORM}")
        return None
    tests = []
    for name, value in data.items():
        leaf = leaf_of(name, leaves)
        if leaf is None:
            out.add(
                (*path, name),
                f"no parameter of that name{_close(name, leaves)}",
                code="unknown-parameter",
            )
            continue
        test = _test(value, leaf, (*path, name), out)
        if test is not None and _can_hold(test, leaves[leaf], (*path, name), is_grid, out):
            tests.append(test)
    return Partial(tuple(tests)) if len(tests) == len(data) else None


def _test(value: Json, leaf: Names, path: KeyPath, out: Problems) -> Test | None:
    if not isinstance(value, dict):
        values = tuple(value) if isinstance(value, list) else (value,)
        if values:
            return Test(path=leaf, values=values)
        out.add(path, "an empty list; name at least one value")
        return None
    before = len(out.errors)
    schema.check(value, schema.RANGE, path, out)
    ends = {k: float(v) for k, v in value.items() if isinstance(v, int | float)}
    if not value:
        out.add(path, f"{{}} asks nothing; {_FORM}")
    if len(out.errors) > before:
        return None
    return Test(path=leaf, low=ends.get("min"), high=ends.get("max"))


def _can_hold(test: Test, leaf: Distribution, path: KeyPath, is_grid: bool, out: Problems) -> bool:
    """True where the parameter can pass the test; each of its values has to be one it can take."""
    before = len(out.errors)
    if getattr(leaf, "q", 0) is None and test.values:
        out.add(path, "a continuous parameter hardly ever has one value; write {min: …, max: …}")
        return False
    for value in test.values:
        if not can_be(leaf, value, is_grid):
            out.add(
                path,
                f"{shown(value)} is not a value of {'.'.join(test.path)}{_listed(leaf)}",
                code="outside-space",
            )
    count, at = (leaf.size, leaf.at) if is_grid else (leaf.outcomes, leaf.outcome)
    is_looked_through = not test.values and count is not None and count <= _MOST
    if is_looked_through and not any(test.takes(at(index)) for index in range(count or 0)):
        out.add(
            path,
            f"{'.'.join(test.path)} has no value in that range{_listed(leaf)}",
            code="outside-space",
        )
    return len(out.errors) == before


def _listed(leaf: Distribution) -> str:
    some = leaf.outcomes
    if some is None or some > 10:
        return ""
    return f"; it has {', '.join(shown(leaf.outcome(index)) for index in range(some))}"


def _in_order(found: Mapping[Names, list[Condition]], out: Problems) -> tuple[Condition, ...]:
    """The conditions sorted so that what each asks about is settled before; a cycle is an error."""
    ordered: list[Condition] = []
    done: set[Names] = set()

    def visit(path: Names, above: tuple[Names, ...]) -> bool:
        if path in above:
            names = [".".join(p) for p in (*above[above.index(path) :], path)]
            out.add(
                ("when", names[0]),
                f"goes in a circle: {' → '.join(names)}; remove one",
                code="circular-condition",
            )
            return False
        if path in done or path not in found:
            return True
        for condition in found[path]:
            for test in condition.wanted.tests:
                if not visit(test.path, (*above, path)):
                    return False
        done.add(path)
        ordered.extend(found[path])
        return True

    return tuple(ordered) if all(visit(path, ()) for path in found) else ()


Points = tuple[ParameterSet, ...]


def read(data: Json, space: Space, is_grid: bool, out: Problems) -> Points:
    """The different points of a list; what is wrong is noted and left out."""
    if not isinstance(data, list) or not data:
        out.add(("points",), f"{shown(data)} is not a list; write - {{lr: 0.1, momentum: 0.9}}")
        return ()
    found: dict[bytes, ParameterSet] = {}
    for index, item in enumerate(data):
        here: KeyPath = ("points", index)
        if not isinstance(item, dict):
            out.add(here, f"{shown(item)} is not a set; write {{lr: 0.1, momentum: 0.9}}")
            continue
        point = _point(item, here, space, is_grid, out)
        if point is None:
            continue
        if found.setdefault(point.identity, point) is not point:
            out.warn(here, "the same point again; run once", code="duplicate-set")
    return tuple(found.values())


def _point(
    item: dict[str, Json], path: KeyPath, space: Space, is_grid: bool, out: Problems
) -> ParameterSet | None:
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
    return ParameterSet(point) if len(out.errors) == before else None


def _spread(
    item: dict[str, Json], above: Names, path: KeyPath, space: Space, out: Problems
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
