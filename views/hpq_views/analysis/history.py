"""Read what happened in trials: their attempts from events, and the curves of their metrics.

An attempt has its host, its first step and its end. A curve has every stored value of a metric,
with its attempt and its time. Commands, page and Python API read both here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice

from hpq.domain.status import Event
from hpq.domain.trial import Curve, TrialState, TrialView
from hpq.store.reader import StoreReader

TERMINAL = frozenset(s.value for s in TrialState if s.is_terminal)
_CURVES_PER_ROUND_TRIP = 200  # about 1,000 values each at most


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


def read_curves(
    reader: StoreReader, trials: Iterable[TrialView], metrics: Collection[str] | None = None
) -> Iterator[Curve]:
    """Yield the curves of trials of one sweep, trial by trial; `metrics`: only these.

    One round trip reads 200 curves of one sweep, a second one the attempts of trials that began
    twice. The curves of a copied result are those of the trial that trained.
    """
    wanted = (
        (trial, name)
        for trial in trials
        for name in trial.metrics
        if metrics is None or name in metrics
    )
    while chunk := list(islice(wanted, _CURVES_PER_ROUND_TRIP)):
        curves: list[Curve] = []
        for sid, some in groupby(chunk, key=lambda one: one[0].trained.sweep):
            of_sweep = [*some]
            asked = [(trial.trained.number, name) for trial, name in of_sweep]
            found = reader.trials.curves(sid, asked)
            curves += [
                replace(curve, trial=trial.id.number)
                for (trial, _), curve in zip(of_sweep, found, strict=True)
            ]
        again = {trial.id.number: trial.id for trial, _ in chunk if trial.attempt > 1}
        claims = reader.events.claims(list(again.values())) if again else {}
        for curve in curves:
            starts = claims.get(curve.trial)
            yield replace(curve, attempts=_attempts(curve.times_ms, starts)) if starts else curve


def _attempts(times_ms: Sequence[int], starts: Sequence[tuple[int, int]]) -> list[int]:
    """Return the attempt that had the trial at each time; `starts` are (time, attempt)."""
    begins = [at_ms for at_ms, _ in starts]
    return [starts[max(0, bisect_right(begins, at_ms) - 1)][1] for at_ms in times_ms]
