"""One result as JSON, and back.

Decoding checks every type and that numbers are finite, so that no partial result reaches Redis.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from hpq.domain.attempt import Outcome
from hpq.domain.identity import SWEEP_ID
from hpq.domain.trial import Artifacts, Claim, Failure, FailureKind, TrialId, TrialState
from hpq.store.wire.fields import known, word

_LARGEST = 2**53


class Newer(Exception):
    """Only a newer version can commit the file."""


def encode(claim: Claim, outcome: Outcome) -> str:
    """Return the text of a result."""
    record = {
        "sweep": claim.trial.sweep,
        "number": claim.trial.number,
        "attempt": claim.attempt,
        "nonce": claim.nonce,
        "outcome": asdict(outcome),
    }
    return json.dumps(record)


def decode(text: bytes) -> tuple[Claim, Outcome]:
    """Return the claim and the outcome.

    Raises:
        ValueError, KeyError, TypeError, RecursionError: the text is no result.
        Newer: a newer version wrote its state.
    """
    data = _mapping(json.loads(text), "the file")
    sweep = _text(data["sweep"], "sweep")
    if not SWEEP_ID.match(sweep):
        raise ValueError(f"sweep: {sweep[:80]!r} is not an id")
    claim = Claim(
        trial=TrialId(sweep=sweep, number=_whole(data["number"], "number", least=1)),
        attempt=_whole(data["attempt"], "attempt", least=1),
        nonce=_text(data.get("nonce", ""), "nonce"),  # an older worker's file has none
    )
    return claim, _outcome(_mapping(data["outcome"], "outcome"))


def _outcome(raw: Mapping[str, Any]) -> Outcome:
    state = word(TrialState, _text(raw["state"], "state"))
    if state is None:
        raise Newer(f"this worker does not know the state {raw['state']!r}")
    if not state.is_terminal:
        raise ValueError(f"state: {state} is not terminal")
    ran_ms, artifacts = raw.get("ran_ms"), raw.get("artifacts")  # older workers' files lack them
    return Outcome(
        state=state,
        objective=_real(raw["objective"], "objective"),
        best=_real(raw.get("best"), "best"),
        step=_whole(raw["step"], "step"),
        failure=_failure(raw["failure"]),
        ran_ms=None if ran_ms is None else _whole(ran_ms, "ran_ms"),
        artifacts=None if artifacts is None else _artifacts(_mapping(artifacts, "artifacts")),
    )


def _failure(raw: object) -> Failure | None:
    if raw is None:
        return None
    raw = _mapping(raw, "failure")
    for name in ("kind", "message", "fingerprint"):
        _text(raw.get(name, ""), name)
    kind = word(FailureKind, raw["kind"])
    if kind is not None:
        return known(Failure, {**raw, "kind": kind})
    message = f"{raw['kind']}: {raw['message']}"  # as readers show an unknown kind
    return known(Failure, {**raw, "kind": FailureKind.USER_ERROR, "message": message})


def _artifacts(raw: Mapping[str, Any]) -> Artifacts:
    artifacts = known(Artifacts, raw)
    _text(artifacts.store, "store")
    _text(artifacts.path, "path")
    for name, size in _mapping(artifacts.files, "files").items():
        _whole(size, f"size of {name[:80]!r}")
    return artifacts


def _mapping(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} is not a mapping")
    return value


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{what}: {str(value)[:80]} is not text")
    return value


def _whole(value: object, what: str, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
        raise ValueError(f"{what}: {str(value)[:80]} is not an integer from {least}")
    return value


def _real(value: object, what: str) -> float | None:
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value):  # type: ignore[arg-type]
        raise ValueError(f"{what}: {str(value)[:80]} is not a finite number")
    return float(value)  # type: ignore[arg-type]
