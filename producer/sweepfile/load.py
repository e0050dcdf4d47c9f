"""From a sweep file and the flags over it to a SweepSpec: the one way in.

Imported by the commands that take a sweep file. Nothing is expanded or written; everything that is
wrong is found in one reading, one line each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path as FilePath

from hpq import command, hyperparams
from hpq.errors import SweepFileError
from hpq.hyperparams import TrainerSpec
from hpq.identity import MAX_SET_BYTES, canonical
from hpq.sweep import DEFAULT_CLASS, EarlyTerminate, Goal, Keep, Metric, Take
from hpq.trial import Json
from producer.sweepfile import checks, early, fit, listed, parameters, schema, sourcefile, yamlfile
from producer.sweepfile.overrides import Flag, apply, flag, from_set
from producer.sweepfile.problems import Problems, shown
from producer.sweepfile.samplers import LIMIT
from producer.sweepfile.space import Space
from producer.sweepfile.spec import LIST, SweepSpec
from producer.sweepfile.spec import count as count_sets

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
    document = yamlfile.parse(sourcefile.read(path), str(path))
    root = document.data
    if not isinstance(root, dict | list):
        place = document.places.find(())[1]
        raise SweepFileError(f"{place}: {shown(root)} is not a sweep; write method and parameters")
    top = replace(document, data={} if isinstance(root, list) else root)
    flags = _flags(run_cap=("count", count), seed=("seed", seed), name=("name", name),
                   trainer=("trainer", trainer))  # fmt: skip
    top = apply(top, [*from_set(overrides or {}, top.data), *flags])
    data = top.data
    assert isinstance(data, dict)
    out = Problems(top.places)
    if isinstance(root, list) and "program" not in data:
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
    _check_count(spec, limit, out)
    _tell_cap(spec, out)
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
    space = parameters.read(data["parameters"], ("parameters",), out)
    if shipped is not None:
        fit.check_space(shipped, space, out)
    largest = 0
    for names, leaf in space.leaves:
        largest += max((len(canonical({"": value})) for _, value in leaf.known()), default=0)
        if data.get("method") == "grid" and leaf.size is None:
            what = "a grid cannot step through it; give values, or write method: random"
            out.add(parameters.place(names), what)
    if largest > MAX_SET_BYTES:
        out.add(("parameters",), f"a set of up to {largest:,} bytes; at most {MAX_SET_BYTES:,}")
    return space


def _check_count(spec: SweepSpec, limit: int | None, out: Problems) -> None:
    """Note a sweep of more sets than are taken; the count is known before any is made."""
    total = None if out.errors else count_sets(spec)
    if total is None or limit is None or total <= limit:
        return
    key = "parameters" if spec.run_cap is None or total < spec.run_cap else "run_cap"
    out.add((key,), f"{total:,} sets, more than {limit:,}; use fewer values, "
            "method: random with a smaller run_cap, or --force")  # fmt: skip


def _tell_cap(spec: SweepSpec, out: Problems) -> None:
    """Say it where run_cap leaves sets out, or asks for more than there are."""
    all_ = None if out.errors else count_sets(replace(spec, run_cap=None))
    cap = spec.run_cap
    if cap is None or all_ is None or cap == all_:
        return
    if cap > all_:
        out.warn(("run_cap",), f"{cap:,} is more than the {all_:,} sets there are")
    elif spec.method in ("grid", LIST):
        out.warn(("run_cap",), f"the first {cap:,} of {all_:,} sets are taken, the others left out")


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
        name=text("name", stem if schema.DISPLAY_NAME.match(stem) else "sweep"),
        method=text("method"),
        metric=None if out.errors else _metric(data.get("metric"), shipped),
        trainer=text("trainer"),
        program=text("program"),
        command=words("command") or (command.DEFAULT if "program" in data else ()),
        code=text("code"),
        pass_env=words("pass_env"),
        resident=data.get("resident") is True,
        description=text("description"),
        project=text("project"),
        entity=text("entity"),
        queue=text("queue", DEFAULT_CLASS),
        owner=text("owner"),
        seed=whole("seed"),
        order=text("order", "grid"),
        priority=whole("priority"),
        max_parallel=whole("max_parallel"),
        retries=whole("retries"),
        timeout_s=schema.seconds(data.get("timeout")) if not out.errors else 0.0,
        stall_s=schema.seconds(data.get("stall")) if not out.errors else 0.0,
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
    goal = own.goal if own and own.name == name else Goal.MINIMIZE
    return Metric(
        name=name,
        goal=Goal(str(data.get("goal", goal))),
        take=Take(str(data.get("value", Take.LAST))),
        target=float(target) if isinstance(target, int | float) else None,
    )
