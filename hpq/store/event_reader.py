"""A lifecycle event of a sweep out of its stream. Readers only; the scripts write them.

What a sweep has been through, read bit by bit by the one who makes its next sets.

Plain read commands, a bounded number of entries each; nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from redis import Redis

from hpq.domain.snapshot import Event
from hpq.domain.trial import Params, TrialId
from hpq.errors import DecodeError
from hpq.store.keys import Keys
from hpq.store.wire import trial as trial_codec


def event_of(key: str, eid: bytes, fields: Mapping[bytes, bytes]) -> Event:
    """An entry of a stream of events.

    Raises:
        DecodeError: it is none (names the key and the entry).
    """
    try:
        text = {
            k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in fields.items()
        }
        return Event(
            id=eid.decode(),
            what=text.pop("e"),
            trial=int(text.pop("n", "0")),
            attempt=int(text.pop("a", "0")),
            fields=text,
        )
    except (KeyError, ValueError) as error:
        raise DecodeError(f"{key}: entry {eid.decode()}: {error}") from None


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
                    yield n, trial_codec.decode_params(f"{key} field {n}", raw)

    def objectives(self, numbers: Sequence[int]) -> list[float | None]:
        """What these running trials report now; None where nothing finite."""
        pipe = self._redis.pipeline(transaction=False)
        for n in numbers:
            pipe.hget(self._keys.trial(TrialId(sweep=self._sid, number=n)), "objective")
        return [float(raw) if raw else None for raw in pipe.execute()]
