"""The writes of a person: to pause, stop, cancel, change, retry and remove sweeps.

Deletes a sweep with everything that it holds. Only `store` and what restores archives use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from redis import Redis
from redis.exceptions import OutOfMemoryError

from hpq.domain.trial import TrialId
from hpq.store.code import CodeStore
from hpq.store.keys import Keys
from hpq.store.scripts import judge
from hpq.store.wire import trial as trial_codec
from hpq.store.wire.fields import flatten

_ROWS = 500


def finish(redis: Redis, keys: Keys, sid: str) -> None:
    """Delete what the script `remove` has left of a sweep; doing it again does no harm."""
    params = keys.sweep(sid, "params")
    total: Any = redis.hlen(params)
    for start in range(1, total + 1, _ROWS):
        if not redis.sismember(keys.removing, sid):  # another call was quicker
            return
        remove_trials(redis, keys, sid, min(start + _ROWS - 1, total), start)
    redis.unlink(params)
    redis.srem(keys.removing, sid)


def remove_trials(redis: Redis, keys: Keys, sid: str, total: int, first: int = 1) -> None:
    """Delete the trials `first` to `total` of a sweep."""
    for start in range(first, total + 1, _ROWS):
        numbers = range(start, min(start + _ROWS, total + 1))
        _remove_some(redis, keys, [TrialId(sweep=sid, number=n) for n in numbers])


def _remove_some(redis: Redis, keys: Keys, trials: Sequence[TrialId]) -> None:
    pipe = redis.pipeline(transaction=False)
    for trial in trials:
        pipe.hkeys(keys.trial(trial))
    doomed: list[str] = []
    start = len(trial_codec.METRIC_FIELD)
    for trial, names in zip(trials, pipe.execute(), strict=True):
        if names:
            doomed += [keys.trial(trial), keys.trial(trial, "log")]
            doomed += [
                keys.points(trial, name[start:].decode())
                for name in names
                if name.startswith(trial_codec.METRIC_FIELD)
            ]
    if doomed:
        redis.unlink(*doomed)


ROWS = 500  # rows in one call; Lua's unpack and the server's patience both want it bounded

TopUp = Callable[[str, int], object]


class ControlStore(CodeStore):
    """The part of `Store` for what people decide, and the tickets that it and all others mint."""

    def __init__(self, redis: Redis, keys: Keys, top_up: TopUp) -> None:
        super().__init__(redis, keys)
        self._top_up = top_up

    def _tickets(self, worker_class: bytes | str, wanted: int) -> None:
        name = worker_class.decode() if isinstance(worker_class, bytes) else worker_class
        if name and wanted > 0:
            with suppress(OutOfMemoryError):  # a ticket only wakes: what it is for is done
                self._top_up(name, wanted)

    def control(self, sid: str, verb: str, *args: str | int) -> int:
        """pause, resume, stop, cancel or set; answers how many trials it touched.

        Raises:
            NotFound: there is no such sweep.
            UserError: the sweep is stopped or cancelled, so it cannot be paused or resumed.
        """
        word, rest = self._scripts.run("control", sid, verb, *args)
        judge(sid, word)
        self._tickets(rest[0], rest[1])
        return int(rest[2])

    def set(self, sid: str, fields: Mapping[str, str]) -> None:
        """Change limits of a sweep: max_parallel, priority, retries, timeout_s."""
        self.control(sid, "set", *flatten(fields))

    def drain(self, worker: str, *, undo: bool = False, lasts_ms: int = 0) -> str | None:
        """Let a worker take nothing more (for so long; 0: until undone), or again.

        Answers the trial that it is at, "" where it is idle; None where it is not alive.
        """
        word, rest = self._scripts.run("drain", worker, "undo" if undo else "drain", lasts_ms)
        return None if word == "unknown" else str(rest[0].decode())

    def retry(self, sid: str, numbers: Sequence[int]) -> int:
        """Queue trials in a terminal state again; answers how many.

        Raises:
            NotFound: there is no such sweep.
        """
        touched = 0
        for start in range(0, len(numbers), ROWS):
            word, rest = self._scripts.run("retry", sid, *numbers[start : start + ROWS])
            judge(sid, word)
            self._tickets(rest[0], rest[1])
            touched += int(rest[2])
        return touched

    def remove(self, sid: str, *, keep_files: bool = False) -> list[str]:
        """Delete a sweep with everything it holds, and what an interrupted call left.

        Answers the ids of the stores that have files of it; these go as `hpq.doomed` says, or stay
        with `keep_files`.
        """
        _, stores = self._scripts.run("remove", sid, int(keep_files))
        for half in self.half_removed():
            finish(self._redis, self._keys, half)
        return [raw.decode() for raw in stores]

    def half_removed(self) -> frozenset[str]:
        """Ids of sweeps whose removal was interrupted, or goes on elsewhere."""
        found: Any = self._redis.smembers(self._keys.removing)
        return frozenset(raw.decode() for raw in found)
