"""The only place where bytes of Redis become objects, and objects what is stored.

Both sides import it. Numbers are decimal text, times integer milliseconds, structures JSON with
sorted keys. A value that this version cannot have written raises DecodeError with key and field.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, TypeVar

from hpq.errors import DecodeError
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

T = TypeVar("T")
Row = Mapping[bytes, bytes]
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


class Reader:
    """Reads the fields of one hash; each miss or misfit names the key and the field."""

    def __init__(self, key: str, row: Row) -> None:
        self.key, self.row = key, row

    def _take(self, field: str, default: T, parse: Callable[[str], T]) -> T:
        raw = self.row.get(field.encode())
        if raw is None or raw == b"":
            return default
        try:
            return parse(raw.decode())
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DecodeError(f"{self.key}: field {field}: {raw[:60]!r}: {error}") from None

    def text(self, field: str) -> str:
        return self._take(field, "", str)

    def whole(self, field: str) -> int:
        return self._take(field, 0, int)

    def real(self, field: str) -> float:
        return self._take(field, 0.0, float)

    def json(self, field: str, default: Any) -> Any:
        return self._take(field, default, json.loads)

    def parse(self, field: str, default: T, parse: Callable[[str], T]) -> T:
        return self._take(field, default, parse)


def encode_files(record: Checkpoint | Artifacts | None) -> str:
    """A pointer into a store of files as JSON; empty for none."""
    return dumps(asdict(record)) if record else ""


def _known(kind: type[T], text: str) -> T:
    # A newer version may write more; what this one does not know it leaves out.
    names = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in json.loads(text).items() if name in names})


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

    Raises:
        ValueError: the text is not one (also for a wrong type or an unknown field).
    """
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("not a mapping")
    for field in ("command", "pass_env"):
        if not all(isinstance(word, str) for word in data.get(field, [])):
            raise ValueError(f"{field} holds more than text")
        data[field] = tuple(data.get(field, []))
    try:
        return Launch(**data)
    except TypeError as error:
        raise ValueError(str(error)) from None


def encode_metric(metric: Metric | None) -> str:
    """The metric as JSON; empty for none."""
    if metric is None:
        return ""
    data = {"name": metric.name, "goal": metric.goal, "take": metric.take, "target": metric.target}
    return dumps(data)


def decode_metric(text: str) -> Metric:
    """The metric from its JSON (ValueError, KeyError where it is not one)."""
    data = json.loads(text)
    return Metric(
        name=data["name"], goal=Goal(data["goal"]), take=Take(data["take"]), target=data["target"]
    )


def encode_sweep(sweep: Sweep) -> dict[str, str]:
    """The fields of a sweep's hash that do not change by themselves (counts are the scripts')."""
    return {
        "schema": str(sweep.schema),
        "name": sweep.name,
        "digest": sweep.digest,
        "launch": encode_launch(sweep.launch),
        "signature": sweep.signature,
        "metric": encode_metric(sweep.metric),
        "goal": sweep.metric.goal if sweep.metric else "",
        "class": sweep.worker_class,
        "owner": sweep.owner,
        "priority": str(sweep.priority),
        "max_parallel": str(sweep.max_parallel),
        "retries": str(sweep.retries),
        "timeout_s": number(sweep.timeout_s),
        "stall_s": number(sweep.stall_s),
        "keep": dumps(asdict(sweep.keep)) if sweep.keep else "",
        "method": sweep.method,
        "seed": str(sweep.seed),
        "varying": dumps(list(sweep.varying)),
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
        metric=r.parse("metric", None, decode_metric),
        worker_class=r.text("class"),
        owner=r.text("owner"),
        priority=r.whole("priority"),
        max_parallel=r.whole("max_parallel"),
        retries=r.whole("retries"),
        timeout_s=r.real("timeout_s"),
        stall_s=r.real("stall_s"),
        keep=r.parse("keep", None, lambda text: Keep(**json.loads(text))),
        method=r.text("method"),
        seed=r.whole("seed"),
        varying=tuple(r.json("varying", [])),
        spec=r.json("spec", {}),
        provenance=r.json("provenance", {}),
        created_ms=r.whole("created_ms"),
        flag=r.text("flag"),
        held=r.text("held"),
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
    state = r.parse("state", TrialState.QUEUED, TrialState)
    kind = r.parse("kind", None, FailureKind)
    failure = None
    if kind is not None:
        failure = Failure(kind=kind, message=r.text("error"), fingerprint=r.text("fingerprint"))
    start = len(METRIC_FIELD)
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
        step=r.whole("step"),
        objective=_finite(r, "objective"),
        metrics={
            name[start:].decode(): r.real(name.decode())
            for name in row
            if name.startswith(METRIC_FIELD)
        },
        failure=failure,
        phase=r.text("phase"),
        provenance=r.text("provenance"),
        checkpoint=r.parse("checkpoint", None, lambda text: _known(Checkpoint, text)),
        artifacts=r.parse("artifacts", None, lambda text: _known(Artifacts, text)),
        restarted=r.text("restarted"),
    )


def _finite(r: Reader, field: str) -> float | None:
    value = r.parse(field, None, float)
    return value if value is not None and math.isfinite(value) else None


def flatten(pairs: Mapping[str, str] | Sequence[tuple[str, str]]) -> list[str]:
    """[k, v, k, v, …] as scripts take fields."""
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    return [part for pair in items for part in pair]
