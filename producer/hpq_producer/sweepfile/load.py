"""Read a sweep file and its command-line overrides into a SweepSpec; check its top level.

One reading reports every problem, one per line. No parameters are drawn and nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path as FilePath

from hpq.code import command
from hpq.domain import trainer_specs
from hpq.domain.identity import MAX_PARAMS_BYTES, canonical
from hpq.domain.sweep import (
    DEFAULT_QUEUE,
    FUNCTION,
    EarlyTerminate,
    Goal,
    Impute,
    Keep,
    Metric,
    ObjectiveValue,
    Wandb,
)
from hpq.domain.trainer_specs import BUILT_IN, TrainerSpec
from hpq.domain.trial import Json
from hpq.errors import SweepFileError
from hpq.search.conditions import Partial
from hpq.search.samplers import LIMIT
from hpq.search.space import Space
from hpq.shell import shell_hint
from hpq_producer.sweepfile import (
    compatibility,
    conditions,
    early_terminate,
    explicit_sets,
    parameters,
    schema,
    set_counts,
    values,
    yaml_reader,
)
from hpq_producer.sweepfile import source as sweep_source
from hpq_producer.sweepfile.errors import Problems, SourceMap, shown
from hpq_producer.sweepfile.source import Override, apply, flag_override, set_overrides
from hpq_producer.sweepfile.spec import LIST, SweepSpec

_LIST_TRAINER = "cifar10"  # the format of the article's list has no key for the code

Keys = Mapping[str, Json]


def load(
    path: FilePath,
    *,
    text: str = "",
    overrides: Mapping[str, str] | None = None,
    count: int | None = None,
    seed: int | None = None,
    name: str | None = None,
    trainer: str | None = None,
    limit: int | None = LIMIT,
) -> SweepSpec:
    """Read and check a sweep file, or the `text` of a dict, which messages name by `path`.

    `overrides` are the --set flags (dotted key → YAML); `count`, `seed`, `name` and `trainer` are
    the flags of those names. More than `limit` trials are an error (None = any, for --force).

    Raises:
        SweepFileError: the file or a flag is invalid; one line per problem.
    """
    content = text or sweep_source.read(path)
    if path.suffix == ".py":
        line = f"{path}: a script; `{shell_hint(['hpq', 'init', str(path)])}` writes its sweep file"
        raise SweepFileError(line, code="sweep-file-is-script")
    document = yaml_reader.parse(content, str(path))
    if text:  # the user never saw its lines
        document = replace(document, source_map=SourceMap(file=str(path)))
    root = document.data
    if not isinstance(root, dict | list):
        place = document.source_map.find(())[1]
        line = f"{place}: {shown(root)} is not a sweep; write method and parameters"
        raise SweepFileError(line, code="sweep-file-empty")
    top = replace(document, data={} if isinstance(root, list) else root)
    flags = _flags(run_cap=("count", count), seed=("seed", seed), name=("name", name),
                   trainer=("trainer", trainer))  # fmt: skip
    top = apply(top, [*set_overrides(overrides or {}, top.data), *flags])
    data = top.data
    assert isinstance(data, dict)
    out = Problems(top.source_map)
    if isinstance(root, list) and not {"program", "command"} & data.keys():
        data.setdefault("trainer", _LIST_TRAINER)
    check_keys(data, isinstance(root, list), out)
    built_in = None if "program" in data else trainer_specs.BUILT_IN.get(str(data.get("trainer")))
    if built_in is None:
        compatibility.warn_of_words(top.words, out)
    if isinstance(root, list):
        sets = explicit_sets.read(root, built_in, out)
        spec = _spec(data, path.stem, built_in, out, source={**data, LIST: root})
        spec = replace(spec, method=LIST, listed=sets, varying=explicit_sets.varying(sets))
    else:
        space = _space(data, built_in, out)
        spec = _spec(data, path.stem, built_in, out, source=data)
        spec = replace(spec, space=space, varying=space.varying)
        if "points" in data and not out.errors:
            is_grid = spec.method == "grid"
            points = conditions.read_points(data["points"], space, is_grid, out)
            spec = replace(spec, points=points)
    set_counts.check_count(spec, limit, out)
    out.raise_errors()
    seen = replace(spec, warnings=out.sorted_warnings(), source_map=out.source_map)
    return replace(seen, text=text)


def _flags(**flags: tuple[str, Json]) -> list[Override]:
    """Return the overrides of the flags that are set: key=(flag, value)."""
    return [
        flag_override(f"--{name} {value}", (key,), value)
        for key, (name, value) in flags.items()
        if value is not None
    ]


def _space(data: Keys, built_in: TrainerSpec | None, out: Problems) -> Space:
    """Read the search space; check it against the method and a built-in trainer's limits."""
    if "parameters" not in data:
        return Space.of({})
    leaves = parameters.read_leaves(data["parameters"], ("parameters",), out)
    space = _conditioned(data, leaves, out)
    if built_in is not None:
        compatibility.check_space(built_in, space, out)
    largest = 0
    for names, leaf in space.leaves:
        largest += max((len(canonical({"": value})) for _, value in leaf.known()), default=0)
        if data.get("method") == "grid" and leaf.size is None:
            what = "a grid needs a finite list; write values, or method: random"
            out.add(parameters.path_of(names), what, code="not-a-grid")
    if largest > MAX_PARAMS_BYTES:
        out.add(
            ("parameters",),
            f"up to {largest:,} bytes per trial, more than {MAX_PARAMS_BYTES:,}; shorten values",
            code="set-too-large",
        )
    return space


def _conditioned(data: Keys, leaves: conditions.Leaves, out: Problems) -> Space:
    """Return the search space with the conditions of `when` and `exclude`."""
    if out.errors:
        return Space.of(leaves)
    is_grid = data.get("method") == "grid"
    when = conditions.read_when(data["when"], leaves, is_grid, out) if "when" in data else ()
    none: tuple[Partial, ...] = ()
    rest = data.get("exclude")
    exclude = conditions.read_exclude(rest, leaves, is_grid, out) if "exclude" in data else none
    return Space.of(leaves, when, exclude)


def _spec(
    data: Keys, stem: str, built_in: TrainerSpec | None, out: Problems, *, source: Keys
) -> SweepSpec:
    """Build the spec without its parameters; it is invalid if there are errors."""

    def text(key: str, default: str = "") -> str:
        return str(data.get(key, default))

    def integer(key: str) -> int:
        value = data.get(key, 0)
        return value if isinstance(value, int) else 0

    def words(key: str) -> tuple[str, ...]:
        value = data.get(key)
        return tuple(map(str, value)) if isinstance(value, list) else ()

    return SweepSpec(
        name=text("name", "sweep" if schema.NAME(stem) else stem),
        method=text("method"),
        metric=None if out.errors else _metric(data.get("metric"), built_in),
        trainer=text("trainer"),
        program=text("program"),
        command=words("command") or (command.DEFAULT if "program" in data else ()),
        code=text("code"),
        pass_env=words("pass_env"),
        resident=data.get("resident") is True,
        preload=words("preload"),
        wandb=Wandb.STAND_IN if out.errors else Wandb(text("wandb", Wandb.STAND_IN)),
        queue=text("queue", FUNCTION if data.get("trainer") == FUNCTION else DEFAULT_QUEUE),
        owner=text("owner"),
        seed=integer("seed"),
        replicates=integer("replicates") or 1,
        order=text("order", "grid"),
        sampler=text("sampler"),
        priority=integer("priority"),
        max_parallel=integer("max_parallel"),
        retries=integer("retries"),
        timeout_s=values.seconds(data.get("timeout")) if not out.errors else 0.0,
        stall_s=values.seconds(data.get("stall")) if not out.errors else 0.0,
        keep=None if out.errors else _keep(data.get("keep")),
        early=None if out.errors else _early(data.get("early_terminate")),
        run_cap=integer("run_cap") or None,
        source=source,
    )


def _keep(data: Json) -> Keep | None:
    return Keep(**data) if isinstance(data, dict) else None  # type: ignore[arg-type]


def _early(data: Json) -> EarlyTerminate | None:
    return early_terminate.read(data) if isinstance(data, dict) else None


def _metric(data: Json, built_in: TrainerSpec | None) -> Metric | None:
    """Read the file's metric; a built-in trainer's metric is the default, and so is its goal.

    W&B's default goal is minimize, which would rank the worst accuracy first.
    """
    own = built_in.metric if built_in else None
    if not isinstance(data, dict):
        return own
    name, target = str(data["name"]), data.get("target")
    running = data.get("impute_while_running", False)
    goal = own.goal if own and own.name == name else Goal.MINIMIZE
    return Metric(
        name=name,
        goal=Goal(str(data.get("goal", goal))),
        take=ObjectiveValue(str(data.get("value", ObjectiveValue.LAST))),
        target=float(target) if isinstance(target, int | float) else None,
        impute=Impute(str(data.get("impute", Impute.WORST))),
        impute_while_running=None if running in (False, "false") else Impute(str(running)),
    )


_EXCLUDED_BY_LIST = frozenset({"method", "parameters", "order", "when", "exclude", "points"})


def check_keys(data: Mapping[str, Json], is_list: bool, out: Problems) -> None:
    """Report errors of the top-level keys; `is_list`: the file lists its parameter sets."""
    schema.check(data, schema.TOP, (), out)
    similar = _similar_to_unknown(data)
    if "metric" in data:
        _check_metric(data["metric"], out)
    if "early_terminate" in data:
        early_terminate.check(data, out)
    if "keep" in data:
        _check_keep(data, out)
    compatibility.check_code(data, out)
    if is_list:
        for key in _EXCLUDED_BY_LIST & data.keys():
            out.add_conflict((key,), "excludes a list of entries; remove it")
        return
    if "parameters" not in data and "parameters" not in similar:
        out.add_missing(
            ("parameters",), "missing; write at least one, such as lr: {values: [0.1, 0.01]}"
        )
    _check_method(data, similar, out)


def _similar_to_unknown(data: Mapping[str, Json]) -> frozenset[str]:
    """Return the keys that unknown keys resemble: reporting them as missing would repeat it."""
    unknown = data.keys() - schema.TOP.keys()
    return frozenset(k for word in unknown for k in get_close_matches(word, schema.TOP, n=1))


def _check_method(data: Mapping[str, Json], similar: frozenset[str], out: Problems) -> None:
    method = data.get("method")
    if "method" not in data and "method" not in similar:
        out.add_missing(("method",), "missing; write grid, random or bayes")
    if method == "bayes":
        if "metric" not in data and str(data.get("trainer")) not in BUILT_IN:
            out.add_missing(
                ("metric",), "missing; bayes needs {name: …, goal: minimize or maximize}"
            )
    elif "sampler" in data:
        out.add_conflict(("sampler",), "is for method: bayes; remove it")
    if method in ("random", "bayes") and data.get("order") == "shuffle":
        out.warn(("order",), f"shuffle has no effect with method: {method}", code="order-ignored")


def _check_keep(data: Mapping[str, Json], out: Problems) -> None:
    value = data["keep"]
    if not isinstance(value, dict) or not value:
        out.add(("keep",), f"{shown(value)} is not a mapping; write {{best: 3, last: 1}}")
        return
    schema.check(value, schema.KEEP, ("keep",), out)
    if value.get("best") and "metric" not in data and str(data.get("trainer")) not in BUILT_IN:
        out.add_missing(("keep", "best"), "needs a metric; write metric: {name: …, goal: …}")


def _check_metric(value: Json, out: Problems) -> None:
    if not isinstance(value, dict):
        out.add(("metric",), f"{shown(value)} is not a mapping; write {{name: …}}")
        return
    schema.check(value, schema.METRIC, ("metric",), out)
    if "name" not in value:
        out.add_missing(("metric",), "needs name")
