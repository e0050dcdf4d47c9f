"""Encode and decode an attempt: arguments and replies of the scripts claim, beat and commit."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from hpq.domain.attempt import CURVE_POINTS, Nothing, Outcome, ReportBatch
from hpq.domain.retry_policy import retry_rule
from hpq.domain.trial import (
    Artifacts,
    Checkpoint,
    Claim,
    Failure,
    FailureKind,
    TrialId,
    TrialState,
    Unstored,
)
from hpq.errors import DecodeError
from hpq.store.wire import decode
from hpq.store.wire.fields import (
    Field,
    Reader,
    count,
    decoding,
    dumps,
    number,
    numbers,
    sweep_id,
)
from hpq.store.wire.row import decode_params
from hpq.store.wire.trial import (
    ARTIFACTS,
    CHECKPOINT,
    METRIC_BREAK,
    UNSTORED,
    encode_usage,
    encode_usage_curves,
)

LOG_KEPT_BYTES = 16_384  # of a finished trial's log, with 16 for each beat that printed
FAILED_LOG_KEPT_BYTES = 262_144
_WHY_CHARACTERS = 200
# As lua/claim.lua replies them.
_OF_SWEEP = (b"created_ms", b"signature", b"timeout_s", b"stall_s")

_FAILURE = decode.Record(
    Failure,
    kind=decode.word(FailureKind),
    message=decode.text,
    fingerprint=decode.text,
)
OUTCOME = decode.Record(
    Outcome,
    state=decode.word(TrialState),
    objective=decode.optional(decode.real),
    best=decode.optional(decode.real),
    values=decode.several(decode.real),
    violations=decode.several(decode.real),
    infeasible=decode.flag,
    step=decode.whole,
    failure=decode.optional(_FAILURE),
    ran_ms=decode.optional(decode.whole),
    artifacts=decode.optional(ARTIFACTS),
    unstored=decode.optional(UNSTORED),
    usage=decode.by_name(decode.real),
)


def decode_claim(reply: str, values: list[Any], nonce: str) -> Claim | Nothing:
    """Decode the reply of the script `claim`, a word and values, to a caller with this nonce.

    The row of the parameters stays as it is: `open_claim` decodes it once the sweep is trusted.

    Raises:
        DecodeError: a sweep's id, or the number of a trial or attempt, is invalid.
    """
    if reply == "drained":
        return Nothing(is_drained=True)
    unfed = sweep_id(values[-1]) if values[-1] else ""
    if reply == "empty":
        short = sweep_id(values[0]) if values[0] else ""
        return Nothing(short=short, unfed=unfed)
    sid, number, attempt, row, checkpoint, unbegun, *of_sweep, _ = values
    with decoding(f"claim of {sid!r}"):
        claim = Claim(
            trial=TrialId(sweep=sweep_id(sid), number=count(number)),
            attempt=count(attempt),
            nonce=nonce,
            unfed=unfed,
        )
    fields = dict(zip(_OF_SWEEP, of_sweep, strict=True))
    r = Reader(f"claim of {claim.trial}", {b"unbegun": unbegun, **fields})
    try:
        return replace(
            claim,
            row=row or b"",
            checkpoint=_checkpoint_of(checkpoint),
            unbegun=r.count("unbegun"),
            created_ms=r.moment("created_ms"),
            signature=r.text("signature"),
            timeout_s=r.seconds("timeout_s"),
            stall_s=r.seconds("stall_s"),
        )
    except DecodeError as error:
        return replace(claim, unreadable=str(error))


def _checkpoint_of(raw: bytes | None) -> Checkpoint | None:
    """Return a checkpoint, or if its pointer is odd, one that no store has.

    Then the training restarts from the beginning, and its log says so.
    """
    try:
        return CHECKPOINT.parse(raw.decode()) if raw else None
    except (ValueError, TypeError, RecursionError):
        return Checkpoint(store="unknown", path="")


def open_claim(claim: Claim) -> Claim:
    """Return a claim with its parameters, and where its trial begins.

    Raises:
        DecodeError: the parameters are invalid.
    """
    params = decode_params(f"parameters of {claim.trial}", claim.row)
    return replace(claim, params=params, start=params.start)


def encode_files(pointer: Checkpoint | Artifacts | Unstored | None) -> str | None:
    """Encode a pointer into a file store as JSON."""
    if pointer is None:
        return None
    data = asdict(pointer)
    if not data.get("further"):
        data.pop("further", None)
    return dumps(data)


def encode_batch(batch: ReportBatch) -> dict[str, Field]:
    """Encode a batch for a script, without its log and its points."""
    checkpoint = batch.checkpoint
    return {
        "seq": batch.seq,
        "step": batch.step,
        "objective": None if batch.objective is None else number(batch.objective),
        "phase": batch.phase or None,
        "checkpoint": encode_files(checkpoint),
        "checkpoint_step": checkpoint.step if checkpoint else None,
        "restarted": batch.restarted[:_WHY_CHARACTERS] or None,
        "kept_step": batch.kept_step if batch.restarted else None,
        "metric_order": METRIC_BREAK.join(batch.metric_order) or None,
        "run_info": batch.run_info or None,
        "unkept": batch.unkept,
        "usage": encode_usage_curves(batch.usage) if batch.usage else None,
        "curve_points": batch.curve_points if batch.curve_points < CURVE_POINTS else None,
    }


def encode_rows(batch: ReportBatch) -> list[str | bytes]:
    """Encode the rest of a batch: its log; then step, metric and value of each point."""
    points = (part for p in batch.points for part in (str(p.step), p.name, number(p.value)))
    return [batch.log, *points]


def encode_outcome(outcome: Outcome, last: ReportBatch | None) -> dict[str, Field]:
    """Encode an outcome and the last batch for `commit`, with the retry rule of the failure."""
    failure, rule = outcome.failure, retry_rule(outcome.failure)
    return {
        "outcome": outcome.state,
        "objective": None if outcome.objective is None else number(outcome.objective),
        "best": None if outcome.best is None else number(outcome.best),
        "values": numbers(outcome.values) or None,
        "violations": numbers(outcome.violations) or None,
        "infeasible": "1" if outcome.infeasible else None,
        "step": outcome.step,
        "kind": failure.kind if failure else None,
        "error": failure.message[:500] if failure else None,
        "fingerprint": failure.fingerprint[:200] if failure else None,
        "retries": rule.retries or None,
        "progress": rule.progress or None,
        "elsewhere": rule.elsewhere or None,
        "evidence": rule.evidence if failure else None,
        "keep_log_bytes": FAILED_LOG_KEPT_BYTES if failure else LOG_KEPT_BYTES,
        "ran_ms": outcome.ran_ms,
        "artifacts": encode_files(outcome.artifacts),
        "unstored": encode_files(outcome.unstored),
        "usage": encode_usage(outcome.usage) or None,
        "last": encode_batch(last) if last else None,
    }
