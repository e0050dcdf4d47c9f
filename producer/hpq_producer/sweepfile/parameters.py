"""A sweep file's `parameters` -> a Space, by W&B's rules; what W&B warns about is an error here.

Without `distribution` it follows from the keys: value, values, two whole numbers, two numbers.
`distributions` says which keys go with which distribution.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from hpq.domain.identity import canonical
from hpq.domain.trial import Json
from hpq.search.discrete import Categorical, Distribution, Weighted
from hpq.search.space import Space
from hpq_producer.sweepfile import distributions, schema, values
from hpq_producer.sweepfile.errors import KeyPath, Problems, shown

Keys = Mapping[str, Json]


def read(data: Json, path: KeyPath, out: Problems) -> Space:
    """The space that a mapping of parameters describes; what is wrong is noted and left out."""
    return Space.of(read_leaves(data, path, out))


def read_leaves(data: Json, path: KeyPath, out: Problems) -> dict[tuple[str, ...], Distribution]:
    """The distributions that a mapping of parameters describes, in its order."""
    leaves: dict[tuple[str, ...], Distribution] = {}
    _read(data, path, (), leaves, out)
    _check_names(leaves, out)
    return leaves


def _check_names(leaves: Mapping[tuple[str, ...], Distribution], out: Problems) -> None:
    """Note names that are the same once dots stand between those of nested parameters."""
    seen: dict[str, tuple[str, ...]] = {}
    paths = dict.fromkeys(names[:n] for names in leaves for n in range(1, len(names) + 1))
    for names in sorted(paths, key=len):
        dots = ".".join(names)
        other = seen.setdefault(dots, names)
        if other != names:
            there = out.places.find(place(other))[1]
            out.add(
                place(names),
                f"called {dots}, as is what stands at {there}; rename one",
                code="duplicate-name",
            )


def place(names: tuple[str, ...]) -> KeyPath:
    """Where a leaf of the space stands in the file."""
    path: KeyPath = ()
    for name in names:
        path += ("parameters", name)
    return path


def _read(
    data: Json,
    path: KeyPath,
    names: tuple[str, ...],
    leaves: dict[tuple[str, ...], Distribution],
    out: Problems,
) -> None:
    if not isinstance(data, dict) or not data:
        out.add(path, f"{shown(data)} is not a mapping of parameters; write name: {{values: […]}}")
        return
    for name, entry in data.items():
        here = (*path, name)
        if not schema.PARAMETER_NAME.match(name):
            out.add(here, schema.NOT_A_NAME)
        elif not isinstance(entry, dict):
            form = "values" if isinstance(entry, list) else "value"
            out.add(here, f"{shown(entry)} stands alone; write {{{form}: {shown(entry)}}}")
        elif "parameters" in entry:
            for key in entry.keys() - {"parameters"}:
                out.add(
                    (*here, key),
                    "cannot stand beside parameters (a nested parameter)",
                    code="conflicting-keys",
                )
            _read(entry["parameters"], (*here, "parameters"), (*names, name), leaves, out)
        else:
            leaf = distribution(entry, here, out)
            if leaf is not None:
                leaves[(*names, name)] = leaf


def distribution(entry: Keys, path: KeyPath, out: Problems) -> Distribution | None:
    """The distribution that one parameter's keys describe; None where something is wrong."""
    before = len(out.errors)
    if entry and not entry.keys() & schema.PARAMETER.keys() and _are_mappings(entry):
        inner = f"{path[-1]}: {{parameters: {{{next(iter(entry))}: …}}}}"
        out.add(path, f"nested names go under `parameters:`; write {inner}")
        return None
    schema.check(entry, schema.PARAMETER, path, out)
    if len(out.errors) > before:
        return None
    name = entry.get("distribution") if "distribution" in entry else _infer(entry, path, out)
    if name is None and "distribution" not in entry:
        return None
    wrong = values.word(*distributions.LISTED, *distributions.NUMERIC)(name)
    if wrong:
        if meant := distributions.MEANT.get(str(name).lower()):
            wrong = f"{shown(name)} is no distribution; did you mean {meant!r}?"
        out.add((*path, "distribution"), wrong, code="unknown-distribution")
        return None
    assert isinstance(name, str)
    if not _goes_together(name, entry, path, out):
        return None
    if name in distributions.LISTED:
        return _listed(name, entry, path, out)
    return _numeric(name, entry, path, out)


def _are_mappings(entry: Keys) -> bool:
    return all(isinstance(inner, dict) for inner in entry.values())


def _infer(entry: Keys, path: KeyPath, out: Problems) -> str | None:
    if "value" in entry:
        return "constant"
    if "values" in entry:
        return "categorical_w_probabilities" if "probabilities" in entry else "categorical"
    if "probabilities" in entry:
        out.add(path, "probabilities without values", code="missing-key")
    elif "min" in entry and "max" in entry:
        both = isinstance(entry["min"], int) and isinstance(entry["max"], int)
        return "int_uniform" if both else "uniform"
    elif "min" in entry or "max" in entry:
        there, missing = ("min", "max") if "min" in entry else ("max", "min")
        out.add(path, f"{there} without {missing}; give both", code="missing-key")
    elif entry:
        out.add(
            path,
            f"{', '.join(entry)} without a distribution; write distribution: normal, …",
            code="missing-key",
        )
    else:
        out.add(path, "empty; write value, values, or min and max", code="missing-key")
    return None


def _goes_together(name: str, entry: Keys, path: KeyPath, out: Problems) -> bool:
    rule = distributions.NUMERIC.get(name)
    needs, takes = (rule.needs, rule.takes) if rule else (distributions.LISTED[name], ())
    before = len(out.errors)
    for key in entry:
        if key not in (*needs, *takes, "distribution"):
            twin = f"q_{name}" if key == "q" else "categorical_w_probabilities"
            meant = twin in distributions.NUMERIC or (key == "probabilities" and "values" in needs)
            hint = f" (write distribution: {twin})" if meant else ""
            keys = ", ".join((*needs, *takes))
            out.add(
                (*path, key),
                f"does not go with {name}, which takes {keys}{hint}",
                code="conflicting-keys",
            )
    for key in needs:
        if key not in entry:
            out.add(path, f"{name} needs {key}", code="missing-key")
    return len(out.errors) == before


def _listed(name: str, entry: Keys, path: KeyPath, out: Problems) -> Distribution | None:
    before = len(out.errors)
    if name == "constant":
        fine = check_value(entry["value"], (*path, "value"), out)
        return Categorical((entry["value"],), constant=True) if fine else None
    values = entry["values"]
    if not isinstance(values, list) or not values:
        out.add((*path, "values"), f"{shown(values)} is not a list of at least one value")
        return None
    for index, value in enumerate(values):
        check_value(value, (*path, "values", index), out)
    if len(out.errors) > before:
        return None
    if name == "categorical":
        return Categorical(_different(values, path, out))
    chances = entry["probabilities"]
    assert isinstance(chances, list)
    weights = tuple(p for p in chances if isinstance(p, int | float))
    if len(weights) != len(values):
        out.add((*path, "probabilities"), f"{len(weights)} for {len(values)} values; give each one")
    elif abs(math.fsum(weights) - 1) > 1e-5:
        total = math.fsum(weights)
        out.add((*path, "probabilities"), f"they sum to {total:.6g}; they have to sum to 1")
    return Weighted(tuple(values), weights)


def _different(values: list[Json], path: KeyPath, out: Problems) -> tuple[Json, ...]:
    seen: dict[bytes, Json] = {}
    for index, value in enumerate(values):
        key = canonical({"": value})
        if key in seen:
            out.warn(
                (*path, "values", index),
                f"{shown(value)} is there already; taken once",
                code="duplicate-value",
            )
        seen.setdefault(key, value)
    return tuple(seen.values())


def check_value(value: Json, path: KeyPath, out: Problems) -> bool:
    """True for a value that a trial can be given; not NaN, an infinity, NUL or over 64 KiB."""
    try:
        canonical({"value": value})
    except ValueError as error:
        out.add(path, str(error).removeprefix("value").lstrip(".: "))
        return False
    if not values.is_passable(json.dumps(value, ensure_ascii=False)):
        out.add(path, f"{shown(value)} holds a character that no program can be given")
        return False
    return True


def _numeric(name: str, entry: Keys, path: KeyPath, out: Problems) -> Distribution | None:
    rule = distributions.NUMERIC[name]
    keys = {k: v for k, v in entry.items() if isinstance(v, int | float)}
    if "q" in rule.takes:
        keys.setdefault("q", 1)
    wrong = distributions.impossible(name, keys)
    if wrong:
        key, what = wrong
        out.add((*path, key), what)
        return None
    if name in distributions.EXPONENTS:
        ends = f"e^{keys['min']:g} to e^{keys['max']:g}"
        ends = f"1/({ends})" if name.startswith("inv") else ends
        out.warn((*path, "distribution"), f"{name} takes exponents: from {ends}; "
                 f"for the values themselves write {name}_values", code="exponents")  # fmt: skip
    return rule.make(keys)
