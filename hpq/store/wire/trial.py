"""Encode and decode a trial: its hash, its points, and a result that another sweep reuses.

lua/lib/points.lua packs the points of an ended trial into a hash, P:t:S/N:points. A field is a
metric. Its value is one segment for each time that the trial ended: "+" and the ids and steps of
the points, or "=" if these are in the field "", then the values. Numbers are little-endian; letters
are types of `struct`.

    ids     H count, d first ms, 3 letters, 3 columns: ms, sequence, step; each has (d) the numbers,
            or the differences from point to point as H runs of equal ones, their lengths, and them
    values  d or f, and the values; or B, the number of different values, these as d, places as B

lua/lib/reports.lua packs the log when an attempt ends, into the field "#log" of that hash: the
entries, the newest first, each as d ms, I sequence, I length, and its bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain, repeat
from typing import Any, NamedTuple

from hpq.domain.sweep import RunnableSweep
from hpq.domain.trial import (
    Artifacts,
    Checkpoint,
    Failure,
    FailureKind,
    Params,
    Pruning,
    Start,
    TrialId,
    TrialState,
    TrialView,
    Unstored,
)
from hpq.domain.usage import READINGS, USAGE, UsageCurves, short
from hpq.errors import DecodeError
from hpq.store.wire import decode
from hpq.store.wire.fields import (
    Reader,
    Row,
    count,
    dumps_in_order,
    mapping,
    moment,
    number,
    numbers,
    whole,
)

_LOG_ENTRY = struct.Struct("<dII")  # ms, sequence, length of the bytes that follow
CHECKPOINT = decode.Record(
    Checkpoint,
    store=decode.text,
    path=decode.text,
    step=decode.whole,
    last=decode.optional(decode.real),
    best=decode.optional(decode.real),
    counts=decode.by_name(decode.whole),
    logged=decode.whole,
    further=decode.by_name(decode.real),
)
ARTIFACTS = decode.Record(
    Artifacts,
    store=decode.text,
    path=decode.text,
    files=decode.by_name(decode.whole),
)
UNSTORED = decode.Record(Unstored, store=decode.text, path=decode.text, folder=decode.text)
PRUNING = decode.Record(
    Pruning,
    rule=decode.text,
    band=decode.whole,
    rank=decode.whole,
    n=decode.whole,
    threshold=decode.real,
    value=decode.real,
)
METRIC_BREAK = "\n"  # between the names in `metric_order`
METRIC_FIELD = b"m:"  # a trial's hash holds the last value of metric x under m:x


def metric_names(fields: Iterable[bytes]) -> list[str]:
    """Return the names of the metrics among the fields of a trial's hash."""
    names = (f.removeprefix(METRIC_FIELD) for f in fields if f.startswith(METRIC_FIELD))
    return [name.decode("utf-8", "replace") for name in names]


def decode_trial(
    key: str,
    trial: TrialId,
    row: Row,
    params: Params,
    *,
    dropped: bool,
    start: Start | None = None,
    is_signed: bool = False,
    places: Mapping[str, int] | None = None,
) -> TrialView:
    """Decode a trial from its hash (empty before its first claim), its parameters and its start.

    `places` are those of the sweep's metrics in all views.

    Raises:
        DecodeError: a field is invalid (names it).
    """
    r = Reader(key, row)
    state = r.parse("state", TrialState.QUEUED, TrialState)
    return TrialView(
        id=trial,
        state=TrialState.CANCELLED if dropped else state,
        params=params,
        start=start,
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
        metrics=_metrics(r, places or {}),
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


def encode_usage_curves(curves: UsageCurves) -> str:
    """Encode usage over time: a line of seconds, then one of each reading, as `encode_usage`."""
    lines = ["seconds " + " ".join(map(short, curves.seconds))]
    for name, values in curves.values.items():
        texts = ("-" if value is None else short(value) for value in values)
        lines.append(f"{name} " + " ".join(texts))
    return "\n".join(lines)


def decode_usage_curves(text: str) -> UsageCurves:
    """Decode usage over time, behind the number of the attempt.

    Raises:
        ValueError: the text is no usage.
    """
    attempt, *lines = text.split("\n")
    found = {name: parts for name, *parts in map(str.split, lines)}
    seconds = [float(part) for part in found.pop("seconds")]
    values = {
        name: [None if part == "-" else float(part) for part in found[name]]
        for name in READINGS
        if name in found
    }
    if not all(len(column) == len(seconds) for column in values.values()):
        raise ValueError("columns of different lengths")
    numbers = chain(seconds, *values.values())
    if not all(math.isfinite(number or 0) for number in numbers):
        raise ValueError("a value is not finite")
    return UsageCurves(
        attempt=count(attempt),
        seconds=tuple(seconds),
        values={name: tuple(column) for name, column in values.items()},
    )


def encode_result(trial: TrialView, sweep: RunnableSweep) -> str:
    """Encode a finished trial's result for the script `create`, which copies it to a trial of a
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
        "metric_order": METRIC_BREAK.join(trial.metrics),
        "provenance": trial.provenance,
        "run_info": dumps_in_order(trial.run_info) if trial.run_info else "",
        "seed": "" if trial.seed is None else str(trial.seed),
    }
    return dumps_in_order(record)


def _metrics(r: Reader, order: Mapping[str, int]) -> dict[str, float]:
    """Return the last values, also of a trial that diverged, in order."""
    found = r.named(METRIC_FIELD, float)
    return dict(sorted(found.items(), key=lambda one: (order.get(one[0], len(order)), one[0])))


def decode_metric_order(raw: bytes | None) -> dict[str, int]:
    """Decode the places of the metrics of a sweep, as its trials first reported them."""
    names = (raw or b"").decode("utf-8", "replace").splitlines()
    return {name: place for place, name in enumerate(names)}


def _failure(r: Reader) -> Failure | None:
    kind = r.parse("kind", None, FailureKind)
    if kind is None:
        return None
    return Failure(kind=kind, message=r.text("error"), fingerprint=r.text("fingerprint"))


def _finite(r: Reader, field: str) -> float | None:
    value = r.parse(field, None, float)
    return value if value is not None and math.isfinite(value) else None


class Entry(NamedTuple):
    """A point of a metric, with the id that it has, or had, in the metric's stream."""

    id: tuple[int, int]  # ms and sequence
    step: int
    value: float


def entry_id(text: str | bytes) -> tuple[int, int]:
    """Decode the id of an entry of a stream."""
    ms, seq = text.split(b"-" if isinstance(text, bytes) else "-")  # type: ignore[arg-type]
    return moment(ms), count(seq)


def decode_entries(rows: Sequence[tuple[bytes, Row]]) -> list[Entry]:
    """Decode the entries of a metric's stream; raises KeyError or ValueError if one is no point."""
    return [Entry(entry_id(eid), whole(row[b"s"]), float(row[b"v"])) for eid, row in rows]


def decode_points(packed: bytes, common: bytes) -> list[Entry]:
    """Decode a metric's field of the hash; `common` is the field "".

    Raises:
        ValueError: the field is invalid.
    """
    found: list[Entry] = []
    reader = _PointsReader(packed)
    try:
        while reader.at < len(packed):
            (mark,) = reader.take("c", 1)
            ids, steps = (reader if mark == b"+" else _PointsReader(common)).ids()
            values = reader.values(len(ids))
            # A later attempt that resumed has reported the steps behind its checkpoint again.
            while found and steps and found[-1].step >= steps[0]:
                found.pop()
            found += map(Entry, ids, steps, values)
    except (struct.error, IndexError, TypeError, OverflowError) as problem:
        raise ValueError(f"not packed points: {problem}") from None
    return found


def decode_log(packed: bytes) -> dict[tuple[int, int], bytes]:
    """Decode the field of the hash that has the log: bytes by id of their entry.

    Raises:
        ValueError: the field is invalid.
    """
    found, at = {}, 0
    while at < len(packed):
        try:
            ms, seq, size = _LOG_ENTRY.unpack_from(packed, at)
            entry = moment(int(ms)), seq
        except (struct.error, OverflowError) as problem:
            raise ValueError(f"no packed log: {problem}") from None
        at += _LOG_ENTRY.size
        found[entry] = packed[at : at + size]
        at += size
    if at > len(packed):
        raise ValueError(f"a packed log lacks {at - len(packed)} bytes")
    return found


def join_points(ended: list[Entry], newer: list[Entry]) -> list[Entry]:
    """Return the points of an ended attempt and of one that resumed from its checkpoint.

    The newer attempt reports the steps behind the checkpoint again. The points of a trial that
    ended between two reads are in both lists.
    """
    known, end = {entry.id for entry in ended if newer}, len(ended)
    newer = [entry for entry in newer if entry.id not in known]  # whatever the clock did between
    while newer and end and ended[end - 1].step >= newer[0].step:
        end -= 1
    return ended[:end] + newer


class _PointsReader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, letter: str, many: int) -> tuple[Any, ...]:
        form = f"<{many}{letter}"
        found = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return found

    def ids(self) -> tuple[list[tuple[int, int]], list[int]]:
        (points,) = self.take("H", 1)
        (first,) = self.take("d", 1)
        letters = self.take("c", 3)
        columns = []
        for before, letter in zip((first, 0, 0), letters, strict=True):
            if letter == b"d":
                column = self.take("d", points)
            else:
                lengths = self.take("H", self.take("H", 1)[0])
                if sum(lengths) != points:
                    raise ValueError(f"runs of {sum(lengths)} for {points} points")
                rises = self.take(letter.decode("latin-1"), len(lengths))
                every = chain.from_iterable(map(repeat, rises, lengths))
                column = tuple(accumulate(every, initial=before))[1:]
            columns.append([int(number) for number in column])
        ms, seqs, steps = columns
        for end in (min(ms, default=0), max(ms, default=0)):
            moment(end)
        return list(zip(ms, seqs, strict=True)), steps

    def values(self, points: int) -> Sequence[float]:
        letter = self.take("c", 1)[0].decode("latin-1")
        if letter in ("d", "f"):
            return self.take(letter, points)
        if letter != "B":
            raise ValueError(f"type {letter!r}")
        different = self.take("d", self.take("B", 1)[0])
        return [different[place] for place in self.take("B", points)]
