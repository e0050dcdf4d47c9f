"""From a sweep file and the flags over it to a SweepSpec: the one way in.

Imported by the commands that take a sweep file. Nothing is expanded or written; everything that is
wrong is found in one reading, one line each.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path as FilePath

from hpq import command, hyperparams
from hpq.errors import SweepFileError
from hpq.hyperparams import TrainerSpec
from hpq.identity import MAX_SET_BYTES, canonical
from hpq.search.conditions import Partial
from hpq.search.samplers import LIMIT
from hpq.search.space import Space
from hpq.sweep import DEFAULT_CLASS, EarlyTerminate, Goal, Impute, Keep, Metric, Take, Wandb
from hpq.trial import Json
from producer.sweepfile import (
    checks,
    conditions,
    counts,
    early,
    fit,
    listed,
    misfits,
    parameters,
    points,
    schema,
    sourcefile,
    values,
    yaml_reader,
)
from producer.sweepfile.overrides import Flag, apply, flag, from_set
from producer.sweepfile.problems import Problems, shown
from producer.sweepfile.spec import LIST, SweepSpec

_LIST_TRAINER = "cifar10"  # the article's list has no place to name its code

Keys = Mapping[str, Json]


def load(
    path: FilePath,
    *,
    overrides: Mapping[str, str] | None = None,
    count: int | None = None,
    seed: int | None = None,
    name: str | None = None,
    trainer: str | None = None,
    limit: int | None = LIMIT,
) -> SweepSpec:
    """The spec of a sweep file.

    `overrides` are the --set flags (dotted key: text as the file would have it), the others the
    flags of those names; `limit` is the most sets that are taken (None = any, for --force).

    Raises:
        SweepFileError: something is wrong with the file or a flag; one line for each thing.
    """
    text = sourcefile.read(path)
    if path.suffix == ".py":
        raise SweepFileError(
            f"{path}: a script; `hpq init {shlex.quote(str(path))}` writes its sweep file",
            code="sweep-file-is-script",
        )
    document = yaml_reader.parse(text, str(path))
    root = document.data
    if not isinstance(root, dict | list):
        place = document.places.find(())[1]
        raise SweepFileError(
            f"{place}: {shown(root)} is not a sweep; write method and parameters",
            code="sweep-file-empty",
        )
    top = replace(document, data={} if isinstance(root, list) else root)
    flags = _flags(run_cap=("count", count), seed=("seed", seed), name=("name", name),
                   trainer=("trainer", trainer))  # fmt: skip
    top = apply(top, [*from_set(overrides or {}, top.data), *flags])
    data = top.data
    assert isinstance(data, dict)
    out = Problems(top.places)
    if isinstance(root, list) and not {"program", "command"} & data.keys():
        data.setdefault("trainer", _LIST_TRAINER)
    checks.check_keys(data, isinstance(root, list), out)
    shipped = None if "program" in data else hyperparams.SHIPPED.get(str(data.get("trainer")))
    if shipped is None:
        fit.warn_of_words(top.words, out)
    if isinstance(root, list):
        sets = listed.read(root, shipped, out)
        spec = _spec(data, path.stem, shipped, out, source={**data, LIST: root})
        spec = replace(spec, method=LIST, listed=sets, varying=listed.varying(sets))
    else:
        space = _space(data, shipped, out)
        spec = _spec(data, path.stem, shipped, out, source=data)
        spec = replace(spec, space=space, varying=space.varying)
        if "points" in data and not out.errors:
            is_grid = spec.method == "grid"
            spec = replace(spec, points=points.read(data["points"], space, is_grid, out))
    counts.check(spec, limit, out)
    if shipped is not None:
        misfits.check(shipped, spec, out)
    out.check()
    return replace(spec, warnings=out.warned())


def _flags(**given: tuple[str, Json]) -> list[Flag]:
    """The flags that were given, each with the key that it sets."""
    return [
        flag(f"--{word} {value}", (key,), value)
        for key, (word, value) in given.items()
        if value is not None
    ]


def _space(data: Keys, shipped: TrainerSpec | None, out: Problems) -> Space:
    """The search space, checked against the method and, for a shipped trainer, its limits."""
    if "parameters" not in data:
        return Space.of({})
    leaves = parameters.read_leaves(data["parameters"], ("parameters",), out)
    space = _conditioned(data, leaves, out)
    if shipped is not None:
        fit.check_space(shipped, space, out)
    largest = 0
    for names, leaf in space.leaves:
        largest += max((len(canonical({"": value})) for _, value in leaf.known()), default=0)
        if data.get("method") == "grid" and leaf.size is None:
            what = "a grid cannot step through it; give values, or write method: random"
            out.add(parameters.place(names), what, code="not-a-grid")
    if largest > MAX_SET_BYTES:
        out.add(
            ("parameters",),
            f"a set of up to {largest:,} bytes; at most {MAX_SET_BYTES:,}",
            code="set-too-large",
        )
    return space


def _conditioned(data: Keys, leaves: conditions.Leaves, out: Problems) -> Space:
    """The space with what `when` and `exclude` say of it."""
    if out.errors:
        return Space.of(leaves)
    is_grid = data.get("method") == "grid"
    when = conditions.read_when(data["when"], leaves, is_grid, out) if "when" in data else ()
    none: tuple[Partial, ...] = ()
    rest = data.get("exclude")
    exclude = conditions.read_exclude(rest, leaves, is_grid, out) if "exclude" in data else none
    return Space.of(leaves, when, exclude)


def _spec(
    data: Keys, stem: str, shipped: TrainerSpec | None, out: Problems, *, source: Keys
) -> SweepSpec:
    """The spec without its sets. Where something is wrong it holds nonsense, and `load` raises."""

    def text(key: str, default: str = "") -> str:
        return str(data.get(key, default))

    def whole(key: str) -> int:
        value = data.get(key, 0)
        return value if isinstance(value, int) else 0

    def words(key: str) -> tuple[str, ...]:
        value = data.get(key)
        return tuple(map(str, value)) if isinstance(value, list) else ()

    return SweepSpec(
        name=text("name", "sweep" if schema.NAME(stem) else stem),
        method=text("method"),
        metric=None if out.errors else _metric(data.get("metric"), shipped),
        trainer=text("trainer"),
        program=text("program"),
        command=words("command") or (command.DEFAULT if "program" in data else ()),
        code=text("code"),
        pass_env=words("pass_env"),
        resident=data.get("resident") is True,
        wandb=Wandb.STAND_IN if out.errors else Wandb(text("wandb", Wandb.STAND_IN)),
        description=text("description"),
        project=text("project"),
        entity=text("entity"),
        queue=text("queue", DEFAULT_CLASS),
        owner=text("owner"),
        seed=whole("seed"),
        replicates=whole("replicates") or 1,
        order=text("order", "grid"),
        sampler=text("sampler"),
        priority=whole("priority"),
        max_parallel=whole("max_parallel"),
        retries=whole("retries"),
        timeout_s=values.seconds(data.get("timeout")) if not out.errors else 0.0,
        stall_s=values.seconds(data.get("stall")) if not out.errors else 0.0,
        keep=None if out.errors else _keep(data.get("keep")),
        early=None if out.errors else _early(data.get("early_terminate")),
        run_cap=whole("run_cap") or None,
        source=source,
    )


def _keep(data: Json) -> Keep | None:
    return Keep(**data) if isinstance(data, dict) else None  # type: ignore[arg-type]


def _early(data: Json) -> EarlyTerminate | None:
    return early.read(data) if isinstance(data, dict) else None


def _metric(data: Json, shipped: TrainerSpec | None) -> Metric | None:
    """The file's metric; a shipped trainer's own stands in for it, and for the goal it leaves out.

    W&B's default goal is minimize, which would name the worst accuracy the best.
    """
    own = shipped.metric if shipped else None
    if not isinstance(data, dict):
        return own
    name, target = str(data["name"]), data.get("target")
    running = data.get("impute_while_running", False)
    goal = own.goal if own and own.name == name else Goal.MINIMIZE
    return Metric(
        name=name,
        goal=Goal(str(data.get("goal", goal))),
        take=Take(str(data.get("value", Take.LAST))),
        target=float(target) if isinstance(target, int | float) else None,
        impute=Impute(str(data.get("impute", Impute.WORST))),
        impute_while_running=None if running in (False, "false") else Impute(str(running)),
    )
