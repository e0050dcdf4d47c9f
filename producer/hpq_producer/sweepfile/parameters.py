"""Read a sweep file's `parameters` into a Space, or its list of parameter sets.

`parameters` follow W&B's rules; W&B's warnings are errors here. The model checks each key of a
parameter; this module checks the keys of a distribution together.

A list is `- hyperparam_set: {…}` entries, the format of the CIFAR10 article's file. Each entry is
one trial, in the file's order. hpq runs a duplicate entry once, with a warning.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence

from hpq.domain.identity import ParameterSet, canonical
from hpq.domain.trainer_specs import TrainerSpec
from hpq.domain.trial import Json, Params, flatten
from hpq.errors import BadParams
from hpq.notice import plural
from hpq.search import wandb_distributions
from hpq.search.distributions import Distribution
from hpq.yamlfile.problems import KeyPath, Problems, is_passable, nearest, shown
from hpq.yamlfile.strict_model import check
from hpq_producer.sweepfile.check_code import check_known
from hpq_producer.sweepfile.key_types import PARAMETER_NAME
from hpq_producer.sweepfile.model import Parameter

Entry = Mapping[str, Json]
_MAX_EXPONENT = 700.0  # e to the 709 is the largest float


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
        what = f"{shown(data)} is not a mapping of parameters"
        out.add(path, f"{what}; write lr: {{values: [0.1, 0.01]}}")
        return
    for name, entry in data.items():
        key_path = (*path, name)
        if not check_name(name, key_path, out):
            continue
        if not isinstance(entry, dict):
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


def distribution(entry: Entry, path: KeyPath, out: Problems) -> Distribution | None:
    """Read the distribution of one parameter; report errors and return None if there are any."""
    are_mappings = all(isinstance(inner, dict) for inner in entry.values())
    if entry and are_mappings and not entry.keys() & Parameter.model_fields.keys():
        inner = f"{path[-1]}: {{parameters: {{{next(iter(entry))}: …}}}}"
        out.add(path, f"nested names belong under `parameters:`; write {inner}")
        return None
    before = len(out.errors)
    if check(Parameter, dict(entry), path, out) is None:
        return None
    name = wandb_distributions.name_of(entry)
    if name is None:
        _add_unnamed(entry, path, out)
    elif _check_keys(name, entry, path, out):
        _check_values(name, entry, path, out)
    return wandb_distributions.build(name, entry) if name and len(out.errors) == before else None


def _add_unnamed(entry: Entry, path: KeyPath, out: Problems) -> None:
    """Report keys from which no distribution can be inferred."""
    if "probabilities" in entry:
        out.add_missing(path, "probabilities without values")
    elif "min" in entry or "max" in entry:
        present, missing = ("min", "max") if "min" in entry else ("max", "min")
        out.add_missing(path, f"{present} without {missing}; write both")
    elif entry:
        out.add_missing(
            path, f"{', '.join(entry)} without a distribution; write e.g. distribution: normal"
        )
    else:
        out.add_missing(path, "empty; write value, values, or min and max")


def _check_keys(name: str, entry: Entry, path: KeyPath, out: Problems) -> bool:
    rule = wandb_distributions.NUMERIC.get(name)
    required = rule.required if rule else wandb_distributions.LISTED[name]
    optional = rule.optional if rule else ()
    before = len(out.errors)
    for key in entry:
        if key not in (*required, *optional, "distribution"):
            twin = f"q_{name}" if key == "q" else "categorical_w_probabilities"
            has_twin = key == "probabilities" and "values" in required
            is_known = has_twin or twin in wandb_distributions.NUMERIC
            hint = f"; write distribution: {twin}" if is_known else ""
            keys = ", ".join((*required, *optional))
            out.add_conflict((*path, key), f"not a key of {name}; its keys: {keys}{hint}")
    for key in required:
        if key not in entry:
            out.add_missing(path, f"{name} needs {key}")
    return len(out.errors) == before


def _check_values(name: str, entry: Entry, path: KeyPath, out: Problems) -> None:
    if name in wandb_distributions.NUMERIC:
        _check_numbers(name, entry, path, out)
    elif name == "constant":
        check_value(entry["value"], (*path, "value"), out)
        if isinstance(entry["value"], list):
            what = f"{shown(entry['value'])} is one value, a list, of every trial; write values to"
            out.warn((*path, "value"), f"{what} try each", code="ambiguous-word")
    else:
        _check_list(name, entry, path, out)


def _check_list(name: str, entry: Entry, path: KeyPath, out: Problems) -> None:
    values, weights = entry["values"], entry.get("probabilities", ())
    assert isinstance(values, list)
    first: set[bytes] = set()
    for index, value in enumerate(values):
        value_path = (*path, "values", index)
        if not check_value(value, value_path, out) or name != "categorical":
            continue
        key = canonical({"": value})
        if key in first:
            what = f"{shown(value)} is listed twice; hpq uses it once"
            out.warn(value_path, what, code="duplicate-value")
        first.add(key)
    if name == "categorical":
        return
    assert isinstance(weights, list)
    total = math.fsum(p for p in weights if isinstance(p, int | float))
    if len(weights) != len(values):
        listed = plural(len(values), "value")
        what = f"{len(weights)} for {len(values)} {listed}; write one for each value"
        out.add((*path, "probabilities"), what)
    elif abs(total - 1) > 1e-5:
        out.add((*path, "probabilities"), f"the sum is {total:.6g}; it must be 1")


def _check_numbers(name: str, entry: Entry, path: KeyPath, out: Problems) -> None:
    numbers = wandb_distributions.numbers_of(name, entry)
    if invalid := _explain_invalid(name, numbers):
        key, what = invalid
        out.add((*path, key), what)
    elif name in wandb_distributions.EXPONENTS:
        ends = f"e^{numbers['min']:g} to e^{numbers['max']:g}"
        ends = f"1/({ends})" if name.startswith("inv") else ends
        what = f"min and max of {name} are exponents: from {ends}; for values, use {name}_values"
        out.warn((*path, "distribution"), what, code="exponents")


def _explain_invalid(name: str, keys: wandb_distributions.Numbers) -> tuple[str, str] | None:
    """Return a key and the reason if the numbers describe no distribution, else None."""
    if "min" in keys:
        low, high = keys["min"], keys["max"]
        if name == "int_uniform" and not (isinstance(low, int) and isinstance(high, int)):
            key = "max" if isinstance(low, int) else "min"
            return key, f"{shown(keys[key])} is not a whole number, as int_uniform requires"
        if low >= high:
            return "min", f"{shown(low)} is not less than max {shown(high)}"
        if name.endswith("_values") and low <= 0:
            return "min", f"{shown(low)} is not greater than 0, as {name} requires"
        if name in wandb_distributions.EXPONENTS and max(abs(low), abs(high)) > _MAX_EXPONENT:
            key = "min" if abs(low) > abs(high) else "max"
            return (
                key,
                f"{shown(keys[key])} is not an exponent from -700 to 700 (natural logarithm)",
            )
    if name.endswith("log_normal"):
        mu, sigma = keys.get("mu", 0), keys.get("sigma", 1)
        if abs(mu) + 9 * sigma > _MAX_EXPONENT:
            key = "mu" if abs(mu) > 9 * sigma else "sigma"
            return key, f"{shown(keys[key])} is too large: it is the exponent of e"
    return None


def check_name(name: str, path: KeyPath, out: Problems) -> bool:
    """Report a name that no parameter can have."""
    if PARAMETER_NAME.match(name):
        return True
    allowed = "use 1 to 100 of A-Z a-z 0-9 _ . - / @, a letter or _ first"
    out.add(path, f"not a parameter name; {allowed}")
    return False


def check_value(value: Json, path: KeyPath, out: Problems) -> bool:
    """Report a value that no trial can receive: NaN, infinity, NUL, or more than 64 KiB."""
    try:
        canonical({"value": value})
    except ValueError as error:
        out.add(path, str(error).removeprefix("value").lstrip(".: "))
        return False
    if not is_passable(json.dumps(value, ensure_ascii=False)):
        out.add(path, f"{shown(value)} contains a character that no program argument can hold")
        return False
    return True


ENTRY = "hyperparam_set"
Sets = tuple[ParameterSet, ...]


def read_sets(data: Sequence[Json], trainer: TrainerSpec | None, out: Problems) -> Sets:
    """Read the distinct parameter sets of a list; report and skip errors.

    If a built-in trainer runs them, its rules apply.
    """
    first: dict[bytes, int] = {}
    sets: list[ParameterSet] = []
    for index, item in enumerate(data):
        before = len(out.errors)
        entry = _entry(item, (index,), out)
        params = read_set(entry, trainer, (index, ENTRY), out) if entry else None
        if params is None or len(out.errors) > before:
            continue
        key = params.identity
        if key in first:
            out.warn(
                (index,), f"duplicate of [{first[key]}]; hpq runs it once", code="duplicate-set"
            )
        else:
            first[key] = index
            sets.append(params)
    if not data:
        out.add((), f"an empty list; write entries such as - {ENTRY}: {{batch_size: 128}}")
    return tuple(sets)


def _entry(item: Json, path: KeyPath, out: Problems) -> Params | None:
    """Return the parameters of an entry; report other keys, or that it has none."""
    params = item.get(ENTRY) if isinstance(item, dict) else None
    if not isinstance(item, dict) or not isinstance(params, dict) or not params:
        # Not quoted: without the key, this may be another file (`load.sweep_document`).
        out.add(path, f"needs the key {ENTRY}; write - {ENTRY}: {{batch_size: 128}}")
        return None
    for key in item.keys() - {ENTRY}:
        out.add(
            (*path, key),
            f"unknown key{nearest(key, (ENTRY,))}; an entry has only {ENTRY}",
            code="unknown-key",
        )
    return params


def read_set(
    params: Params, trainer: TrainerSpec | None, path: KeyPath, out: Problems
) -> ParameterSet | None:
    """Read one parameter set of a list; report errors and return None if there are any."""
    before = len(out.errors)
    for name, value in params.items():
        key_path = (*path, name)
        is_valid = check_name(name, key_path, out) and check_value(value, key_path, out)
        if is_valid and trainer is not None:
            check_known(trainer, name, [(key_path, value)], out)
    if len(out.errors) > before:
        return None
    found = ParameterSet(params)
    try:
        found.identity  # noqa: B018 - reports a set that is too large
    except BadParams as error:
        out.add(path, str(error), code="set-too-large")
        return None
    return found


def listed_sets(data: Json) -> Iterator[Params]:
    """Yield the parameters of each entry of a list without errors, duplicates too."""
    for item in data if isinstance(data, list) else ():
        if isinstance(item, dict) and isinstance(params := item.get(ENTRY), dict):
            yield params


def varying(sets: Sets) -> tuple[str, ...]:
    """Return the names whose value differs between sets or is missing in some, in file order.

    Nested names are joined with dots.
    """
    leaves = [flatten(params) for params in sets]
    names = dict.fromkeys(name for params in leaves for name in params)
    return tuple(
        name
        for name in names
        if len({canonical({k: v for k, v in p.items() if k == name}) for p in leaves}) > 1
    )
