"""Read the lifecycle events of a sweep, which the scripts append to a stream; record lost ones."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from redis import Redis

from hpq.domain.identity import ParameterSet
from hpq.domain.status import Event
from hpq.domain.trial import TrialId
from hpq.errors import DecodeError
from hpq.store.keys import Keys
from hpq.store.scripts import Mark, StoreContext
from hpq.store.wire import trial as trial_codec
from hpq.store.wire.fields import decoding
from hpq.store.worker_reader import server_ms

_ENTRIES_PER_READ = 1_000
_REMOVED = 1_000  # sweeps whose removal Redis knows


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
        return str(entries[0][0].decode()) if entries else "0"

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


class SweepHistory:
    """Read one sweep's events once, from the oldest on, and its parameters, for a sampler."""

    def __init__(
        self,
        redis: Redis,
        keys: Keys,
        sid: str,
        is_trusted: Callable[[int, bytes | None], bool] = lambda _number, _row: True,
    ) -> None:
        self._redis, self._keys, self._sid = redis, keys, sid
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

    def parameters(self, first: int, last: int) -> Iterator[tuple[int, ParameterSet]]:
        """Yield number and parameters of the trials from `first` to `last`, both included.

        Parameters that are not as signed, or cannot be decoded, are omitted: their trial fails with
        the reason.
        """
        key = self._keys.sweep(self._sid, "params")
        for start in range(first, last + 1, _ENTRIES_PER_READ):
            numbers = range(start, min(start + _ENTRIES_PER_READ, last + 1))
            rows: Any = self._redis.hmget(key, [str(n) for n in numbers])
            for n, raw in zip(numbers, rows, strict=True):
                if self._is_trusted(n, raw):
                    with suppress(DecodeError):
                        yield n, ParameterSet(trial_codec.decode_params(f"{key} field {n}", raw))

    def objectives(self, numbers: Sequence[int]) -> list[float | None]:
        """Return the objective that each running trial reported last, or None."""
        pipe = self._redis.pipeline(transaction=False)
        for n in numbers:
            pipe.hget(self._keys.trial(TrialId(sweep=self._sid, number=n)), "objective")
        return [float(raw) if raw else None for raw in pipe.execute()]


_EVENT_IDS = re.compile(rb"(?:[0-9-]{1,41} ?)*")


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
        text.pop("us", None)
        return Event(
            id=eid.decode(),
            what=text.pop("e"),
            trial=int(text.pop("n", "0")),
            attempt=int(text.pop("a", "0")),
            fields=text,
        )


def find_lost(context: StoreContext, marks: Sequence[Mark]) -> tuple[list[Mark], list[Mark]]:
    """Return the marks whose events the server has, and those whose events it has lost.

    Marks that are older than a removal or a restore of their sweep are in neither list.

    Raises:
        redis.RedisError: the server does not answer.
    """
    redis, keys = context.redis, context.keys
    pipe = redis.pipeline(transaction=False)
    for mark in marks:
        pipe.xrange(keys.sweep(mark.sweep, "events"), mark.event, mark.event)
    found = pipe.execute(raise_on_error=False)
    kept, absent = list[Mark](), list[Mark]()
    for mark, entries in zip(marks, found, strict=True):
        (kept if _is_of(mark, entries) else absent).append(mark)
    outdated = {sid: _outdated_ms(redis, keys, sid) for sid in {mark.sweep for mark in absent}}
    return kept, [mark for mark in absent if mark.at_ms > outdated[mark.sweep]]


def record_lost(context: StoreContext, lost: Sequence[Mark]) -> list[Mark | None]:
    """Write an event for each lost one; return their marks, None for a sweep that is gone.

    Raises:
        redis.RedisError: the server does not answer, or is full.
    """
    redis, keys = context.redis, context.keys
    pipe = redis.pipeline(transaction=False)
    for mark in lost:
        event: dict[Any, Any] = {
            "e": "went_back", "n": mark.trial, "a": 0, "us": mark.us, "lost": mark.event
        }  # fmt: skip
        # A sweep that is gone gets no events.
        pipe.xadd(keys.sweep(mark.sweep, "events"), event, nomkstream=True)
    ids = pipe.execute()
    if any(ids):  # else it may be another server, at the same address
        redis.hset(keys.settle, "went_back", server_ms(redis))
    return [
        replace(mark, event=eid.decode()) if eid else None
        for mark, eid in zip(lost, ids, strict=True)
    ]


def _is_of(mark: Mark, entries: Any) -> bool:
    """Return whether the entry with a mark's id is the mark's event, and no other primary's."""
    if isinstance(entries, Exception):  # a damaged key, which `hpq audit` reports
        return True
    return bool(entries) and mark.us.encode() == entries[0][1].get(b"us", b"")


def _outdated_ms(redis: Redis, keys: Keys, sid: str) -> float:
    """Return the time of a sweep's removal or restore: the server need not have older events."""
    pipe = redis.pipeline(transaction=False)
    pipe.exists(keys.sweep(sid))
    pipe.hget(keys.sweep(sid), "restored_ms")
    pipe.zscore(keys.removed, sid)
    pipe.hexists(keys.history, sid)
    pipe.zcard(keys.removed)
    pipe.zrange(keys.removed, 0, 0, withscores=True)
    is_there, restored_ms, removed_ms, has_moved, count, oldest = pipe.execute()
    if is_there:
        return float(restored_ms or 0)
    if removed_ms or has_moved:
        return math.inf
    return float(oldest[0][1]) if count >= _REMOVED else 0.0  # the list dropped older removals
