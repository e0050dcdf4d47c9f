"""The half of `wire` that belongs to an attempt: what claim, beat and commit take and answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hpq.domain.attempt import Outcome, ReportBatch
from hpq.domain.retry_policy import retry_rule
from hpq.domain.trial import (
    Artifacts,
    Checkpoint,
    Claim,
    Failure,
    FailureKind,
    Point,
    TrialId,
    TrialState,
)
from hpq.errors import DecodeError
from hpq.store.keys import Keys
from hpq.store.wire import sweep as sweep_codec
from hpq.store.wire import trial as trial_codec
from hpq.store.wire.fields import Field

LOG_KEPT_BYTES = 16_384  # of a finished trial's log
FAILED_LOG_KEPT_BYTES = 262_144
_WHY_CHARACTERS = 200


def decode_claim(keys: Keys, answer: list[Any], nonce: str) -> Claim:
    """What `claim` answers after its word to who asked with this nonce.

    A checkpoint that cannot be read is one in no store that anybody has: the worker says so and
    starts from nothing.

    Raises:
        DecodeError: the parameters are not what this version writes.
    """
    sid, number, attempt, params, checkpoint, unbegun, *_ = answer
    trial = TrialId(sweep=sid.decode(), number=int(number))
    where = f"{keys.sweep(trial.sweep, 'params')} field {trial.number}"
    values = trial_codec.decode_params(where, params)
    row = {b"checkpoint": checkpoint}
    try:
        told = trial_codec.decode_trial(keys.trial(trial), trial, row, {}, dropped=False).checkpoint
    except DecodeError:
        told = Checkpoint(store="unknown", path="")
    return Claim(
        trial=trial,
        attempt=int(attempt),
        params=values,
        checkpoint=told,
        nonce=nonce,
        unbegun=int(unbegun),
    )


def blank_claim(answer: list[Any], nonce: str) -> Claim:
    """The claim that an answer is whose parameters cannot be read."""
    trial = TrialId(sweep=answer[0].decode(), number=int(answer[1]))
    return Claim(trial=trial, attempt=int(answer[2]), params={}, nonce=nonce)


def unreadable(error: DecodeError) -> Outcome:
    """How a trial ends whose parameters cannot be read."""
    failure = Failure(kind=FailureKind.BAD_PARAMS, message=str(error), fingerprint="unreadable")
    return Outcome(state=TrialState.FAILED, failure=failure)


def _files(record: Checkpoint | Artifacts | None) -> str:
    """A pointer into a store of files as JSON; empty for none."""
    return sweep_codec.dumps(asdict(record)) if record else ""


def encode_batch(batch: ReportBatch) -> dict[str, Field]:
    """Encode a batch for the script `beat`, without its log and its points."""
    return {
        "seq": batch.seq,
        "step": batch.step,
        "objective": "" if batch.objective is None else sweep_codec.number(batch.objective),
        "phase": batch.phase,
        "checkpoint": _files(batch.checkpoint),
        "checkpoint_step": batch.checkpoint.step if batch.checkpoint else 0,
        "restarted": batch.restarted[:_WHY_CHARACTERS],
    }


def encode_points(points: Sequence[Point]) -> list[str]:
    """Encode points for the script `beat`: step, metric and value of each."""
    return [part for p in points for part in (str(p.step), p.name, sweep_codec.number(p.value))]


def encode_outcome(outcome: Outcome) -> dict[str, Field]:
    """Encode an outcome for the script `commit`, with the retry rule of its failure."""
    failure, rule = outcome.failure, retry_rule(outcome.failure)
    return {
        "outcome": outcome.state,
        "objective": None if outcome.objective is None else sweep_codec.number(outcome.objective),
        "best": None if outcome.best is None else sweep_codec.number(outcome.best),
        "step": outcome.step,
        "kind": failure.kind if failure else "",
        "error": failure.message[:500] if failure else "",
        "fingerprint": failure.fingerprint[:200] if failure else "",
        "retries": rule.retries,
        "progress": rule.progress,
        "elsewhere": rule.elsewhere,
        "evidence": rule.evidence,
        "log_bytes": FAILED_LOG_KEPT_BYTES if failure else LOG_KEPT_BYTES,
        "ran_ms": outcome.ran_ms,
        "artifacts": _files(outcome.artifacts),
    }
