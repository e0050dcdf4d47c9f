"""A sweep file's `when` and `exclude`: which parameters exist in a set, which sets are not run.

Imported by load. Both are made of partial sets: `{optimizer: sgd}`, `{optimizer: [sgd, adam]}` (any
of), `{layers: {min: 3}}`. Every name and every value is looked up in the space; what can never
match is an error.
"""

from __future__ import annotations

from collections.abc import Mapping

from hpq.search.conditions import Condition, Names, Partial, Test, key
from hpq.search.distributions import Distribution
from hpq.trial import Json
from producer.sweepfile import schema
from producer.sweepfile.problems import Path, Problems, shown
from producer.sweepfile.values import nearest

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
        here: Path = ("when", name)
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
    data: Json, path: Path, leaves: Leaves, is_grid: bool, out: Problems
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


def _test(value: Json, leaf: Names, path: Path, out: Problems) -> Test | None:
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


def _can_hold(test: Test, leaf: Distribution, path: Path, is_grid: bool, out: Problems) -> bool:
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
