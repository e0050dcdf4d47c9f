"""Follow a sweep by blocking reads of its event stream instead of polling, or wait for its end.

During an outage of Redis, one message is printed; following continues when Redis is back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hpq.access.session import Session
from hpq.domain.status import Event, SweepStatus
from hpq.domain.sweep import SweepState
from hpq.domain.trial import TrialView
from hpq.errors import TimedOut
from hpq.notice import Notice, plural, print_message, tagged
from hpq.redis.client import TRANSIENT, short_reason
from hpq.store.reader import StoreReader
from hpq_views.text.text import progress
from hpq_views.why.turn import without_counts
from hpq_views.why.waiting import explain_missing_pods, explain_waiting, why_no_trial_starts

BLOCK_MS = 1000  # below the client's socket timeout
BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepUpdate:
    """The events since the last update, the sweep after them, and the trials that they name."""

    status: SweepStatus
    events: list[Event]
    trials: Mapping[int, TrialView]  # empty unless `follow` was asked for them


def follow(
    reader: StoreReader, sid: str, *, rows: int = 0, with_trials: bool = False
) -> Iterator[SweepUpdate]:
    """Yield the sweep now, then after each batch of events and at least every few seconds.

    Events before the first status are omitted; all later ones are yielded once, in order. During
    an outage the last status is yielded again: the caller may stop to wait.

    Raises:
        NotFound: the sweep does not exist, or was removed meanwhile.
    """
    last: SweepUpdate | None = None
    after = ""
    is_away = False
    while True:
        try:
            last = _next(reader, sid, after if last else None, rows, with_trials=with_trials)
            is_away = False
        except TRANSIENT as error:
            if not is_away:
                text = f"hpq: Redis: {short_reason(error)}; waiting until Redis answers"
                print_message(tagged(text, "redis-away"))
            is_away = True
            time.sleep(1)
            if last is not None:
                yield SweepUpdate(status=last.status, events=[], trials={})
            continue
        after = last.events[-1].id if last.events else after or last.status.last_event
        yield last


def _next(
    reader: StoreReader, sid: str, after: str | None, rows: int, *, with_trials: bool
) -> SweepUpdate:
    """Wait for events after an id, then read the sweep; None: read it now."""
    events: list[Event] = []
    if after is not None:
        events = reader.events.read(sid, after, block_ms=BLOCK_MS, count=BATCH)
    status = reader.status(sid, rows, top=1, recent=3)
    if after is not None and is_over_or_held(status):  # no further event: read all without blocking
        events += reader.events.read(sid, events[-1].id if events else after)
    numbers = sorted({event.trial for event in events if event.trial and with_trials})
    trials = {trial.id.number: trial for trial in reader.trials.get_many(sid, numbers)}
    return SweepUpdate(status=status, events=events, trials=trials)


def is_over_or_held(status: SweepStatus) -> bool:
    """Return True if the sweep has ended, or is held until its owner acts."""
    return status.sweep.state.is_over or status.sweep.state is SweepState.HELD


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepAtEnd:
    """The sweep when the wait ended; `late` is the error if the time was up before."""

    status: SweepStatus
    why: Notice | None  # why no worker claims its trials
    late: TimedOut | None = None


def wait_until_over(session: Session, sid: str, timeout_s: float | None = None) -> SweepAtEnd:
    """Wait until the sweep has ended or is held, or at most `timeout_s` seconds.

    Raises:
        NotFound: the sweep does not exist, or was removed meanwhile.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    printed: set[str] = set()
    for change in follow(session.reader, sid):
        status = change.status
        late = None
        why = explain_waiting(status, session)
        reasons = [why] if why else explain_missing_pods(status, session)
        if status.sweep.state is SweepState.PAUSED:  # a worker would start no trial of it
            reasons = [*why_no_trial_starts(status.sweep, why)]
        for reason in reasons:
            if without_counts(reason.text) not in printed:
                print_message(f"hpq: {reason}")
                printed.add(without_counts(reason.text))
        if is_over_or_held(status):
            break
        if deadline is not None and time.monotonic() > deadline:
            counts = status.sweep.counts
            ended = f"{progress(counts)} {plural(counts.progress[1], 'trial')}"
            text = f"{sid} is not over after {timeout_s:g} s: {ended} ended; hpq watch {sid}"
            late = TimedOut(text)
            break
    return SweepAtEnd(status=status, why=why, late=late)
