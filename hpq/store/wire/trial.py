"""Encode and decode a trial: its hash, its parameters, and a result that another sweep reuses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import RunnableSweep
from hpq.domain.trial import (
    USAGE,
    Artifacts,
    Checkpoint,
    Failure,
    FailureKind,
    Params,
    Pruning,
    TrialId,
    TrialState,
    TrialView,
    Unstored,
    short,
)
from hpq.errors import DecodeError
from hpq.store.wire import records
from hpq.store.wire.fields import (
    Reader,
    Row,
    decoding,
    dumps_in_order,
    mapping,
    number,
    numbers,
    whole,
)

MAC_BYTES = 16
SignRow = Callable[[int, str], bytes]  # number and JSON of a trial → its row
CheckRow = Callable[[int, bytes | None], bool]  # number and row → is it as it was signed?
CheckOf = Callable[[str], CheckRow | None]  # of a sweep; None: this machine's key did not sign it

CHECKPOINT = records.Record(
    Checkpoint,
    store=records.text,
    path=records.text,
    step=records.whole,
    last=records.optional(records.real),
    best=records.optional(records.real),
    counts=records.by_name(records.whole),
    logged=records.whole,
    further=records.by_name(records.real),
)
ARTIFACTS = records.Record(
    Artifacts, store=records.text, path=records.text, files=records.by_name(records.whole)
)
UNSTORED = records.Record(Unstored, store=records.text, path=records.text, folder=records.text)
PRUNING = records.Record(
    Pruning,
    rule=records.text,
    band=records.whole,
    rank=records.whole,
    n=records.whole,
    threshold=records.real,
    value=records.real,
)
METRIC_FIELD = b"m:"  # a trial's hash holds the last value of metric x under m:x


class NewRow(NamedTuple):
    """A trial to be added: its parameters as JSON, and its identity."""

    params: str
    identity: bytes


def encode_new(params: ParameterSet, replicate: int) -> NewRow:
    """Encode a trial to be added; `replicate` counts from 0.

    The JSON keeps the order of the file, which is the order of the arguments on a command line.
    """
    identity = params.salted(replicate) if replicate else params.identity
    return NewRow(dumps_in_order(params), identity)


def unsigned(_number: int, text: str) -> bytes:
    """Return a row without a signature, for sweeps that no key signs."""
    return text.encode()


def is_unsigned(_number: int, row: bytes | None) -> bool:
    """Return True unless a signature precedes the row's JSON."""
    return (row or b"")[:1] < b"\x80"


def stored(rows: Iterable[NewRow], first: int, sign: SignRow) -> list[tuple[bytes, bytes]]:
    """Return row and identity of each trial, numbered from `first`."""
    return [(sign(n, text), identity) for n, (text, identity) in enumerate(rows, first)]


def text_of(row: bytes) -> bytes:
    """Return the JSON of a row, which a signature of 16 bytes may precede (code/signing.py)."""
    return row if is_unsigned(0, row) else row[MAC_BYTES:]


def metric_names(fields: Iterable[bytes]) -> list[str]:
    """Return the names of the metrics among the fields of a trial's hash."""
    names = (f.removeprefix(METRIC_FIELD) for f in fields if f.startswith(METRIC_FIELD))
    return [name.decode("utf-8", "replace") for name in names]


def decode_params(key: str, raw: bytes | None) -> Params:
    """Decode the parameters of a trial.

    Raises:
        DecodeError: the parameters are missing or not a mapping.
    """
    if raw is None:
        raise DecodeError(f"{key}: the parameters are missing")
    with decoding(f"{key}: {raw[:60]!r}"):
        return mapping(text_of(raw).decode())


def decode_trial(
    key: str, trial: TrialId, row: Row, params: Params, *, dropped: bool, is_signed: bool = False
) -> TrialView:
    """Decode a trial from its hash (empty before its first claim) and its parameters.

    Raises:
        DecodeError: a field is invalid (names it).
    """
    r = Reader(key, row)
    state = r.parse("state", TrialState.QUEUED, TrialState)
    return TrialView(
        id=trial,
        state=TrialState.CANCELLED if dropped else state,
        params=params,
        is_signed=is_signed,
        attempt=r.count("attempt"),
        worker=r.text("worker"),
        host=r.text("host"),
        claimed_ms=r.moment("claimed_ms"),
        beat_ms=r.moment("beat_ms"),
        ended_ms=r.moment("ended_ms"),
        ran_ms=r.count("ran_ms"),
        before_ms=r.count("before_ms"),
        step=r.whole("step"),
        objective=_finite(r, "objective"),
        best=_finite(r, "best_value"),
        metrics=r.named(METRIC_FIELD, float),  # also of a trial that diverged
        run_info=r.parse("run_info", {}, mapping),
        failure=_failure(r),
        phase=r.text("phase"),
        provenance=r.text("provenance"),
        checkpoint=r.parse("checkpoint", None, CHECKPOINT.parse),
        artifacts=r.parse("artifacts", None, ARTIFACTS.parse),
        unstored=r.parse("unstored", None, UNSTORED.parse),
        restarted=r.text("restarted"),
        gone=r.text("gone"),
        thinned=bool(r.text("thinned")),
        reused=r.text("reused"),
        seed=r.parse("seed", None, whole),
        pruning=r.parse("pruning", None, PRUNING.parse),
        usage=r.parse("usage", {}, _decode_usage),
    )


def unreadable(trial: TrialId, row: object, error: DecodeError) -> TrialView:
    """Return the view of a trial whose hash, or an error in its place, cannot be decoded."""
    word = row.get(b"state", b"queued") if isinstance(row, dict) else b""
    is_open = word in (b"queued", b"running")
    return TrialView(
        id=trial,
        state=TrialState(word.decode()) if is_open else TrialState.FAILED,
        params={},
        failure=Failure(kind=FailureKind.UNREADABLE, message=str(error.notice)),
    )


def encode_usage(usage: Mapping[str, float]) -> str:
    """Encode usage by place, `-` for none, three digits each.

    Redis keeps the hash of a trial in a third of the memory if no value is longer than 64 bytes.
    """
    texts = [short(round(usage[name], 2)) if name in usage else "-" for name in USAGE]
    return " ".join(texts).rstrip(" -")


def _decode_usage(text: str) -> dict[str, float]:
    named = zip(USAGE, text.split(), strict=False)  # the last ones may lack
    found = {name: float(part) for name, part in named if part != "-"}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def encode_result(trial: TrialView, sweep: RunnableSweep) -> str:
    """Encode a finished trial's result for the script `seal`, which copies it to a trial of a
    sweep."""
    metrics = [part for name, value in trial.metrics.items() for part in (f"m:{name}", repr(value))]
    objective = "" if trial.objective is None else number(trial.objective)
    is_feasible = sweep.is_feasible(trial.metrics)
    scores = {
        "values": numbers(trial.metrics.get(one.name, math.nan) for one in sweep.objectives),
        "violations": numbers(sweep.violations(trial.metrics)),
        "infeasible": "" if is_feasible else "1",
    }
    record = {
        "from": trial.reused or str(trial.id),
        "objective": objective,
        "infeasible": not is_feasible,
        "scores": [part for name, text in scores.items() if text for part in (name, text)],
        "step": trial.step,
        "metrics": metrics,
        "provenance": trial.provenance,
        "seed": "" if trial.seed is None else str(trial.seed),
    }
    return dumps_in_order(record)


def _failure(r: Reader) -> Failure | None:
    kind = r.parse("kind", None, FailureKind)
    if kind is None:
        return None
    return Failure(kind=kind, message=r.text("error"), fingerprint=r.text("fingerprint"))


def _finite(r: Reader, field: str) -> float | None:
    value = r.parse(field, None, float)
    return value if value is not None and math.isfinite(value) else None
