"""Read a sweep file's `when`, `exclude` and `points`, and check them against the space.

`when` lists conditions under which parameters exist, `exclude` parameter sets that do not run. Both
contain partial sets: `{optimizer: sgd}`, `{optimizer: [sgd, adam]}` (any of), `{layers: {min: 3}}`.
A partial set that can never match is an error. `points` are parameter sets that run first. A point
must have a value for each parameter that exists in it, unless that parameter is constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hpq.domain.identity import ParameterSet
from hpq.domain.trial import Json
from hpq.search.conditions import MISSING, Condition, Names, Partial, Test, find, key, nest
from hpq.search.discrete import Distribution
from hpq.search.space import Space
from hpq_producer.sweepfile.check import check
from hpq_producer.sweepfile.errors import KeyPath, Problems, dotted, nearest, shown
from hpq_producer.sweepfile.model import Range

Leaves = Mapping[Names, Distribution]
_FORM = "write {optimizer: sgd}, {optimizer: [sgd, adam]} or {layers: {min: 3}}"
_MAX_SCANNED = 10_000  # values of a parameter that a check compares


def read_when(data: Json, leaves: Leaves, is_grid: bool, out: Problems) -> tuple[Condition, ...]:
    """Read the conditions of `when`, each after the conditions of the parameters that it tests."""
    if not isinstance(data, dict) or not data:
        out.add(("when",), f"{shown(data)} is not a mapping; write momentum: {{optimizer: sgd}}")
        return ()
    found: dict[Names, list[Condition]] = {}
    before = len(out.errors)
    for name, tests in data.items():
        key_path: KeyPath = ("when", name)
        targets = _leaves_under(name, leaves)
        if not targets:
            _add_unknown(key_path, name, leaves, out)
        partial = _partial(tests, key_path, leaves, is_grid, out)
        for path in targets if partial else ():
            assert partial is not None
            found.setdefault(path, []).append(Condition(path, partial))
    return _sort_by_dependency(found, out) if len(out.errors) == before else ()


def read_exclude(data: Json, leaves: Leaves, is_grid: bool, out: Problems) -> tuple[Partial, ...]:
    """Read the partial sets of `exclude`."""
    if not isinstance(data, list) or not data:
        out.add(("exclude",), f"{shown(data)} is not a list; {_FORM} as its items")
        return ()
    read = [
        _partial(item, ("exclude", index), leaves, is_grid, out) for index, item in enumerate(data)
    ]
    return tuple(partial for partial in read if partial is not None)


def is_reachable(leaf: Distribution, value: Json, is_grid: bool) -> bool:
    """Return whether the grid, or a draw, can produce a value."""
    if not is_grid or leaf.size is None or leaf.size > _MAX_SCANNED:
        return leaf.has(value)
    return any(key(leaf.at(index)) == key(value) for index in range(leaf.size))


def leaf_of(name: str, leaves: Leaves) -> Names | None:
    """Return the leaf of a name; nested names are joined with dots."""
    return (name,) if (name,) in leaves else next((p for p in leaves if ".".join(p) == name), None)


def _leaves_under(name: str, leaves: Leaves) -> list[Names]:
    """Return the leaf of a name, or all leaves of a nested parameter."""
    leaf = leaf_of(name, leaves)
    if leaf is not None:
        return [leaf]
    return [p for p in leaves if any(".".join(p[:n]) == name for n in range(1, len(p)))]


def _add_unknown(path: KeyPath, name: str, leaves: Leaves, out: Problems) -> None:
    known = tuple(map(".".join, leaves))
    hint = nearest(name, known) or f"; parameters: {', '.join(known)}"
    out.add(path, f"unknown parameter{hint}", code="unknown-parameter")


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
            _add_unknown((*path, name), name, leaves, out)
            continue
        test = _test(value, leaf, (*path, name), out)
        if test is not None and _is_satisfiable(test, leaves[leaf], (*path, name), is_grid, out):
            tests.append(test)
    return Partial(tuple(tests)) if len(tests) == len(data) else None


def _test(value: Json, leaf: Names, path: KeyPath, out: Problems) -> Test | None:
    if not isinstance(value, dict):
        values = tuple(value) if isinstance(value, list) else (value,)
        if values:
            return Test(path=leaf, values=values)
        out.add(path, "an empty list; write at least one value")
        return None
    if not value:
        out.add(path, f"{{}} tests nothing; {_FORM}")
        return None
    ends = check(Range, value, path, out)
    return Test(path=leaf, low=ends.min, high=ends.max) if ends else None


def _is_satisfiable(
    test: Test, leaf: Distribution, path: KeyPath, is_grid: bool, out: Problems
) -> bool:
    """Return whether the parameter can pass the test; report values outside its distribution."""
    before = len(out.errors)
    if getattr(leaf, "q", 0) is None and test.values:
        out.add(
            path, "a continuous parameter almost never equals one value; write {min: …, max: …}"
        )
        return False
    for value in test.values:
        if not is_reachable(leaf, value, is_grid):
            out.add(
                path,
                f"{shown(value)} is not a value of {'.'.join(test.path)}{_list_values(leaf)}",
                code="outside-space",
            )
    count, at = (leaf.size, leaf.at) if is_grid else (leaf.outcomes, leaf.outcome)
    is_scanned = not test.values and count is not None and count <= _MAX_SCANNED
    if is_scanned and not any(test.takes(at(index)) for index in range(count or 0)):
        out.add(
            path,
            f"{'.'.join(test.path)} has no value in that range{_list_values(leaf)}",
            code="outside-space",
        )
    return len(out.errors) == before


def _list_values(leaf: Distribution) -> str:
    count = leaf.outcomes
    if count is None or count > 10:
        return ""
    return f"; its values: {', '.join(shown(leaf.outcome(index)) for index in range(count))}"


def _sort_by_dependency(
    found: Mapping[Names, list[Condition]], out: Problems
) -> tuple[Condition, ...]:
    """Sort conditions so that each follows those of the parameters it tests; report a cycle."""
    ordered: list[Condition] = []
    done: set[Names] = set()

    def visit(path: Names, above: tuple[Names, ...]) -> bool:
        if path in above:
            names = [".".join(p) for p in (*above[above.index(path) :], path)]
            out.add(
                ("when", names[0]),
                f"conditions form a cycle: {' → '.join(names)}; remove one",
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


def read_points(data: Json, space: Space, is_grid: bool, out: Problems) -> Points:
    """Read the distinct points of `points`; report and skip errors."""
    if not isinstance(data, list) or not data:
        out.add(("points",), f"{shown(data)} is not a list; write - {{lr: 0.1, momentum: 0.9}}")
        return ()
    found: dict[bytes, ParameterSet] = {}
    for index, item in enumerate(data):
        path: KeyPath = ("points", index)
        if not isinstance(item, dict):
            out.add(path, f"{shown(item)} is not a mapping; write {{lr: 0.1, momentum: 0.9}}")
            continue
        point = _point(item, path, space, is_grid, out)
        if point is None:
            continue
        if found.setdefault(point.identity, point) is not point:
            out.warn(path, "duplicate point; hpq runs it once", code="duplicate-set")
    return tuple(found.values())


def _point(
    item: dict[str, Json], path: KeyPath, space: Space, is_grid: bool, out: Problems
) -> ParameterSet | None:
    leaves = dict(space.leaves)
    before = len(out.errors)
    values = dict(_flatten(item, (), path, space, out))
    for names, value in values.items():
        if not is_reachable(leaves[names], value, is_grid):
            out.add((*path, *names), f"{shown(value)} is outside the space", code="outside-space")
    if len(out.errors) > before:
        return None
    constants = {names: leaf.at(0) for names, leaf in leaves.items() if leaf.size == 1}
    full = {names: values.get(names, constants.get(names)) for names in leaves}
    point = space.settle(nest(list(full.items())))
    for names in leaves:
        exists = find(point, names) is not MISSING
        if exists and names not in values and names not in constants:
            out.add(
                path,
                f"lacks {dotted(names)}; a point needs a value for every parameter",
                code="missing-parameter",
            )
        elif names in values and not exists:
            out.add(
                (*path, *names),
                "does not exist in this point (see when); remove it",
                code="condition-unmet",
            )
    if len(out.errors) == before and not space.allows(point):
        out.add(path, "exclude matches this point; remove one of the two", code="condition-unmet")
    return ParameterSet(point) if len(out.errors) == before else None


def _flatten(
    item: dict[str, Json], parents: Names, path: KeyPath, space: Space, out: Problems
) -> Iterator[tuple[Names, Json]]:
    """Yield the leaves and values of a point, written nested or as names with dots."""
    leaves = dict(space.leaves)
    for name, value in item.items():
        names = (*parents, name)
        leaf_names = names if names in leaves else None if parents else leaf_of(name, leaves)
        if leaf_names is not None:
            yield leaf_names, value
        elif isinstance(value, dict) and any(leaf[: len(names)] == names for leaf in leaves):
            yield from _flatten(value, names, path, space, out)
        else:
            _add_unknown((*path, *names), dotted(names), leaves, out)
