"""Deletes a sweep with everything that it holds. Only `store` and what restores archives use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis import Redis

from hpq import wire_trial
from hpq.keys import Keys
from hpq.trial import TrialId

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
    start = len(wire_trial.METRIC_FIELD)
    for trial, names in zip(trials, pipe.execute(), strict=True):
        if names:
            doomed += [keys.trial(trial), keys.trial(trial, "log")]
            doomed += [
                keys.points(trial, name[start:].decode())
                for name in names
                if name.startswith(wire_trial.METRIC_FIELD)
            ]
    if doomed:
        redis.unlink(*doomed)
