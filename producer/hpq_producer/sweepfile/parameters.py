"""Read a sweep file's `parameters` into a Space by W&B's rules; W&B's warnings are errors here.

Without `distribution`, the keys decide: value, values, two whole numbers, or two numbers.
`distributions` lists the keys of each distribution.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from hpq.domain.identity import canonical
from hpq.domain.trial import Json
from hpq.search.discrete import Categorical, Distribution, Weighted
from hpq_producer.sweepfile import distributions, schema, values
from hpq_producer.sweepfile.errors import KeyPath, Problems, shown

Keys = Mapping[str, Json]


def read_leaves(data: Json, path: KeyPath, out: Problems) -> dict[tuple[str, ...], Distribution]:
    """Read the distributions of a mapping of parameters, in its order; report and skip errors."""
    leaves: dict[tuple[str, ...], Distribution] = {}
    _read(data, path, (), leaves, out)
    _check_names(leaves, out)
    return leaves


def _check_names(leaves: Mapping[tuple[str, ...], Distribution], out: Problems) -> None:
    """Report nested names that are equal to another name once they are joined with dots."""
    seen: dict[str, tuple[str, ...]] = {}
    paths = dict.fromkeys(names[:n] for names in leaves for n in range(1, len(names) + 1))
    for names in sorted(paths, key=len):
        dots = ".".join(names)
        other = seen.setdefault(dots, names)
        if other != names:
            first = out.source_map.find(path_of(other))[1]
            out.add(
                path_of(names),
                f"is named {dots}, like the parameter at {first}; rename one",
                code="duplicate-name",
            )


def path_of(names: tuple[str, ...]) -> KeyPath:
    """Return the file's path of a leaf of the space."""
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
        key_path = (*path, name)
        if not schema.PARAMETER_NAME.match(name):
            out.add(key_path, schema.NOT_A_NAME)
        elif not isinstance(entry, dict):
            form = "values" if isinstance(entry, list) else "value"
            out.add(key_path, f"{shown(entry)} is not a mapping; write {{{form}: {shown(entry)}}}")
        elif "parameters" in entry:
            for key in entry.keys() - {"parameters"}:
                out.add_conflict(
                    (*key_path, key), "excludes parameters (a nested parameter); remove one"
                )
            _read(entry["parameters"], (*key_path, "parameters"), (*names, name), leaves, out)
        else:
            leaf = distribution(entry, key_path, out)
            if leaf is not None:
                leaves[(*names, name)] = leaf


def distribution(entry: Keys, path: KeyPath, out: Problems) -> Distribution | None:
    """Read the distribution of one parameter; report errors and return None if there are any."""
    before = len(out.errors)
    if entry and not entry.keys() & schema.PARAMETER.keys() and _are_mappings(entry):
        inner = f"{path[-1]}: {{parameters: {{{next(iter(entry))}: …}}}}"
        out.add(path, f"nested names belong under `parameters:`; write {inner}")
        return None
    schema.check(entry, schema.PARAMETER, path, out)
    if len(out.errors) > before:
        return None
    name = entry.get("distribution") if "distribution" in entry else _infer(entry, path, out)
    if name is None and "distribution" not in entry:
        return None
    wrong = values.choice(*distributions.LISTED, *distributions.NUMERIC)(name)
    if wrong:
        if meant := distributions.ALIASES.get(str(name).lower()):
            wrong = f"unknown distribution {shown(name)}; did you mean {meant!r}?"
        out.add((*path, "distribution"), wrong, code="unknown-distribution")
        return None
    assert isinstance(name, str)
    if not _check_keys(name, entry, path, out):
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
        out.add_missing(path, "probabilities without values")
    elif "min" in entry and "max" in entry:
        both = isinstance(entry["min"], int) and isinstance(entry["max"], int)
        return "int_uniform" if both else "uniform"
    elif "min" in entry or "max" in entry:
        present, missing = ("min", "max") if "min" in entry else ("max", "min")
        out.add_missing(path, f"{present} without {missing}; write both")
    elif entry:
        out.add_missing(
            path, f"{', '.join(entry)} without a distribution; write distribution: normal, …"
        )
    else:
        out.add_missing(path, "empty; write value, values, or min and max")
    return None


def _check_keys(name: str, entry: Keys, path: KeyPath, out: Problems) -> bool:
    rule = distributions.NUMERIC.get(name)
    required = rule.required if rule else distributions.LISTED[name]
    optional = rule.optional if rule else ()
    before = len(out.errors)
    for key in entry:
        if key not in (*required, *optional, "distribution"):
            twin = f"q_{name}" if key == "q" else "categorical_w_probabilities"
            has_twin = key == "probabilities" and "values" in required
            hint = (
                f"; write distribution: {twin}" if has_twin or twin in distributions.NUMERIC else ""
            )
            keys = ", ".join((*required, *optional))
            out.add_conflict((*path, key), f"not a key of {name}; its keys: {keys}{hint}")
    for key in required:
        if key not in entry:
            out.add_missing(path, f"{name} needs {key}")
    return len(out.errors) == before


def _listed(name: str, entry: Keys, path: KeyPath, out: Problems) -> Distribution | None:
    before = len(out.errors)
    if name == "constant":
        is_valid = check_value(entry["value"], (*path, "value"), out)
        return Categorical((entry["value"],), constant=True) if is_valid else None
    values = entry["values"]
    if not isinstance(values, list) or not values:
        out.add((*path, "values"), f"{shown(values)} is not a list of at least one value")
        return None
    for index, value in enumerate(values):
        check_value(value, (*path, "values", index), out)
    if len(out.errors) > before:
        return None
    if name == "categorical":
        return Categorical(_distinct(values, path, out))
    probabilities = entry["probabilities"]
    assert isinstance(probabilities, list)
    weights = tuple(p for p in probabilities if isinstance(p, int | float))
    if len(weights) != len(values):
        what = f"{len(weights)} for {len(values)} values; write one for each value"
        out.add((*path, "probabilities"), what)
    elif abs(math.fsum(weights) - 1) > 1e-5:
        total = math.fsum(weights)
        out.add((*path, "probabilities"), f"the sum is {total:.6g}; it must be 1")
    return Weighted(tuple(values), weights)


def _distinct(values: list[Json], path: KeyPath, out: Problems) -> tuple[Json, ...]:
    seen: dict[bytes, Json] = {}
    for index, value in enumerate(values):
        key = canonical({"": value})
        if key in seen:
            out.warn(
                (*path, "values", index),
                f"{shown(value)} is listed twice; hpq uses it once",
                code="duplicate-value",
            )
        seen.setdefault(key, value)
    return tuple(seen.values())


def check_value(value: Json, path: KeyPath, out: Problems) -> bool:
    """Report a value that no trial can receive: NaN, infinity, NUL, or more than 64 KiB."""
    try:
        canonical({"value": value})
    except ValueError as error:
        out.add(path, str(error).removeprefix("value").lstrip(".: "))
        return False
    if not values.is_passable(json.dumps(value, ensure_ascii=False)):
        out.add(path, f"{shown(value)} contains a character that no program argument can hold")
        return False
    return True


def _numeric(name: str, entry: Keys, path: KeyPath, out: Problems) -> Distribution | None:
    rule = distributions.NUMERIC[name]
    keys = {k: v for k, v in entry.items() if isinstance(v, int | float)}
    if "q" in rule.optional:
        keys.setdefault("q", 1)
    if invalid := distributions.explain_invalid(name, keys):
        key, what = invalid
        out.add((*path, key), what)
        return None
    if name in distributions.EXPONENTS:
        ends = f"e^{keys['min']:g} to e^{keys['max']:g}"
        ends = f"1/({ends})" if name.startswith("inv") else ends
        what = f"min and max of {name} are exponents: from {ends}; for values, use {name}_values"
        out.warn((*path, "distribution"), what, code="exponents")
    return rule.build(keys)
