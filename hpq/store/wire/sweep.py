"""Encode and decode a sweep: the fields of its hash, some of them JSON.

A field that cannot be decoded raises DecodeError with its key and name. Unknown fields are ignored.
Numbers are decimal text, times integer milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from hpq.domain.budget import Budget
from hpq.domain.constraint import Constraint
from hpq.domain.status import DurationStats
from hpq.domain.stored_state import Cause, Hold, Returned, StoredState, TargetReached
from hpq.domain.sweep import (
    MOST_REPLICATES,
    SCHEMA,
    AppendedFile,
    EarlyTerminate,
    Goal,
    Impute,
    Keep,
    Launch,
    Metric,
    ObjectiveValue,
    RunnableSweep,
    SweepView,
    TerminationRule,
    Wandb,
    refusal_of_schema,
)
from hpq.domain.trial import Json
from hpq.error_codes import Code
from hpq.errors import DecodeError
from hpq.notice import Notice
from hpq.store.wire import decode
from hpq.store.wire.fields import (
    MOST,
    Reader,
    Row,
    count,
    cut,
    decoding,
    dumps,
    loads,
    mapping,
    moment,
    number,
    real,
)

_UNKEPT: tuple[Code, ...] = ("files-not-kept", "checkpoint-not-kept")
_FILE = b"file:"  # an added sweep file is a field of the sweep's hash, file:N by its first trial

_LAUNCH = decode.Record(
    Launch,
    trainer=decode.text,
    program=decode.text,
    command=decode.several(decode.text),
    code=decode.text,
    reach=decode.text,
    code_dir=decode.text,
    pass_env=decode.several(decode.text),
    resident=decode.flag,
    preload=decode.several(decode.text),
    wandb=decode.optional(decode.word(Wandb)),
    bundled=decode.flag,
    root=decode.text,
    home=decode.text,
)
_METRIC = decode.Record(
    Metric,
    name=decode.text,
    goal=decode.word(Goal),
    take=decode.word(ObjectiveValue),
    target=decode.optional(decode.real),
    impute=decode.word(Impute),
    impute_while_running=decode.optional(decode.word(Impute)),
    terminate_on_nan=decode.whole,
)
_KEEP = decode.Record(Keep, best=decode.whole, last=decode.whole)
_EARLY = decode.Record(
    EarlyTerminate,
    rule=decode.word(TerminationRule),
    bands=decode.several(decode.whole),
    eta=decode.real,
    strict=decode.flag,
    min_trials=decode.whole,
)
_REACHED = decode.Record(TargetReached, trial=decode.whole, value=decode.real, target=decode.real)
_APPENDED = decode.Record(
    AppendedFile,
    at_ms=decode.whole,
    added=decode.whole,
    spec=decode.by_name(decode.anything),
    text=decode.text,
)


def encode_sweep(sweep: SweepView) -> dict[str, str]:
    """Encode a sweep as fields of its hash, without the counts, which the scripts keep."""
    suggested = {"sampler": sweep.sampler, "run_cap": str(sweep.run_cap)}
    return {
        **(suggested if sweep.sampler else {}),
        **({"search": sweep.search} if sweep.search else {}),
        "schema": str(SCHEMA),
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
    return SweepView(
        **_runnable(r, sid),
        name=r.text("name"),
        digest=r.text("digest"),
        queue=r.text("queue"),
        max_parallel=r.count("max_parallel"),
        may_run=r.text("may_run"),
        retries=r.count("retries"),
        run_cap=r.count("run_cap"),
        made=r.named(b"made:", count),
        no_more=r.text("no_more"),
        varying=r.parse("varying", (), _names),
        spec=r.parse("spec", {}, mapping),
        bundle=r.text("bundle"),
        files=_decode_files(r),
        outside=r.parse("outside", frozenset[int](), _numbers),
        tags=r.parse("tags", (), _names),
        note=r.text("note"),
        run_project=r.text("run_project"),
        run_tags=tuple(filter(None, r.text("run_tags").split("\n"))),
        stored=_decode_state(r),
        why=r.parse("why", None, _decode_why),
        budget=_decode_budget(r),
        least_ms=r.count("least_ms"),
        unstored=r.count("unstored"),
        unkept=r.count("unkept"),
        unkept_why=r.parse("unkept_why", None, _decode_unkept),
        returned=r.parse("returned", None, _decode_returned),
        bands=r.parse("bands", (), _bands),
        counts=r.counts(queued, running, dropped),
    )


def _decode_state(r: Reader) -> StoredState:
    """Decode the state that scripts compare; without one, no script opens the sweep."""
    with decoding(f"{r.key}: field state"):
        return StoredState(r.text("state"))


def _decode_why(text: str) -> Hold | TargetReached:
    """Decode why a sweep is held, or was stopped by its target: `alike 5 of 5 trials failed: …`."""
    cause, _, rest = text.partition(" ")
    return _REACHED.parse(rest) if cause == "target" else Hold(cause=Cause(cause), text=cut(rest))


def _decode_unkept(text: str) -> Notice:
    """Decode why files of a trial are not kept: `7 files-not-kept HPQ_STORE is not set; …`."""
    trial, word, why = text.split(" ", 2)
    code = next((one for one in _UNKEPT if one == word), _UNKEPT[0])
    return Notice(code, f"#{count(trial)}: {cut(why)}")


def _decode_returned(text: str) -> Returned:
    """Decode which trial returns again and again: `7 5 stopping`, the trial, how often and why."""
    # Here, since few sweeps need it: its classes take 5 ms of each command.
    from hpq.domain.attempt import REASON_WORDS, Reason  # noqa: PLC0415

    trial, times, reason = text.split(" ", 2)
    number, why = count(trial), REASON_WORDS[Reason(reason)]
    words = f"#{number} returned to the queue {count(times)} times; the last time {why}"
    return Returned(trial=number, notice=Notice("trial-returned", words))


def decode_durations(key: str, sums: Sequence[bytes | None]) -> DurationStats:
    """Decode how long trials ran, from a sweep's dur_n, dur_sum and dur_sq.

    Raises:
        DecodeError: they are no sums of times.
    """
    with decoding(f"{key}: fields dur_n, dur_sum and dur_sq"):
        found = DurationStats.of_sums(*(real(text or b"0") for text in sums))
        if not all(0 <= one <= MOST for one in (found.ended, found.mean_ms, found.sd_ms)):
            raise ValueError("no sums of times")
        return found


def _encode_budget(budget: Budget | None) -> dict[str, str]:
    if budget is None:
        return {}
    return {"budget_ms": str(budget.budget_ms), "until_ms": str(budget.until_ms or "")}


def _decode_budget(r: Reader) -> Budget | None:
    if not r.text("budget_ms"):
        return None
    return Budget(
        budget_ms=r.count("budget_ms"),
        until_ms=r.moment("until_ms"),
        spent_ms=r.whole("spent_ms"),
        useful_ms=r.whole("useful_ms"),
        trial_ms=r.count("trial_ms"),
    )


def decode_runnable(key: str, sid: str, row: Row) -> RunnableSweep:
    """Decode what a worker reads of a sweep from the sweep's hash.

    Raises:
        DecodeError: a field is invalid (names it).
    """
    return RunnableSweep(**_runnable(Reader(key, row), sid))


def _runnable(r: Reader, sid: str) -> dict[str, Any]:
    """Decode the fields of RunnableSweep, by name.

    Raises:
        DecodeError: a field is invalid (names it), or a newer hpq wrote the sweep.
    """
    if refusal := refusal_of_schema(r.count("schema")):
        raise DecodeError(f"{r.key}: field schema: {refusal}", code="hpq-too-old")
    return {
        "id": sid,
        "launch": r.parse("launch", Launch(), _LAUNCH.parse),
        "owner": r.text("owner"),
        "priority": r.whole("priority"),
        "signature": r.text("signature"),
        "signer": r.text("signer"),
        "metric": r.parse("metric", None, _decode_metric),
        "objectives": r.parse("objectives", tuple[Metric, ...](), _decode_objectives),
        "constraints": r.parse("constraints", tuple[Constraint, ...](), _decode_constraints),
        "timeout_s": r.seconds("timeout_s"),
        "stall_s": r.seconds("stall_s"),
        "idle_s": r.seconds("idle_s"),
        "idle_below": r.real("idle_below"),
        "sampler": r.text("sampler"),
        "search": r.parse("search", "", str),  # whole: it is signed
        "keep": r.parse("keep", None, _KEEP.parse),
        "history": r.text("history"),
        "early": r.parse("early", None, _EARLY.parse),
        "method": r.text("method"),
        "seed": r.whole("seed"),
        "replicates": r.parse("replicates", 1, _replicates),
        "provenance": r.parse("provenance", dict[str, Json](), mapping),
        "created_ms": r.moment("created_ms"),
    }


def encode_launch(launch: Launch) -> str:
    """Encode the launch record as canonical JSON: the text that is signed."""
    return dumps(_LAUNCH.values(launch))


@lru_cache  # most sweeps of a list have the same
def _decode_metric(text: str) -> Metric | None:
    """Decode the metric.

    Raises:
        ValueError, TypeError: the text is not a metric.
    """
    return _METRIC.parse(text)


def _decode_objectives(text: str) -> tuple[Metric, ...]:
    return tuple(map(_METRIC, _list(text)))


def _decode_constraints(text: str) -> tuple[Constraint, ...]:
    return tuple(map(Constraint.parse, _list(text)))


def encode_appended_file(spec: Mapping[str, Json], text: str) -> str:
    """Encode a sweep file whose trials are added to a sweep: its data and its text."""
    return dumps({"spec": spec, "text": text})


def _decode_files(r: Reader) -> tuple[AppendedFile, ...]:
    """Decode the files that were appended to a sweep, the oldest first."""
    found = r.named(_FILE, _decode_file).values()
    return tuple(sorted(found, key=lambda file: file.at_ms))


def _decode_file(text: str) -> AppendedFile:
    at_ms, added, data = text.split(" ", 2)
    own = {"at_ms": moment(at_ms), "added": count(added)}
    return _APPENDED({**mapping(data), **own})


def _replicates(text: str) -> int:
    found = count(text)
    if not 1 <= found <= MOST_REPLICATES:
        raise ValueError(f"at most {MOST_REPLICATES} replicates")
    return found


def _numbers(text: str) -> frozenset[int]:
    return frozenset(map(count, text.split()))


def _bands(text: str) -> tuple[int, ...]:
    return tuple(sorted(map(count, text.split())))


def _list(text: str) -> list[Any]:
    data = loads(text)
    if not isinstance(data, list):
        raise ValueError("not a list")
    return data


def _names(text: str) -> tuple[str, ...]:
    data = _list(text)
    if not all(isinstance(name, str) for name in data):
        raise ValueError("not a list of texts")
    return tuple(map(cut, data))
