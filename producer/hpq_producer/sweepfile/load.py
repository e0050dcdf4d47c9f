"""Recognize a sweep file; read it and its command-line overrides into a SweepSpec.

`load` checks keys together. One reading reports every problem, one per line. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import get_args

import yaml
from pydantic import TypeAdapter, ValidationError

from hpq.domain.constraint import Constraint
from hpq.domain.identity import MAX_PARAMS_BYTES, ParameterSet, canonical
from hpq.domain.sweep import Goal, Impute, Metric, ObjectiveValue
from hpq.domain.trainer_specs import BUILT_IN, TrainerSpec
from hpq.domain.trial import Json
from hpq.errors import SweepFileError, UserError
from hpq.search.samplers import LIMIT, Sampler
from hpq.search.space import Space
from hpq.shell import shell_hint
from hpq.yamlfile import yaml_reader
from hpq.yamlfile.document import (
    MAX_BYTES,
    Override,
    apply,
    check_text,
    flag_override,
    known_document,
    read,
    resolve,
)
from hpq.yamlfile.problems import Problems, SourceMap, printable, shown
from hpq.yamlfile.strict_model import check
from hpq.yamlfile.yaml_reader import Document
from hpq_producer.sweepfile import check_code, conditions, parameters
from hpq_producer.sweepfile.early_terminate import Hyperband
from hpq_producer.sweepfile.key_types import Name
from hpq_producer.sweepfile.model import (
    CommonKeys,
    Method,
    MetricKeys,
    ObjectiveKeys,
    Parameter,
    SweepFile,
)
from hpq_producer.sweepfile.parameters import ENTRY
from hpq_producer.sweepfile.points import PointRules, read_points
from hpq_producer.sweepfile.spec import LIST, SweepSpec, check_count
from hpq_producer.sweepfile.unknown_keys import drop_unknown

_LIST_TRAINER = "cifar10"  # the format of the article's list has no key for the code

Data = Mapping[str, Json]


def load(
    path: Path,
    *,
    text: str = "",
    overrides: Mapping[str, str] | None = None,
    count: int | None = None,
    name: str | None = None,
    limit: int | None = LIMIT,
) -> SweepSpec:
    """Read and check a sweep file, or the `text` of a dict, which messages name by `path`.

    `overrides` are the --set flags (dotted key → YAML); `count` and `name` are the flags of those
    names. More than `limit` trials are an error (None = any, for --force).

    Raises:
        SweepFileError: the file or a flag is invalid; one line per problem.
    """
    document = _parse(path, text)
    root = document.data
    top = replace(document, data={} if isinstance(root, list) else root)
    flags = _flags(run_cap=("count", count), name=("name", name))
    top = apply(top, [*set_overrides(overrides or {}, top.data), *flags])
    data = top.data
    assert isinstance(data, dict)
    if isinstance(root, list) and not {"program", "command"} & data.keys():
        data.setdefault("trainer", _LIST_TRAINER)
    out = Problems(top.source_map)
    if not isinstance(root, list):
        drop_unknown(data, SweepFile.model_fields, out)
    keys = check(CommonKeys if isinstance(root, list) else SweepFile, data, (), out)
    _check_together(data, keys, out)
    built_in = None if "program" in data else BUILT_IN.get(str(data.get("trainer")))
    if built_in is None:
        check_code.check_words(top.words, out)
    space: Space | None = None
    listed: tuple[ParameterSet, ...] = ()
    points: tuple[ParameterSet, ...] = ()
    if isinstance(root, list):
        listed = parameters.read_sets(root, built_in, out)
    else:
        space = _space(data, built_in, out)
        if "points" in data and not out.errors:
            found = read_points(data["points"], PointRules(space, _is_grid(data)), out)
            points = tuple(point.params for point in found)
    out.raise_errors()
    assert keys is not None
    objectives = _objectives(keys, built_in)
    spec = SweepSpec(
        keys=keys,
        name=keys.name or _name(path.stem),
        metric=objectives[0] if objectives else _metric(keys.metric, built_in),
        objectives=objectives,
        constraints=tuple(map(Constraint.parse, keys.constraints)),
        space=space,
        listed=listed,
        points=points,
        varying=parameters.varying(listed) if space is None else space.varying,
        source={**data, LIST: root} if space is None else data,
        text=text,
        source_map=out.source_map,
    )
    check_count(spec, limit, out)
    out.raise_errors()
    return replace(spec, warnings=out.sorted_warnings())


def _parse(path: Path, text: str) -> Document:
    """Parse the text, or else the file: a mapping, or a list of trials."""
    content = text or read(path)
    if path.suffix == ".py":
        line = f"{path}: a script; `{shell_hint(['hpq', 'init', str(path)])}` writes its sweep file"
        raise SweepFileError(line, code="sweep-file-is-script")
    document = sweep_document(content, str(path))
    if text:  # the user never saw its lines
        document = replace(document, source_map=SourceMap(file=str(path)))
    return document


def _flags(**flags: tuple[str, Json]) -> list[Override]:
    """Return the overrides of the flags that are set: key=(flag, value)."""
    return [
        flag_override(f"--{name} {value}", (key,), value)
        for key, (name, value) in flags.items()
        if value is not None
    ]


def _space(data: Data, built_in: TrainerSpec | None, out: Problems) -> Space:
    """Read the search space; check it against the method and a built-in trainer's limits."""
    if "parameters" not in data:
        return Space.of({})
    leaves = parameters.read_leaves(data["parameters"], ("parameters",), out)
    space = _conditioned(data, leaves, out)
    if built_in is not None:
        check_code.check_space(built_in, space, out)
    largest = 0
    for names, leaf in space.parameters.items():
        # A draw of a range has more digits than its ends.
        values = [value for _, value in leaf.known()] + [leaf.draw(Random(0))]
        largest += max(len(canonical({".".join(names): value})) for value in values)
        if _is_grid(data) and leaf.size is None:
            what = "a grid needs a finite list; write values, or method: random"
            out.add(parameters.path_of(names), what, code="not-a-grid")
    if largest > MAX_PARAMS_BYTES:
        out.add(
            ("parameters",),
            f"up to {largest:,} bytes per trial, more than {MAX_PARAMS_BYTES:,};"
            " use fewer parameters, or shorter values",
            code="set-too-large",
        )
    return space


def _conditioned(data: Data, leaves: conditions.Leaves, out: Problems) -> Space:
    """Return the search space with `when`, `exclude`, `derive`, `require` and `zip`."""
    if out.errors:
        return Space.of(leaves)
    is_grid = _is_grid(data)
    when = conditions.read_when(data["when"], leaves, is_grid, out) if "when" in data else ()
    rest = data.get("exclude")
    exclude = conditions.read_exclude(rest, leaves, is_grid, out) if "exclude" in data else ()
    derive = conditions.read_derive(data["derive"], leaves, out) if "derive" in data else ()
    names = tuple(name for name, _ in derive)
    rest = data.get("require")
    require = conditions.read_require(rest, leaves, names, out) if "require" in data else ()
    followers = conditions.read_zip(data, leaves, when, out) if "zip" in data else ()
    return Space.of(leaves, when, exclude, derive, require, followers)


def _is_grid(data: Data) -> bool:
    return data.get("method") == "grid"


def _name(stem: str) -> str:
    """Return a file's name as the sweep's, if it can be one."""
    try:
        return TypeAdapter(Name).validate_python(stem)
    except ValidationError:
        return "sweep"


def _objectives(keys: CommonKeys, built_in: TrainerSpec | None) -> tuple[Metric, ...]:
    """Return the file's metrics; the one of early_terminate is the first."""
    early = keys.early_terminate.metric if keys.early_terminate else None
    found = sorted(keys.metrics, key=lambda one: one.name != early) if early else keys.metrics
    return tuple(Metric(name=one.name, goal=_goal(one, built_in)) for one in found)


def _goal(keys: ObjectiveKeys, built_in: TrainerSpec | None) -> Goal:
    """Return a metric's goal; that of a built-in trainer's metric is the trainer's by default.

    W&B's default goal is minimize, which would rank the worst accuracy first.
    """
    own = built_in.metric if built_in else None
    return keys.goal or (own.goal if own and own.name == keys.name else Goal.MINIMIZE)


def _metric(keys: MetricKeys | None, built_in: TrainerSpec | None) -> Metric | None:
    """Return the file's metric; a built-in trainer's metric is the default."""
    if keys is None:
        return built_in.metric if built_in else None
    running = keys.impute_while_running
    return Metric(
        name=keys.name,
        goal=_goal(keys, built_in),
        take=keys.value or ObjectiveValue.LAST,
        target=keys.target,
        terminate_on_nan=keys.terminate_on_nan or 0,
        impute=keys.impute,
        impute_while_running=None if running in (False, "false") else Impute(str(running)),
    )


def _check_together(data: Data, keys: CommonKeys | None, out: Problems) -> None:
    """Report top-level keys that exclude or need each other; None: some key is invalid."""
    check_code.check_code(data, out)
    method, keep = data.get("method"), data.get("keep")
    if keys is not None:
        _check_metrics(data, keys, out)
    if not {"metric", "metrics"} & data.keys() and str(data.get("trainer")) not in BUILT_IN:
        what = "needs a metric; write metric: {name: val_loss, goal: minimize}"
        if method == "bayes":
            out.add_missing(
                ("metric",),
                "missing; bayes needs one, e.g. {name: val_loss, goal: minimize}",
            )
        if isinstance(keep, dict) and keep.get("best"):
            out.add_missing(("keep", "best"), what)
        if keys is not None and keys.early_terminate:
            out.add_missing(("early_terminate",), what)
        if "constraints" in data:
            out.add_missing(("constraints",), what)
    metric = data.get("metric")
    if keys and keys.metric and isinstance(metric, dict) and keys.metric.name != metric.get("name"):
        what = f"wandb.log reports it as {keys.metric.name!r}, which hpq shows"
        out.warn(("metric", "name"), what, code="metric-renamed")
    if "method" in data and method != "bayes" and "sampler" in data:
        out.add_conflict(("sampler",), "is for method: bayes; write that, or remove it")
    _warn_of_ignored(data, keys, out)


def _warn_of_ignored(data: Data, keys: CommonKeys | None, out: Problems) -> None:
    """Warn of keys that have no effect beside another one."""
    method = data.get("method")
    early = keys.early_terminate if keys else None
    if method in ("random", "bayes") and data.get("order") == "shuffle":
        out.warn(("order",), f"shuffle has no effect with method: {method}", code="key-ignored")
    if isinstance(early, Hyperband) and (unused := early.unused()):
        key, why = unused
        out.warn(("early_terminate", key), f"no effect {why}, as with W&B", code="key-ignored")


def _check_metrics(data: Data, keys: CommonKeys, out: Problems) -> None:
    """Report what several metrics, or constraints, exclude or need."""
    early = keys.early_terminate
    names = [one.name for one in keys.metrics] or [keys.metric.name if keys.metric else ""]
    if early and early.metric and early.metric not in names:
        allowed = " or ".join(names) or "one that it has"
        what = f"{shown(early.metric)} is not a metric of the sweep; write {allowed}"
        out.add(("early_terminate", "metric"), what)
    if (keys.metrics or keys.constraints) and keys.sampler in (Sampler.CMAES, Sampler.QMC):
        what = f"{keys.sampler} learns from one metric alone; write auto, gp, tpe or nsga2"
        out.add_conflict(("sampler",), what)
    if not keys.metrics:
        return
    if "metric" in data:
        out.add_conflict(("metric",), "excludes metrics; keep one of the two")
    if keys.keep and keys.keep.best:
        what = "several metrics rank no trial first; write keep: {last: N}"
        out.add_conflict(("keep", "best"), what)
    if early and not early.metric:
        out.add_missing(("early_terminate",), f"needs metric: {' or '.join(names)}")


_SWEEP_KEYS = ("method", "parameters", "program", "trainer", "command")
_NO_SWEEP = (
    "not a sweep file: it has no key method, parameters, program, trainer or command; write"
    " method and parameters, or name another file"
)


def sweep_document(text: str, file: str) -> Document:
    """Parse the text of a sweep file: a mapping, or a list of trials. Raises as known_document."""
    return known_document(
        text, file, _SWEEP_KEYS, _NO_SWEEP, code="sweep-file-empty", may_be_list=True
    )


def is_sweep_file(path: Path) -> bool:
    """Return whether a file is certainly a sweep file; if in doubt it is code, which is hashed."""
    if path.suffix not in (".yaml", ".yml"):
        return False
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return False
        text = path.read_bytes()
        if b"parameters" not in text and ENTRY.encode() not in text:
            return False
        data = yaml_reader.parse(text.decode(), str(path)).data
    except (OSError, UnicodeDecodeError, UserError, yaml.YAMLError):
        return False
    if isinstance(data, list):
        return bool(data) and all(isinstance(entry, dict) and ENTRY in entry for entry in data)
    return isinstance(data, dict) and _is_sweep(data)


def _is_sweep(data: Mapping[str, Json]) -> bool:
    names_code = data.get("method") in get_args(Method) or not data.keys().isdisjoint(
        ("program", "trainer", "command")
    )
    space = data.get("parameters")
    if not names_code or not isinstance(space, dict):
        return False
    return any(
        isinstance(p, dict) and not Parameter.model_fields.keys().isdisjoint(p)
        for p in space.values()
    )


def set_overrides(overrides: Mapping[str, str], data: Json) -> Iterable[Override]:
    """Yield the overrides of `--set`; values are parsed as YAML.

    Raises:
        SweepFileError: a value is not YAML, or a key is empty.
    """
    for key, text in overrides.items():
        label = printable(f"--set {key}={text}")
        if not all(key.split(".")):
            raise SweepFileError(
                f"{label}: empty key; write --set KEY=VALUE, e.g. parameters.lr.min=0.1"
            )
        check_text(text, label)
        space = data.get("parameters") if isinstance(data, dict) else None
        if key not in SweepFile.model_fields and isinstance(space, dict) and key in space:
            meant = printable(f"parameters.{key}.value={text}")
            line = f"{label}: {key} is a parameter; write --set {meant}"
            raise SweepFileError(line, code="unknown-key")
        yield label, resolve(key, data), yaml_reader.parse(text or "''", label)
