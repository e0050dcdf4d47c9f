"""What a sweep has been through, read bit by bit by the one who makes its next sets.

Plain read commands, a bounded number of entries each; nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from redis import Redis

from hpq import wire_trial
from hpq.errors import DecodeError
from hpq.events import event_of
from hpq.keys import Keys
from hpq.snapshot import Event
from hpq.trial import Params, TrialId

_SOME = 1_000


class History:
    """One sweep's events and sets, from a place that moves forward."""

    def __init__(self, redis: Redis, keys: Keys, sid: str) -> None:
        self._redis, self._keys, self._sid = redis, keys, sid
        self._after = "0"

    def events(self, block_ms: int | None = None) -> list[Event]:
        """The next events; waits up to `block_ms` for the first.

        Raises:
            DecodeError: one cannot be read.
        """
        key = self._keys.sweep(self._sid, "events")
        answer: Any = self._redis.xread({key: self._after}, block=block_ms, count=_SOME)
        found = answer[0][1] if answer else []
        events = [event_of(key, eid, fields) for eid, fields in found]
        if events:
            self._after = events[-1].id
        return events

    def sets(self, first: int, last: int) -> Iterator[tuple[int, Params]]:
        """The sets with these numbers, both included, but for those that cannot be read."""
        key = self._keys.sweep(self._sid, "params")
        for start in range(first, last + 1, _SOME):
            numbers = range(start, min(start + _SOME, last + 1))
            rows: Any = self._redis.hmget(key, [str(n) for n in numbers])
            for n, raw in zip(numbers, rows, strict=True):
                with suppress(DecodeError):  # its trial fails and says so
                    yield n, wire_trial.decode_params(f"{key} field {n}", raw)

    def objectives(self, numbers: Sequence[int]) -> list[float | None]:
        """What these running trials report now; None where nothing finite."""
        pipe = self._redis.pipeline(transaction=False)
        for n in numbers:
            pipe.hget(self._keys.trial(TrialId(sweep=self._sid, number=n)), "objective")
        return [float(raw) if raw else None for raw in pipe.execute()]
