"""Reconstruct a trial's attempts from its events: host, first step, end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpq.domain.status import Event
from hpq.domain.trial import TrialState, TrialView

TERMINAL = frozenset(s.value for s in TrialState if s.is_terminal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One execution of a trial. `end` is "" while it runs, else a reason or a terminal state."""

    number: int
    worker: str = ""
    host: str = ""
    started_ms: int = 0
    ran_ms: int = 0
    end: str = ""
    kind: str = ""  # of a failure
    from_step: int | None = None  # of the checkpoint that it resumed; None: from the start
    restarted: str = ""  # why the existing checkpoint was not resumed


def attempts_of(story: Sequence[Event], trial: TrialView) -> list[Attempt]:
    """Return the attempts in order; the duration of the last one is the trial's own."""
    found: dict[int, Attempt] = {}
    for event in story:
        old = found.get(event.attempt) or Attempt(number=event.attempt)
        found[event.attempt] = _apply(old, event)
    last = found.get(trial.attempt)
    if last is not None and last.end in ("", trial.state.value):
        found[trial.attempt] = replace(last, ran_ms=trial.duration_ms or last.ran_ms)
    return [found[number] for number in sorted(found)]


def _apply(attempt: Attempt, event: Event) -> Attempt:
    fields, at_ms = event.fields, event.at_ms
    if event.what == "claimed":
        step = fields.get("from")
        worker = fields.get("worker", "")
        host = fields.get("host", "")
        attempt = replace(attempt, worker=worker, host=host, started_ms=at_ms)
        return replace(attempt, from_step=int(step)) if step and step.isdigit() else attempt
    if event.what == "restarted":
        return replace(attempt, from_step=None, restarted=fields.get("why", ""))
    if event.what == "resumed":  # the worker returned after its lease had expired
        return replace(attempt, end="", kind="")
    is_over = event.what == "cancelled" and attempt.end  # cancelled in the queue: no attempt ended
    if is_over or (event.what != "requeued" and event.what not in TERMINAL):
        return attempt
    beat = fields.get("beat_ms", "")  # the last heartbeat of a lost attempt
    until_ms = int(beat) if beat.isdigit() and int(beat) else at_ms
    ran_ms = max(0, until_ms - attempt.started_ms) if attempt.started_ms else 0
    end = fields.get("reason", "") if event.what == "requeued" else event.what
    return replace(attempt, end=end, kind=fields.get("kind", ""), ran_ms=ran_ms)
