"""Sweeps and trials as readers of the store return them, without a store."""

from __future__ import annotations

from hpq.domain.stored_state import Cause, Hold, StoredState
from hpq.domain.sweep import Launch, SweepView
from hpq.domain.trial import TrialId, TrialState, TrialView

SID = "demo-00000"


def sweep_view(**fields: object) -> SweepView:
    """Return a sweep of a trainer with these fields."""
    launch = Launch(trainer="digits")
    base = {"id": SID, "name": "demo", "digest": "", "launch": launch}
    return SweepView(**{**base, **fields})  # type: ignore[arg-type]


def held(text: str) -> dict[str, object]:
    """Return the fields of a sweep whose trials fail alike."""
    return {"stored": StoredState.HELD, "why": Hold(cause=Cause.ALIKE, text=text)}


def trial_view(number: int = 1, **fields: object) -> TrialView:
    """Return a trial of that sweep, finished by default, with these fields."""
    trial = TrialId(sweep=SID, number=number)
    base = {"id": trial, "state": TrialState.FINISHED, "params": {}}
    return TrialView(**{**base, **fields})  # type: ignore[arg-type]
