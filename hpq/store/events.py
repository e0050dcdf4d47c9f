"""Read the lifecycle events of a sweep, which the scripts append to a stream."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from redis import Redis

from hpq.domain.identity import ParameterSet
from hpq.domain.status import Event
from hpq.domain.trial import TrialId
from hpq.errors import DecodeError
from hpq.redis.damage import answered
from hpq.store.keys import Keys
from hpq.store.trial_reader import read_parameters
from hpq.store.wire.fields import count, decoding, moment

_ENTRIES_PER_READ = 1_000


class EventReader:
    """Read the events of the sweeps under one prefix."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis, self._keys = redis, keys

    def read(
        self, sid: str, after: str = "0", block_ms: int | None = None, count: int | None = None
    ) -> list[Event]:
        """Return at most `count` events after an id, oldest first.

        Waits at most `block_ms` milliseconds for the first event.

        Raises:
            DecodeError: an entry is not an event.
        """
        key = self._keys.sweep(sid, "events")
        answer: Any = self._redis.xread({key: after}, block=block_ms, count=count)
        return [_event(key, *entry) for _, entries in answer or [] for entry in entries]

    def last_id(self, sid: str) -> str:
        """Return the id of a sweep's newest event; "0" if the sweep has none."""
        entries: Any = self._redis.xrevrange(self._keys.sweep(sid, "events"), count=1)
        return _newest(entries)

    def last_ids(self, sids: Sequence[str]) -> list[str]:
        """Return the id of each sweep's newest event, also "0" if the key is damaged.

        Takes one round trip; none for no sweep.
        """
        if not sids:
            return []
        keys = [self._keys.sweep(sid, "events") for sid in sids]
        pipe = self._redis.pipeline(transaction=False)
        for key in keys:
            pipe.xrevrange(key, count=1)
        found = []
        for key, answer in zip(keys, pipe.execute(raise_on_error=False), strict=True):
            last = "0"
            with suppress(DecodeError):
                last = _newest(answered(key, answer))
            found.append(last)
        return found

    def of_trial(self, trial: TrialId) -> list[Event]:
        """Return the newest events of one trial, about 100 at most, oldest first.

        Raises:
            DecodeError: an entry is not an event.
        """
        return self._of_trials([trial])

    def claims(self, trials: Sequence[TrialId]) -> dict[int, list[tuple[int, int]]]:
        """Return (time in ms, attempt) of each claim of trials of one sweep, by number, in order.

        Of each trial its newest 100 events; takes two round trips.
        """
        found: dict[int, list[tuple[int, int]]] = {}
        for event in self._of_trials(trials):
            if event.what == "claimed":
                found.setdefault(event.trial, []).append((event.at_ms, event.attempt))
        return found

    def _of_trials(self, trials: Sequence[TrialId]) -> list[Event]:
        pipe = self._redis.pipeline(transaction=False)
        for trial in trials:
            pipe.hget(self._keys.trial(trial), "event_ids")
        ids = [
            eid
            for trial, raw in zip(trials, pipe.execute(), strict=True)
            for eid in _event_ids(self._keys.trial(trial), raw or b"")
        ]
        key = self._keys.sweep(trials[0].sweep, "events")
        for eid in ids:
            pipe.xrange(key, eid, eid)
        return [_event(key, *row) for rows in pipe.execute() for row in rows]


def _newest(entries: Any) -> str:
    return str(entries[0][0].decode()) if entries else "0"


class SweepHistory:
    """Read one sweep's events once, from the oldest on, and its parameters, for a sampler."""

    def __init__(
        self,
        redis: Redis,
        keys: Keys,
        sid: str,
        is_trusted: Callable[[int, bytes | None], bool] = lambda _number, _row: True,
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._sid = sid
        self._is_trusted = is_trusted
        self._events = EventReader(redis, keys)
        self._after = "0"

    def events(self, block_ms: int | None = None) -> list[Event]:
        """Return the next events; wait at most `block_ms` milliseconds for the first.

        Raises:
            DecodeError: an entry is not an event.
        """
        events = self._events.read(self._sid, self._after, block_ms, _ENTRIES_PER_READ)
        if events:
            self._after = events[-1].id
        return events

    def rewind(self) -> None:
        """Begin with the oldest event again."""
        self._after = "0"

    def parameters(self, first: int, last: int) -> Iterator[tuple[int, ParameterSet]]:
        """Yield number and parameters of the trials from `first` to `last`, both included.

        Parameters that are not as signed, or cannot be decoded, are omitted: their trial fails with
        the reason. So are those of a trial that begins at the checkpoint of another one: its result
        is not that of its parameters alone.
        """
        read = read_parameters(self._redis, self._keys, self._sid, self._is_trusted, first, last)
        return ((number, params) for number, params in read if params.start is None)

    def objectives(self, numbers: Sequence[int]) -> list[float | None]:
        """Return the objective that each running trial reported last, or None.

        Raises:
            DecodeError: one is no number.
        """
        pipe = self._redis.pipeline(transaction=False)
        for n in numbers:
            pipe.hget(self._keys.trial(TrialId(sweep=self._sid, number=n)), "objective")
        found = list[float | None]()
        for n, raw in zip(numbers, pipe.execute(), strict=True):
            with decoding(self._keys.trial(TrialId(sweep=self._sid, number=n))):
                found.append(float(raw) if raw else None)
        return found


_EVENT_IDS = re.compile(rb"(?:[0-9]{1,20}-[0-9]{1,20}(?: |\Z))*")


def _event_ids(key: str, raw: bytes) -> list[str]:
    if not _EVENT_IDS.fullmatch(raw):
        remedy = f"delete the field: redis-cli HDEL {key} event_ids"
        raise DecodeError(f"{key}: field event_ids: {raw[:60]!r}: not ids of events; {remedy}")
    return raw.decode().split()


def _event(key: str, eid: bytes, fields: Mapping[bytes, bytes]) -> Event:
    """Decode an entry of a stream of events.

    Raises:
        DecodeError: the entry is not an event (the message has the key and the entry's id).
    """
    text = {k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in fields.items()}
    with decoding(f"{key}: entry {eid.decode()}"):
        moment(eid.partition(b"-")[0])
        return Event(
            id=eid.decode(),
            what=text.pop("e"),
            trial=count(text.pop("n", "0")),
            attempt=count(text.pop("a", "0")),
            fields=text,
        )
