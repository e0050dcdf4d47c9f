"""Read a trial's attempts out of its events: where each ran, from which step, how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpq.domain.snapshot import Event
from hpq.domain.trial import Trial, TrialState
from hpq_producer.analysis.records import iso

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
    from_step: int | None = None  # of the checkpoint that it went on from; None: from nothing
    restarted: str = ""  # why it could not go on from the checkpoint that there was


def attempts_of(story: Sequence[Event], trial: Trial) -> list[Attempt]:
    """The attempts that the events tell of, in order; the last one as the trial's row has it."""
    found: dict[int, Attempt] = {}
    for event in story:
        old = found.get(event.attempt) or Attempt(number=event.attempt)
        found[event.attempt] = _after(old, event)
    last = found.get(trial.attempt)
    if last is not None:
        found[trial.attempt] = replace(last, ran_ms=trial.duration_ms or last.ran_ms)
    return [found[number] for number in sorted(found)]


def _after(it: Attempt, event: Event) -> Attempt:
    fields, at_ms = event.fields, event.at_ms
    if event.what == "claimed":
        step, worker, host = fields.get("from"), fields.get("worker", ""), fields.get("host", "")
        it = replace(it, worker=worker, host=host, started_ms=at_ms)
        return replace(it, from_step=int(step)) if step and step.isdigit() else it
    if event.what == "restarted":
        return replace(it, from_step=None, restarted=fields.get("why", ""))
    if event.what == "resumed":  # it came back after its lease had ended
        return replace(it, end="", kind="")
    if event.what != "requeued" and event.what not in TERMINAL:
        return it
    beat = fields.get("beat_ms", "")  # nobody knows of a lost attempt later than that
    until_ms = int(beat) if beat.isdigit() and int(beat) else at_ms
    ran_ms = max(0, until_ms - it.started_ms) if it.started_ms else 0
    end = fields.get("reason", "") if event.what == "requeued" else event.what
    return replace(it, end=end, kind=fields.get("kind", ""), ran_ms=ran_ms)


def attempt_record(it: Attempt) -> dict[str, Any]:
    """An attempt as data."""
    return {
        "attempt": it.number,
        "worker": it.worker or None,
        "host": it.host or None,
        "started": iso(it.started_ms),
        "duration_s": it.ran_ms / 1000,
        "end": it.end or None,
        "kind": it.kind or None,
        "from_step": it.from_step,
        "restarted": it.restarted or None,
    }
