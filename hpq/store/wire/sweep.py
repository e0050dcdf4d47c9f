"""The only place, with wire_*, where bytes of Redis become objects, and objects what is stored.

Both sides import it. Numbers are decimal text, times integer ms, structures JSON with sorted keys.
What no version can have written raises DecodeError with key and field; what is newer is left out.

A sweep's metric as `wire` stores it: JSON. Imported by wire only.

The half of `wire` that belongs to early termination: its rule, and what it decided.

The half of `wire` for what comes into a sweep later: further files, and older results.

The half of `wire` that belongs to the launch record: the text that is signed, and back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hpq.domain.sweep import (
    SCHEMA,
    AppendedFile,
    EarlyTerminate,
    Goal,
    Impute,
    Keep,
    Launch,
    Metric,
    ObjectiveValue,
    Rule,
    Sweep,
    TargetReached,
    Wandb,
)
from hpq.domain.trial import Json, Pruning, Trial
from hpq.errors import DecodeError
from hpq.store.wire.fields import Reader, Row, known, word


def encode_metric(metric: Metric | None) -> str:
    """The metric as JSON; empty for none."""
    if metric is None:
        return ""
    return json.dumps(asdict(metric), sort_keys=True, separators=(",", ":"), allow_nan=False)


def decode_metric(text: str) -> Metric | None:
    """The metric from its JSON (ValueError, KeyError where it is not one).

    None for a goal of a newer version: no ranking is better than a wrong one.
    """
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("not a mapping")
    target = data.get("target")
    if not isinstance(data["name"], str) or not isinstance(target, int | float | None):
        raise ValueError("not a metric")
    goal, take = word(Goal, str(data["goal"])), word(ObjectiveValue, str(data["take"]))
    if goal is None:
        return None
    running = data.get("impute_while_running")
    return Metric(
        name=data["name"],
        goal=goal,
        take=take or ObjectiveValue.LAST,
        target=target,
        impute=word(Impute, str(data.get("impute", Impute.WORST))) or Impute.WORST,
        impute_while_running=word(Impute, running) if isinstance(running, str) else None,
    )


def encode_early(early: EarlyTerminate | None) -> str:
    """The rule as JSON, as lua/early.lua reads it; empty for none."""
    return json.dumps(asdict(early), sort_keys=True, separators=(",", ":")) if early else ""


def decode_early(text: str) -> EarlyTerminate | None:
    """The rule from its JSON (ValueError, TypeError, KeyError where it is not one).

    None for a rule of a newer version: its scripts alone know it.
    """
    data = json.loads(text)
    rule = word(Rule, str(data["rule"]))
    if rule is None:
        return None
    return EarlyTerminate(
        rule=rule,
        bands=tuple(int(band) for band in data["bands"]),
        eta=float(data["eta"]),
        strict=data["strict"] is True,
        min_trials=int(data["min_trials"]),
    )


def bands(text: str) -> tuple[int, ...]:
    """The bands that some trial has reached, rising."""
    return tuple(sorted(map(int, text.split())))


def reached(text: str) -> TargetReached:
    """Which value reached the target."""
    return known(TargetReached, text)


def pruning(text: str) -> Pruning:
    """Why a trial was told to stop."""
    return known(Pruning, text)


_FIELD = b"file:"  # a sweep's hash holds each file that grew it under file:STAGE


def encode_file(digest: str, spec: Mapping[str, Json], origin: Mapping[str, Json]) -> str:
    """A file as the script `grow` keeps it."""
    record = {"digest": digest, "spec": spec, "origin": origin}
    return json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)


def decode_files(key: str, row: Row) -> tuple[AppendedFile, ...]:
    """The files that grew a sweep, in the order in which they did.

    Raises:
        DecodeError: one is not what this version writes.
    """
    return tuple(sorted(_files(key, row), key=lambda file: file.at_ms))


def _files(key: str, row: Row) -> Iterator[AppendedFile]:
    for field, raw in row.items():
        if field.startswith(_FIELD):
            try:
                at_ms, added, text = raw.decode().split(" ", 2)
                data = json.loads(text)
                yield AppendedFile(
                    at_ms=int(at_ms),
                    added=int(added),
                    digest=str(data["digest"]),
                    spec=dict(data["spec"]),
                    origin=dict(data["origin"]),
                )
            except (ValueError, TypeError, KeyError) as error:
                raise DecodeError(f"{key}: field {field!r}: {error}") from None


def encode_result(trial: Trial) -> str:
    """A finished trial's result as the script `seal` gives it to one of another sweep."""
    metrics = [part for name, value in trial.metrics.items() for part in (f"m:{name}", repr(value))]
    objective = "" if trial.objective is None else repr(float(trial.objective))
    record = {
        "from": trial.reused or str(trial.id),
        "objective": objective,
        "step": trial.step,
        "metrics": metrics,
        "provenance": trial.provenance,
        "seed": "" if trial.seed is None else str(trial.seed),
    }
    return json.dumps(record, separators=(",", ":"))


def encode_launch(launch: Launch) -> str:
    """The launch record as canonical JSON; the signature covers this text."""
    data: dict[str, Any] = {
        "trainer": launch.trainer,
        "program": launch.program,
        "command": list(launch.command),
        "code": launch.code,
        "code_dir": launch.code_dir,
        "pass_env": list(launch.pass_env),
        "resident": launch.resident,
    }
    if launch.wandb is not None:  # what an older hpq has signed does not have it
        data["wandb"] = launch.wandb
    if launch.bundled:
        data["bundled"] = True
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def decode_launch(text: str) -> Launch:
    """The launch record from its JSON.

    Fields of a newer version are left out; a signature that covers them does not fit any more.

    Raises:
        ValueError: the text is not one (also for a wrong type).
    """
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("not a mapping")
    for field in ("command", "pass_env"):
        data[field] = names(data.get(field, []), field)
    for field in ("trainer", "program", "code", "code_dir"):
        if not isinstance(data.get(field, ""), str):
            raise ValueError(f"{field} is no text")
    data["bundled"] = data.get("bundled") is True
    told = data.get("wandb")
    data["wandb"] = word(Wandb, told) if isinstance(told, str) else None
    return Launch(**{name: data[name] for name in Launch.__slots__ if name in data})


def names(data: Any, what: str = "it") -> tuple[str, ...]:
    """A list of texts as it is read from JSON (ValueError where it is none)."""
    if not isinstance(data, list) or not all(isinstance(name, str) for name in data):
        raise ValueError(f"{what} is no list of texts")
    return tuple(data)


def dumps(value: Any) -> str:
    """Compact JSON, keys sorted, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def dumps_in_order(value: Any) -> str:
    """Compact JSON in the order given, no NaN."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def number(value: float) -> str:
    """A float as the shortest text that reads back the same."""
    return repr(float(value))


def _mapping(text: str) -> dict[str, Json]:
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("not a mapping")
    return data


def encode_sweep(sweep: Sweep) -> dict[str, str]:
    """The fields of a sweep's hash that do not change by themselves (counts are the scripts')."""
    late = {"sampler": sweep.sampler, "search": sweep.search, "run_cap": str(sweep.run_cap)}
    return {
        **(late if sweep.sampler else {}),
        "schema": str(sweep.schema),
        "name": sweep.name,
        "digest": sweep.digest,
        "launch": encode_launch(sweep.launch),
        "signature": sweep.signature,
        "signer": sweep.signer,
        "metric": encode_metric(sweep.metric),
        "goal": sweep.metric.goal if sweep.metric else "",
        "class": sweep.worker_class,
        "owner": sweep.owner,
        "priority": str(sweep.priority),
        "max_parallel": str(sweep.max_parallel),
        "retries": str(sweep.retries),
        "timeout_s": number(sweep.timeout_s),
        "stall_s": number(sweep.stall_s),
        "canary": str(sweep.canary),
        "keep": dumps(asdict(sweep.keep)) if sweep.keep else "",
        "early": encode_early(sweep.early),
        "method": sweep.method,
        "seed": str(sweep.seed),
        **({"replicates": str(sweep.replicates)} if sweep.replicates > 1 else {}),
        "varying": dumps(list(sweep.varying)),
        "tags": dumps(list(sweep.tags)),
        "spec": dumps(sweep.spec),
        "provenance": dumps(sweep.provenance),
        "bundle": sweep.bundle,
    }


def decode_sweep(key: str, sid: str, row: Row, queued: int, running: int, dropped: int) -> Sweep:
    """A sweep from its hash and the sizes of its sorted sets.

    Raises:
        DecodeError: a field is not what this version writes (names it).
    """
    r = Reader(key, row)
    counts = r.counts(queued, running, dropped)
    return Sweep(
        id=sid,
        schema=r.parse("schema", SCHEMA, int),
        name=r.text("name"),
        digest=r.text("digest"),
        launch=r.parse("launch", Launch(), decode_launch),
        signature=r.text("signature"),
        signer=r.text("signer"),
        metric=r.parse("metric", None, decode_metric),
        worker_class=r.text("class"),
        owner=r.text("owner"),
        priority=r.whole("priority"),
        max_parallel=r.whole("max_parallel"),
        retries=r.whole("retries"),
        timeout_s=r.real("timeout_s"),
        stall_s=r.real("stall_s"),
        canary=r.whole("canary"),
        keep=r.parse("keep", None, lambda text: known(Keep, text)),
        early=r.parse("early", None, decode_early),
        method=r.text("method"),
        seed=r.whole("seed"),
        replicates=r.whole("replicates") or 1,
        varying=r.parse("varying", (), lambda text: names(json.loads(text))),
        spec=r.parse("spec", {}, _mapping),
        provenance=r.parse("provenance", {}, _mapping),
        bundle=r.text("bundle"),
        files=decode_files(key, row),
        tags=r.parse("tags", (), lambda text: names(json.loads(text))),
        created_ms=r.whole("created_ms"),
        flag=r.text("flag"),
        held=r.text("held"),
        sampler=r.text("sampler"),
        search=r.text("search"),
        run_cap=r.whole("run_cap"),
        no_more=r.text("no_more"),
        made={by: int(count) for by, count in r.reals(b"made:").items()},
        reached=r.parse("reached", None, reached),
        bands=r.parse("bands", (), bands),
        counts=counts,
    )


def flatten(pairs: Mapping[str, str] | Sequence[tuple[str, str]]) -> list[str]:
    """[k, v, k, v, …] as scripts take fields."""
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    return [part for pair in items for part in pair]
