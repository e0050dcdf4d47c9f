"""The only place where bytes of Redis become objects, and objects what is stored.

Both sides import it. Numbers are decimal text, times integer milliseconds, structures JSON with
sorted keys. A value that no version can have written raises DecodeError with key and field; fields
and words of a newer version are passed over, so that readers go on while versions change.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hpq import wire_early, wire_growth
from hpq.errors import DecodeError
from hpq.fields import Reader, Row, known, word
from hpq.sweep import SCHEMA, Counts, Goal, Keep, Launch, Metric, Sweep, Take
from hpq.trial import (
    Artifacts,
    Checkpoint,
    Failure,
    FailureKind,
    Json,
    Params,
    Trial,
    TrialId,
    TrialState,
)

METRIC_FIELD = b"m:"  # a trial's hash holds the last value of metric x under m:x


def dumps(value: Any) -> str:
    """Compact JSON, keys sorted, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def dumps_in_order(value: Any) -> str:
    """Compact JSON in the order given, no NaN."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def number(value: float) -> str:
    """A float as the shortest text that reads back the same."""
    return repr(float(value))


def encode_launch(launch: Launch) -> str:
    """The launch record as canonical JSON; the signature covers this text."""
    return dumps(
        {
            "trainer": launch.trainer,
            "program": launch.program,
            "command": list(launch.command),
            "code": launch.code,
            "code_dir": launch.code_dir,
            "pass_env": list(launch.pass_env),
            "resident": launch.resident,
        }
    )


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
        data[field] = _names(data.get(field, []), field)
    for field in ("trainer", "program", "code", "code_dir"):
        if not isinstance(data.get(field, ""), str):
            raise ValueError(f"{field} is no text")
    return Launch(**{name: data[name] for name in Launch.__slots__ if name in data})


def _names(data: Any, what: str = "it") -> tuple[str, ...]:
    if not isinstance(data, list) or not all(isinstance(name, str) for name in data):
        raise ValueError(f"{what} is no list of texts")
    return tuple(data)


def _mapping(text: str) -> dict[str, Json]:
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("not a mapping")
    return data


def encode_metric(metric: Metric | None) -> str:
    """The metric as JSON; empty for none."""
    if metric is None:
        return ""
    data = {"name": metric.name, "goal": metric.goal, "take": metric.take, "target": metric.target}
    return dumps(data)


def decode_metric(text: str) -> Metric | None:
    """The metric from its JSON (ValueError, KeyError where it is not one).

    None for a goal of a newer version: no ranking is better than a wrong one.
    """
    data = _mapping(text)
    target = data.get("target")
    if not isinstance(data["name"], str) or not isinstance(target, int | float | None):
        raise ValueError("not a metric")
    goal, take = word(Goal, str(data["goal"])), word(Take, str(data["take"]))
    if goal is None:
        return None
    return Metric(name=data["name"], goal=goal, take=take or Take.LAST, target=target)


def encode_sweep(sweep: Sweep) -> dict[str, str]:
    """The fields of a sweep's hash that do not change by themselves (counts are the scripts')."""
    return {
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
        "early": wire_early.encode(sweep.early),
        "method": sweep.method,
        "seed": str(sweep.seed),
        "varying": dumps(list(sweep.varying)),
        "tags": dumps(list(sweep.tags)),
        "spec": dumps(sweep.spec),
        "provenance": dumps(sweep.provenance),
    }


def decode_sweep(key: str, sid: str, row: Row, queued: int, running: int, dropped: int) -> Sweep:
    """A sweep from its hash and the sizes of its sorted sets.

    Raises:
        DecodeError: a field is not what this version writes (names it).
    """
    r = Reader(key, row)
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
        early=r.parse("early", None, wire_early.decode),
        method=r.text("method"),
        seed=r.whole("seed"),
        varying=r.parse("varying", (), lambda text: _names(json.loads(text))),
        spec=r.parse("spec", {}, _mapping),
        provenance=r.parse("provenance", {}, _mapping),
        files=wire_growth.decode_files(key, row),
        tags=r.parse("tags", (), lambda text: _names(json.loads(text))),
        created_ms=r.whole("created_ms"),
        flag=r.text("flag"),
        held=r.text("held"),
        reached=r.parse("reached", None, wire_early.reached),
        bands=r.parse("bands", (), wire_early.bands),
        counts=Counts(
            queued=queued,
            running=running,
            finished=r.whole("n_finished"),
            failed=r.whole("n_failed"),
            pruned=r.whole("n_pruned"),
            cancelled=r.whole("n_cancelled") + dropped,
            diverged=r.whole("n_diverged"),
        ),
    )


def decode_params(key: str, raw: bytes | None) -> Params:
    """A parameter set from its JSON (DecodeError where it is missing or not one)."""
    if raw is None:
        raise DecodeError(f"{key}: the parameters are missing")
    try:
        data: dict[str, Json] = json.loads(raw)
    except ValueError as error:
        raise DecodeError(f"{key}: {raw[:60]!r}: {error}") from None
    if not isinstance(data, dict):
        raise DecodeError(f"{key}: {raw[:60]!r}: not a mapping")
    return data


def decode_trial(key: str, trial: TrialId, row: Row, params: Params, *, dropped: bool) -> Trial:
    """A trial from its hash (empty before its first claim) and its parameters.

    Raises:
        DecodeError: a field is not what this version writes (names it).
    """
    r = Reader(key, row)
    phase = r.text("phase")
    queued: TrialState | None = TrialState.QUEUED
    state = r.parse("state", queued, lambda text: word(TrialState, text))
    failure = _failure(r)
    if state is None:  # a newer version's: neither running nor ended as far as we know
        state, phase = TrialState.QUEUED, f"{r.text('state')} (a newer hpq's word)"
    return Trial(
        id=trial,
        state=TrialState.CANCELLED if dropped else state,
        params=params,
        attempt=r.whole("attempt"),
        worker=r.text("worker"),
        host=r.text("host"),
        claimed_ms=r.whole("claimed_ms"),
        beat_ms=r.whole("beat_ms"),
        ended_ms=r.whole("ended_ms"),
        ran_ms=r.whole("ran_ms"),
        before_ms=r.whole("before_ms"),
        step=r.whole("step"),
        objective=_finite(r, "objective"),
        metrics=r.reals(METRIC_FIELD),
        failure=failure,
        phase=phase,
        provenance=r.text("provenance"),
        checkpoint=r.parse("checkpoint", None, lambda text: known(Checkpoint, text)),
        artifacts=r.parse("artifacts", None, lambda text: known(Artifacts, text)),
        restarted=r.text("restarted"),
        reused=r.text("reused"),
        pruning=r.parse("pruning", None, wire_early.pruning),
    )


def _failure(r: Reader) -> Failure | None:
    told = r.text("kind")
    if not told:
        return None
    kind = r.parse("kind", None, lambda text: word(FailureKind, text))
    message = r.text("error") if kind else f"{told}: {r.text('error')}"
    kind = kind or FailureKind.USER_ERROR
    return Failure(kind=kind, message=message, fingerprint=r.text("fingerprint"))


def _finite(r: Reader, field: str) -> float | None:
    value = r.parse(field, None, float)
    return value if value is not None and math.isfinite(value) else None


def flatten(pairs: Mapping[str, str] | Sequence[tuple[str, str]]) -> list[str]:
    """[k, v, k, v, …] as scripts take fields."""
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    return [part for pair in items for part in pair]
