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
from hpq.redis.round_trips import Question, ask
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
        return ask(self._redis, self.last_id_question(sid))

    def last_id_question(self, sid: str) -> Question[str]:
        """Ask for the id of a sweep's newest event, as `last_id`."""
        key = self._keys.sweep(sid, "events")
        (answer,) = yield lambda pipe: pipe.xrevrange(key, count=1)
        return _newest(answered(key, answer))

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
        return ask(self._redis, self.of_trials_question([trial]))

    def claims(self, trials: Sequence[TrialId]) -> dict[int, list[tuple[int, int]]]:
        """Return (time in ms, attempt) of each claim of trials of one sweep, by number, in order.

        Of each trial its newest 100 events; takes two round trips.
        """
        found: dict[int, list[tuple[int, int]]] = {}
        for event in ask(self._redis, self.of_trials_question(trials)):
            if event.what == "claimed":
                found.setdefault(event.trial, []).append((event.at_ms, event.attempt))
        return found

    def of_trials_question(self, trials: Sequence[TrialId]) -> Question[list[Event]]:
        """Ask for the newest events of trials of one sweep; as `of_trial` for each of them."""
        found = [self._keys.trial(trial) for trial in trials]

        def add_trials(pipe: Any) -> None:
            for key in found:
                pipe.hget(key, "event_ids")

        answers = yield add_trials
        ids = [
            eid
            for key, answer in zip(found, answers, strict=True)
            for eid in _event_ids(key, answered(key, answer) or b"")
        ]
        events = self._keys.sweep(trials[0].sweep, "events")

        def add_events(pipe: Any) -> None:
            for eid in ids:
                pipe.xrange(events, eid, eid)

        answers = yield add_events
        return [_event(events, *row) for answer in answers for row in answered(events, answer)]


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
