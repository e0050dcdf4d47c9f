"""Read the lifecycle events of a sweep, which the scripts append to a stream."""

from __future__ import annotations

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
from hpq.notice import Notice
from hpq.store.keys import Keys
from hpq.store.scripts import Mark
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

    def report_lost(self, marks: Sequence[Mark]) -> tuple[Notice | None, list[Mark]]:
        """Look for events, and record those that the server lacks.

        Returns:
            A notice of what it lacks, and the marks to look for next time. A primary that is about
            to be replaced loses the record, too, so the record takes the place of a lost event.

        Raises:
            redis.RedisError: the server does not answer.
        """
        pipe = self._redis.pipeline(transaction=False)
        for mark in marks:
            pipe.xrange(self._keys.sweep(mark.sweep, "events"), mark.event, mark.event)
        has = [_is_of(mark, found) for mark, found in zip(marks, pipe.execute(), strict=True)]
        kept = [mark for mark, is_there in zip(marks, has, strict=True) if is_there]
        absent = [mark for mark, is_there in zip(marks, has, strict=True) if not is_there]
        removed = {sid: self._was_removed(sid) for sid in {mark.sweep for mark in absent}}
        lost = [mark for mark in absent if not removed[mark.sweep]]
        if not lost:
            return None, kept
        for mark in lost:
            event: dict[Any, Any] = {"e": "went_back", "n": mark.trial, "a": 0, "lost": mark.event}
            # A sweep that is gone gets no events.
            pipe.xadd(self._keys.sweep(mark.sweep, "events"), event, nomkstream=True)
        pipe.hset(self._keys.settle, "went_back", server_ms(self._redis))
        what = dict[str, None]()
        for mark, eid in zip(lost, pipe.execute(), strict=False):
            sid = mark.sweep
            what[f"`hpq audit {sid}` names it" if eid else f"sweep {sid} is gone"] = None
            kept += [replace(mark, event=eid.decode())] if eid else []
        text = "the server lost what it had acknowledged, in a failover or a restart"
        return Notice("server-went-back", f"{text}: {'; '.join([*what][:5])}"), kept

    def _was_removed(self, sid: str) -> bool:
        """Return whether a sweep was removed or moved, or may have been one of many removed."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.exists(self._keys.sweep(sid))
        pipe.zscore(self._keys.removed, sid)
        pipe.hexists(self._keys.history, sid)
        pipe.zcard(self._keys.removed)
        is_there, removed_ms, has_moved, count = pipe.execute()
        return not is_there and bool(removed_ms or has_moved or count >= _REMOVED)


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


def _is_of(mark: Mark, entries: Sequence[Any]) -> bool:
    """Return whether the entry with a mark's id is the mark's event.

    Two primaries that accept writes during a failover may use an id for two trials.
    """
    return bool(entries) and mark.trial in (0, int(entries[0][1].get(b"n", 0)))


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
        return Event(
            id=eid.decode(),
            what=text.pop("e"),
            trial=int(text.pop("n", "0")),
            attempt=int(text.pop("a", "0")),
            fields=text,
        )
