"""Audit a sweep in a store: read pages of events, then pages of trials.

The sweep may change meanwhile. Each change of a trial appends an event in the same script call, so
records read between two reads of the stream without new events belong to one moment.
"""

from __future__ import annotations

from dataclasses import replace

from hpq.domain.stored_state import StoredState
from hpq.domain.sweep import SweepView
from hpq.store.audit_reader import SweepCounters
from hpq.store.reader import StoreReader
from hpq_ops.audit.replay import Audit, Replay, Violation

PAGE = 1000  # events or trials read at once
_READS_MAX = 200  # of a page, until no event arrives while it is read


def audit_sweep(reader: StoreReader, sid: str) -> Audit:
    """Compare a sweep with its events.

    Raises:
        NotFound: no sweep has this id.
    """
    sweep = reader.sweeps.get(sid)
    replicates = sweep.replicates
    replay = Replay(replicates, sweep.metric is not None)
    after, _ = _replay_new(reader, sid, replay, "0")
    suspects: list[int] = []
    counters = reader.audit.counters(sid, sweep.queue)
    total = max(counters.total, replay.created)  # lost trials are checked, too
    for start in range(1, total + 1, PAGE):
        numbers = range(start, min(start + PAGE, total + 1))
        records = reader.audit.records(sid, numbers, replicates)
        suspects += [record.number for record in records if replay.differs(record)]
    after, _ = _replay_new(reader, sid, replay, after)
    for start in range(0, len(suspects), PAGE):
        after = _judge(reader, sid, replay, after, suspects[start : start + PAGE], replicates)
    for _ in range(_READS_MAX):
        sweep, counters = reader.sweeps.get(sid), reader.audit.counters(sid, sweep.queue)
        after, has_new = _replay_new(reader, sid, replay, after)
        if not has_new:
            break
    found = replay.verdict(counters)
    missing = reader.audit.missing(sweep)
    lacking = [Violation(trial=0, what=f"is missing: {what}") for what in missing]
    if _may_start(sweep, counters) and not counters.is_pending:
        lacking.append(Violation(trial=0, what="trials wait, but no claim looks at the sweep"))
    return replace(found, violations=(*found.violations, *lacking))


def _may_start(sweep: SweepView, counters: SweepCounters) -> bool:
    """Return whether a trial waits that state and `max_parallel` let start."""
    is_full = sweep.max_parallel and counters.running >= sweep.max_parallel
    return sweep.stored is StoredState.OPEN and counters.waiting > 0 and not is_full


def _judge(
    reader: StoreReader, sid: str, replay: Replay, after: str, numbers: list[int], replicates: int
) -> str:
    """Judge trials that differed, from records between which no event arrived."""
    for _ in range(_READS_MAX):
        records = reader.audit.records(sid, numbers, replicates)
        after, has_new = _replay_new(reader, sid, replay, after)
        if not has_new:
            for record in records:
                replay.judge(record)
            break
        numbers = [record.number for record in records if replay.differs(record)]
    return after


def _replay_new(reader: StoreReader, sid: str, replay: Replay, after: str) -> tuple[str, bool]:
    """Replay the events after an id; return the last id, and whether there were any."""
    has_new = False
    while events := reader.events.read(sid, after, count=PAGE):
        for event in events:
            replay.add(event)
        after, has_new = events[-1].id, True
    return after, has_new
