"""Follow a sweep by blocking reads of its event stream instead of polling.

During an outage of Redis, one message is printed; following continues when Redis is back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from hpq.connection.client import TRANSIENT
from hpq.domain.status import Event, SweepStatus
from hpq.domain.sweep import SweepState
from hpq.store.reader import StoreReader
from hpq_producer.terminal.console import print_message

BLOCK_MS = 1000  # below the client's socket timeout
BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepUpdate:
    """The events since the last update, and the sweep after them."""

    status: SweepStatus
    events: list[Event]


def follow(reader: StoreReader, sid: str, *, rows: int = 0) -> Iterator[SweepUpdate]:
    """Yield the sweep now, then after each batch of events and at least every second.

    Events before the first status are omitted; all later ones are yielded once, in order.

    Raises:
        NotFound: the sweep does not exist, or was removed meanwhile.
    """
    status = reader.status(sid, rows, top=1, recent=3)
    after, is_away = status.last_event, False
    yield SweepUpdate(status=status, events=[])
    while True:
        try:
            events = reader.events.read(sid, after, block_ms=BLOCK_MS, count=BATCH)
            status = reader.status(sid, rows, top=1, recent=3)
            if is_settled(status):  # no further event: read all earlier ones without blocking
                events += reader.events.read(sid, events[-1].id if events else after)
        except TRANSIENT:
            if not is_away:
                print_message("hpq: Redis does not answer; waiting until it does")
            is_away = True
            time.sleep(1)
            continue
        is_away = False
        if events:
            after = events[-1].id
        yield SweepUpdate(status=status, events=events)


def is_settled(status: SweepStatus) -> bool:
    """Return True if the sweep has ended, or is held until its owner acts."""
    return status.sweep.state.is_over or status.sweep.state is SweepState.HELD
