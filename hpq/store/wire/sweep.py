"""Encode and decode a sweep: the fields of its hash, some of them JSON.

A field that cannot be decoded raises DecodeError with its key and name. Fields of a newer version
are ignored. Numbers are decimal text, times integer milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from hpq.domain.appended_file import AppendedFile
from hpq.domain.budget import Budget
from hpq.domain.constraint import Constraint
from hpq.domain.sweep import (
    COMMON_SCHEMA,
    EarlyTerminate,
    Goal,
    Keep,
    Launch,
    Metric,
    RunnableSweep,
    SweepView,
    TargetReached,
    schema_of,
)
from hpq.domain.trial import Json
from hpq.errors import DecodeError
from hpq.store.wire.fields import Reader, Row, cut, dumps, number
from hpq.store.wire.records import NewerWord, record, word

_FILE = b"file:"  # each appended file is a field of the sweep's hash, file:STAGE


def encode_sweep(sweep: SweepView) -> dict[str, str]:
    """Encode a sweep as fields of its hash, without the counts, which the scripts keep."""
    suggested = {"sampler": sweep.sampler, "search": sweep.search, "run_cap": str(sweep.run_cap)}
    return {
        **(suggested if sweep.sampler else {}),
        "schema": str(schema_of(sweep)),
        "name": sweep.name,
        "digest": sweep.digest,
        "launch": encode_launch(sweep.launch),
        "signature": sweep.signature,
        "signer": sweep.signer,
        "metric": dumps(asdict(sweep.metric)) if sweep.metric else "",
        "goal": sweep.metric.goal if sweep.metric else "",
        **({"objectives": dumps([*map(asdict, sweep.objectives)])} if sweep.objectives else {}),
        **({"constraints": dumps([*map(str, sweep.constraints)])} if sweep.constraints else {}),
        "queue": sweep.queue,
        "owner": sweep.owner,
        "priority": str(sweep.priority),
        "max_parallel": str(sweep.max_parallel),
        "retries": str(sweep.retries),
        **_encode_budget(sweep.budget),
        "timeout_s": number(sweep.timeout_s),
        "stall_s": number(sweep.stall_s),
        **(
            {"idle_s": number(sweep.idle_s), "idle_below": number(sweep.idle_below)}
            if sweep.idle_s
            else {}
        ),
        "keep": dumps(asdict(sweep.keep)) if sweep.keep else "",
        **({"history": sweep.history} if sweep.history else {}),
        "early": dumps(asdict(sweep.early)) if sweep.early else "",
        "method": sweep.method,
        "seed": str(sweep.seed),
        **({"replicates": str(sweep.replicates)} if sweep.replicates > 1 else {}),
        "varying": dumps(list(sweep.varying)),
        "tags": dumps(list(sweep.tags)),
        "spec": dumps(sweep.spec),
        "provenance": dumps(sweep.provenance),
        "bundle": sweep.bundle,
    }


def decode_sweep(
    key: str, sid: str, row: Row, queued: int, running: int, dropped: int
) -> SweepView:
    """Decode a sweep from its hash and the sizes of its sorted sets.

    Raises:
        DecodeError: a field is invalid (names it).
    """
    r = Reader(key, row)
    counts = r.counts(queued, running, dropped)
    return SweepView(
        **_runnable(r, SweepView, sid),
        varying=r.parse("varying", (), _names),
        spec=r.parse("spec", {}, _mapping),
        files=tuple(sorted(_decode_files(key, row), key=lambda file: file.at_ms)),
        tags=r.parse("tags", (), _names),
        made={by: int(count) for by, count in r.reals(b"made:").items()},
        reached=r.parse("reached", None, lambda text: record(TargetReached, text)),
        bands=r.parse("bands", (), lambda text: tuple(sorted(map(int, text.split())))),
        counts=counts,
        budget=Budget(**r.plain(Budget, but=())) if r.text("budget_ms") else None,
    )


def _encode_budget(budget: Budget | None) -> dict[str, str]:
    if budget is None:
        return {}
    return {"budget_ms": str(budget.budget_ms), "until_ms": str(budget.until_ms or "")}


def decode_runnable(key: str, sid: str, row: Row) -> RunnableSweep:
    """Decode what a worker reads of a sweep from the sweep's hash.

    Raises:
        DecodeError: a field is invalid (names it).
    """
    return RunnableSweep(**_runnable(Reader(key, row), RunnableSweep, sid))


def _runnable(r: Reader, kind: type[RunnableSweep], sid: str) -> dict[str, Any]:
    """Decode the plain fields of `kind`, and all fields of RunnableSweep."""
    return {
        **r.plain(kind, but=("id", "schema", "replicates", "search")),
        "id": sid,
        "search": r.parse("search", "", str),  # whole: it is signed
        "schema": r.parse("schema", COMMON_SCHEMA, int),
        "launch": r.parse("launch", Launch(), lambda text: record(Launch, text)),
        "metric": r.parse("metric", None, _decode_metric),
        "objectives": r.parse("objectives", tuple[Metric, ...](), _decode_objectives),
        "constraints": r.parse("constraints", tuple[Constraint, ...](), _decode_constraints),
        "keep": r.parse("keep", None, lambda text: record(Keep, text)),
        "early": r.parse("early", None, _decode_early),
        "replicates": r.whole("replicates") or 1,
        "provenance": r.parse("provenance", dict[str, Json](), _mapping),
    }


def encode_launch(launch: Launch) -> str:
    """Encode the launch record as canonical JSON: the text that is signed."""
    return dumps(asdict(launch))


@lru_cache  # most sweeps of a list have the same
def _decode_metric(text: str) -> Metric | None:
    """Decode the metric; None for a goal of a newer version, since a wrong ranking misleads.

    Raises:
        ValueError, TypeError, KeyError: the text is not a metric.
    """
    data = _mapping(text)
    return record(Metric, data) if word(Goal, str(data["goal"])) else None


def _decode_objectives(text: str) -> tuple[Metric, ...]:
    return tuple(record(Metric, one) for one in json.loads(text))


def _decode_constraints(text: str) -> tuple[Constraint, ...]:
    return tuple(map(Constraint.parse, json.loads(text)))


def _decode_early(text: str) -> EarlyTerminate | None:
    """Decode the rule, which lua/lib/early.lua reads, too; None for a rule of a newer version.

    Raises:
        ValueError, TypeError: the text is not a rule.
    """
    try:
        return record(EarlyTerminate, text)
    except NewerWord:
        return None


def encode_appended_file(digest: str, spec: Mapping[str, Json], origin: Mapping[str, Json]) -> str:
    """Encode a file that is appended to a sweep: its digest, its data and its provenance."""
    return dumps({"digest": digest, "spec": spec, "origin": origin})


def _decode_files(key: str, row: Row) -> Iterator[AppendedFile]:
    """Decode the files that were appended to a sweep.

    Raises:
        DecodeError: a file is invalid.
    """
    for field, raw in row.items():
        if field.startswith(_FILE):
            try:
                at_ms, added, text = raw.decode().split(" ", 2)
                own = {"at_ms": int(at_ms), "added": int(added)}
                yield record(AppendedFile, {**json.loads(text), **own})
            except (ValueError, TypeError) as error:
                raise DecodeError(f"{key}: field {field!r}: {error}") from None


def _names(text: str) -> tuple[str, ...]:
    data = json.loads(text)
    if not isinstance(data, list) or not all(isinstance(name, str) for name in data):
        raise ValueError("not a list of texts")
    return tuple(map(cut, data))


def _mapping(text: str) -> dict[str, Json]:
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("not a mapping")
    return data
