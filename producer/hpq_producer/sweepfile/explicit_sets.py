"""Read an explicit list of parameter sets: the `- hyperparam_set: {…}` entries of a file.

The CIFAR10 article's file has this format. Each entry is one trial, in the file's order. hpq runs a
duplicate entry once, with a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpq.domain.identity import ParameterSet, canonical
from hpq.domain.trainer_specs import TrainerSpec
from hpq.domain.trial import Json, Params, flatten
from hpq.errors import BadParams
from hpq.yamlfile.problems import KeyPath, Problems, nearest
from hpq_producer.sweepfile.compatibility import check_known
from hpq_producer.sweepfile.parameters import check_name, check_value

ENTRY = "hyperparam_set"
Sets = tuple[ParameterSet, ...]


def read(data: Sequence[Json], trainer: TrainerSpec | None, out: Problems) -> Sets:
    """Read the distinct parameter sets of a list; report and skip errors.

    If a built-in trainer runs them, its rules apply.
    """
    first: dict[bytes, int] = {}
    sets: list[ParameterSet] = []
    for index, item in enumerate(data):
        before = len(out.errors)
        params = _set(item, trainer, (index,), out)
        if params is None or len(out.errors) > before:
            continue
        try:
            key = params.identity
        except BadParams as error:
            out.add((index,), str(error), code="set-too-large")
            continue
        except ValueError as error:
            out.add((index,), str(error))
            continue
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


def _set(
    item: Json, trainer: TrainerSpec | None, path: KeyPath, out: Problems
) -> ParameterSet | None:
    params = item.get(ENTRY) if isinstance(item, dict) else None
    if not isinstance(item, dict) or not isinstance(params, dict) or not params:
        # Not quoted: without the key, this may be another file (`source.known_document`).
        out.add(path, f"needs the key {ENTRY}; write - {ENTRY}: {{batch_size: 128}}")
        return None
    for key in item.keys() - {ENTRY}:
        out.add(
            (*path, key),
            f"unknown key{nearest(key, (ENTRY,))}; an entry has only {ENTRY}",
            code="unknown-key",
        )
    for name, value in params.items():
        key_path = (*path, ENTRY, name)
        is_valid = check_name(name, key_path, out) and check_value(value, key_path, out)
        if is_valid and trainer is not None:
            check_known(trainer, name, [(key_path, value)], out)
    return ParameterSet(params)


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
