"""Encode and decode an attempt: arguments and replies of the scripts claim, beat and commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from hpq.domain.attempt import Nothing, Outcome, ReportBatch
from hpq.domain.retry_policy import retry_rule
from hpq.domain.trial import (
    Artifacts,
    Checkpoint,
    Claim,
    Point,
    TrialId,
)
from hpq.store.wire.fields import Field, dumps, number, sweep_id
from hpq.store.wire.records import record
from hpq.store.wire.trial import decode_params

LOG_KEPT_BYTES = 16_384  # of a finished trial's log
FAILED_LOG_KEPT_BYTES = 262_144
_WHY_CHARACTERS = 200


def decode_claim(reply: str, values: list[Any], nonce: str) -> Claim | Nothing:
    """Decode the reply of the script `claim`, a word and values, to a caller with this nonce.

    The row of the parameters stays as it is: `open_claim` decodes it once the sweep is trusted. A
    checkpoint that cannot be decoded becomes one in a store that no worker has, so the worker
    reports it and restarts the training.

    Raises:
        DecodeError: a sweep's id is invalid.
    """
    if reply == "drained":
        return Nothing(is_drained=True)
    unfed = sweep_id(values[-1]) if values[-1] else ""
    if reply == "empty":
        return Nothing(newer=sweep_id(values[0]) if values[0] else "", unfed=unfed)
    sid, number, attempt, row, checkpoint, unbegun, _ = values
    return Claim(
        trial=TrialId(sweep=sweep_id(sid), number=int(number)),
        attempt=int(attempt),
        row=row or b"",
        nonce=nonce,
        checkpoint=_decode_checkpoint(checkpoint),
        unbegun=int(unbegun),
        unfed=unfed,
    )


def open_claim(claim: Claim) -> Claim:
    """Return a claim with its parameters.

    Raises:
        DecodeError: the parameters are invalid.
    """
    params = decode_params(f"parameters of {claim.trial}", claim.row)
    return replace(claim, params=params)


def _decode_checkpoint(raw: bytes) -> Checkpoint | None:
    try:
        return record(Checkpoint, raw.decode()) if raw else None
    except (ValueError, TypeError, RecursionError):  # any client of Redis may have written it
        return Checkpoint(store="unknown", path="")


def _files(pointer: Checkpoint | Artifacts | None) -> str:
    """Encode a pointer into a file store as JSON; "" for none."""
    return dumps(asdict(pointer)) if pointer else ""


def encode_batch(batch: ReportBatch) -> dict[str, Field]:
    """Encode a batch for the script `beat`, without its log and its points."""
    return {
        "seq": batch.seq,
        "step": batch.step,
        "objective": "" if batch.objective is None else number(batch.objective),
        "phase": batch.phase,
        "checkpoint": _files(batch.checkpoint),
        "checkpoint_step": batch.checkpoint.step if batch.checkpoint else 0,
        "restarted": batch.restarted[:_WHY_CHARACTERS],
        "run_info": batch.run_info or None,
    }


def encode_points(points: Sequence[Point]) -> list[str]:
    """Encode points for the script `beat`: step, metric and value of each."""
    return [part for p in points for part in (str(p.step), p.name, number(p.value))]


def encode_outcome(outcome: Outcome) -> dict[str, Field]:
    """Encode an outcome for the script `commit`, with the retry rule of its failure."""
    failure, rule = outcome.failure, retry_rule(outcome.failure)
    return {
        "outcome": outcome.state,
        "objective": None if outcome.objective is None else number(outcome.objective),
        "best": None if outcome.best is None else number(outcome.best),
        "step": outcome.step,
        "kind": failure.kind if failure else "",
        "error": failure.message[:500] if failure else "",
        "fingerprint": failure.fingerprint[:200] if failure else "",
        "retries": rule.retries,
        "progress": rule.progress,
        "elsewhere": rule.elsewhere,
        "evidence": rule.evidence,
        "keep_log_bytes": FAILED_LOG_KEPT_BYTES if failure else LOG_KEPT_BYTES,
        "ran_ms": outcome.ran_ms,
        "artifacts": _files(outcome.artifacts),
    }
