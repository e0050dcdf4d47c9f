"""One result as JSON, and back.

Decoding checks every type and that numbers are finite, so that no partial result reaches Redis.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from hpq.domain.attempt import Outcome
from hpq.domain.identity import SWEEP_ID
from hpq.domain.trial import Claim, FailureKind, TrialId
from hpq.store.wire.records import NewerWord, record

_LARGEST = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    sweep: str
    number: int
    attempt: int
    outcome: Outcome
    nonce: str


def encode(claim: Claim, outcome: Outcome) -> str:
    """Return the text of a result."""
    result = _Result(
        sweep=claim.trial.sweep,
        number=claim.trial.number,
        attempt=claim.attempt,
        outcome=outcome,
        nonce=claim.nonce,
    )
    return json.dumps(asdict(result))


def decode(text: bytes) -> tuple[Claim, Outcome]:
    """Return the claim and the outcome.

    Raises:
        ValueError, TypeError, RecursionError: the text is no result.
        NewerWord: a newer version wrote its state.
    """
    data = json.loads(text)
    try:
        result = record(_Result, data)
    except NewerWord as error:
        if error.words is not FailureKind:
            raise
        failure = data["outcome"]["failure"]  # as readers show an unknown kind
        failure["message"] = f"{failure['kind']}: {failure['message']}"
        failure["kind"] = FailureKind.USER_ERROR
        result = record(_Result, data)
    outcome = result.outcome
    sizes = outcome.artifacts.files.values() if outcome.artifacts else ()
    counts = (result.number - 1, result.attempt - 1, outcome.step, outcome.ran_ms or 0, *sizes)
    if not all(0 <= count <= _LARGEST for count in counts):
        raise ValueError("a count is negative or too large")
    if not SWEEP_ID.match(result.sweep) or not outcome.state.is_terminal:
        raise ValueError(f"no end of a trial: {result.sweep[:80]!r} {outcome.state}")
    trial = TrialId(sweep=result.sweep, number=result.number)
    return Claim(trial=trial, attempt=result.attempt, nonce=result.nonce), outcome
