"""Holds the audit of a sweep in a store: pages of events, then pages of trials.

Also of a sweep that moves meanwhile: each change of a trial appends an event in the same step, so
what was read between two looks at the stream that see nothing new is of one moment.
"""

from __future__ import annotations

from dataclasses import replace

from hpq.store.reader import View
from hpq_producer.audit.replay import Audit, Replay, Violation

PAGE = 1000
_LOOKS = 200


def hold_audit(view: View, sid: str) -> Audit:
    """The verdict on a sweep.

    Raises:
        NotFound: there is no such sweep.
    """
    sweep = view.sweep(sid)
    each = sweep.replicates
    replay, after = Replay(each, sweep.metric is not None), "0"
    after, _ = _read_on(view, sid, replay, after)
    suspects: list[int] = []
    total = max(view.books(sid).total, replay.created)  # the lost ones are looked for, too
    for start in range(1, total + 1, PAGE):
        page = view.standings(sid, range(start, min(start + PAGE, total + 1)), each)
        suspects += [s.number for s in page if replay.differs(s)]
    after, _ = _read_on(view, sid, replay, after)
    for start in range(0, len(suspects), PAGE):
        after = _judge(view, sid, replay, after, suspects[start : start + PAGE], each)
    for _ in range(_LOOKS):
        books = view.books(sid)
        after, moved = _read_on(view, sid, replay, after)
        if not moved:
            break
    found = replay.verdict(books)
    gone = [Violation(trial=0, what=f"is gone: {what}") for what in view.gone(sweep)]
    return replace(found, violations=(*found.violations, *gone))


def _judge(view: View, sid: str, replay: Replay, after: str, numbers: list[int], each: int) -> str:
    """Look again at trials that differed, in a moment in which nothing moves."""
    for _ in range(_LOOKS):
        page = view.standings(sid, numbers, each)
        after, moved = _read_on(view, sid, replay, after)
        if not moved:
            for standing in page:
                replay.judge(standing)
            break
        numbers = [s.number for s in page if replay.differs(s)]
    return after


def _read_on(view: View, sid: str, replay: Replay, after: str) -> tuple[str, bool]:
    """Replay what has happened since; the last id, and whether anything had."""
    moved = False
    while events := view.events(sid, after, count=PAGE):
        for event in events:
            replay.see(event)
        after, moved = events[-1].id, True
    return after, moved
