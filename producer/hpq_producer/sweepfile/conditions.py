"""Read `when`, `exclude`, `derive`, `require` and `zip` of a sweep file; check names.

`when` lists conditions under which parameters exist, `exclude` parameter sets that do not run. Both
contain partial sets: `{optimizer: sgd}`, `{optimizer: [sgd, adam]}` (any of), `{layers: {min: 3}}`.
A partial set that can never match is an error. `derive` lists parameters that are computed from
others, `require` expressions that hold for every trial, `zip` parameters whose values go together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from hpq.domain.expression import Expression, InvalidExpression, Name, quote_hint
from hpq.domain.trial import Json
from hpq.notice import plural
from hpq.search.conditions import Condition, Names, Partial, Test, key
from hpq.search.distributions import Categorical, Distribution
from hpq.search.space import Follower
from hpq.yamlfile.problems import KeyPath, Problems, nearest, shown
from hpq.yamlfile.strict_model import check
from hpq_producer.sweepfile.model import Range
from hpq_producer.sweepfile.parameters import check_name

Leaves = Mapping[Names, Distribution]
Derived = tuple[tuple[str, Expression], ...]
_Known = Mapping[str, Sequence[Json]]
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
            add_unknown(key_path, name, leaves, out)
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


def add_unknown(path: KeyPath, name: str, leaves: Mapping[Names, object], out: Problems) -> None:
    """Report a name that no parameter has."""
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
            add_unknown((*path, name), name, leaves, out)
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
            path, "a continuous parameter almost never equals one value; write {min: 0.1, max: 0.2}"
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


def read_derive(data: Json, leaves: Leaves, out: Problems) -> Derived:
    """Read the parameters of `derive`, each after those that it needs."""
    if not isinstance(data, dict) or not data:
        out.add(("derive",), f'{shown(data)} is not a mapping; write {{head: "backbone / 2"}}')
        return ()
    found: dict[str, Expression] = {}
    known = _known(leaves, data)
    for name, text in data.items():
        path: KeyPath = ("derive", name)
        if any(".".join(p[:n]) == name for p in leaves for n in range(1, len(p) + 1)):
            out.add(path, "is a name of parameters, too; rename one", code="duplicate-name")
        elif check_name(name, path, out):
            read = _expression(text, path, Expression.number, known, out)
            if read is not None:
                found[name] = read
    needs = {
        name: [needed.text for needed in one.names if needed.text in found]
        for name, one in found.items()
    }
    try:
        return tuple((name, found[name]) for name in TopologicalSorter(needs).static_order())
    except CycleError as error:
        names = error.args[1]
        text = f"these names need each other: {' → '.join(reversed(names))}; change one"
        out.add(("derive", names[0]), text, code="circular-condition")
        return ()


def read_require(
    data: Json, leaves: Leaves, derived: tuple[str, ...], out: Problems
) -> tuple[Expression, ...]:
    """Read the expressions of `require`."""
    if not isinstance(data, list) or not data:
        out.add(("require",), f'{shown(data)} is not a list; write - "layers * width <= 4096"')
        return ()
    known = _known(leaves, derived)
    read = [
        _expression(text, ("require", index), Expression.test, known, out)
        for index, text in enumerate(data)
    ]
    return tuple(one for one in read if one is not None)


def _expression(
    text: Json,
    path: KeyPath,
    parse: Callable[[str, Collection[str]], Expression],
    known: _Known,
    out: Problems,
) -> Expression | None:
    """Read one expression; report its errors and return None if there are any."""
    if not isinstance(text, str):
        out.add(path, f"{shown(text)} is not text; write an expression in quotes")
        return None
    before = len(out.errors)
    try:
        found = parse(text, known)
    except InvalidExpression as error:
        out.add(path, f"{error}{quote_hint(text, known)}", code="expression-invalid")
        return None
    for name in found.names:
        if name.text in known:
            words = [value for value in known[name.text] if type(value) not in (int, float)]
            if name.is_number and words:
                out.add(path, f"{shown(words[0])}, a value of {name.text}, is no number")
        elif name.is_number or not name.may_be_text or not _is_value(name.text, known):
            out.add(path, _unknown(name, text, known), code="unknown-parameter")
            break
    return found if len(out.errors) == before else None


def _unknown(name: Name, text: str, known: _Known) -> str:
    """Return that nothing has a name, and what may be meant."""
    if name.may_be_text and not name.is_number:
        words = [word for values in known.values() for word in values if isinstance(word, str)]
        hint = nearest(name.text, words) or nearest(name.text, tuple(known))
        return f"{name.text!r} is no parameter, and no value of one{hint}"
    hint = quote_hint(text, known) or nearest(name.text, tuple(known))
    return f"unknown parameter {name.text!r}" + (hint or f"; parameters: {', '.join(known)}")


def _known(leaves: Leaves, derived: Iterable[str]) -> _Known:
    """Return the names that an expression may have, each with values of its parameter."""
    known = {".".join(path): [value for _, value in leaf.known()] for path, leaf in leaves.items()}
    return known | {name: [] for name in derived}


def _is_value(text: str, known: _Known) -> bool:
    """Return whether a text is a value of a parameter."""
    return any(text in values for values in known.values())


def read_zip(
    data: Mapping[str, Any], leaves: Leaves, when: tuple[Condition, ...], out: Problems
) -> tuple[Follower, ...]:
    """Read the groups of `zip`; in each, the others follow a parameter that repeats no value."""
    found: list[Follower] = []
    free = leaves.keys() - {condition.path for condition in when}
    for index, names in enumerate(data["zip"]):
        path: KeyPath = ("zip", index)
        if not all([_can_zip(n, (*path, i), leaves, free, out) for i, n in enumerate(names)]):
            continue
        lists = {name: tuple(data["parameters"][name]["values"]) for name in sorted(names)}
        leader = next((n for n, values in lists.items() if leaves[n,].size == len(values)), None)
        if len(lists) < 2:
            out.add(path, "names fewer than two parameters; write [loss, epochs]")
        elif len(set(map(len, lists.values()))) > 1:
            sizes = {name: len(values) for name, values in lists.items()}
            counts = [f"{name} has {n} {plural(n, 'value')}" for name, n in sizes.items()]
            out.add(path, f"{', '.join(counts)}; write as many for each")
        elif leader is None:
            out.add(path, "each of these repeats a value; at least one must not")
        else:
            for name in lists.keys() - {leader}:
                out.drop_warnings(("parameters", name, "values"), "duplicate-value")
            own = lists.pop(leader)
            found += [Follower(name, leader, own, values) for name, values in lists.items()]
    return tuple(found)


def _can_zip(name: str, path: KeyPath, leaves: Leaves, free: set[Names], out: Problems) -> bool:
    """Return whether a parameter can be in a group of `zip`, once; report why not."""
    names = leaf_of(name, leaves)
    leaf = leaves[names] if names else None
    if names is None:
        add_unknown(path, name, leaves, out)
    elif names not in free:
        out.add_conflict(path, f"{name} is in `when`, or in `zip` twice; remove one of the two")
    elif len(names) > 1 or not isinstance(leaf, Categorical) or leaf.constant:
        what = "is nested" if len(names) > 1 else "has no plain list of values"
        out.add(path, f"{name} {what}; write {names[-1]}: {{values: […]}}")
    else:
        free.discard(names)
        return True
    return False
