"""Deletes a sweep with everything that it holds. Only `store` and what restores archives use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis import Redis

from hpq import wire
from hpq.keys import SWEEP_PARTS, Keys
from hpq.sweep import Sweep
from hpq.trial import TrialId

_ROWS = 500


def remove(redis: Redis, keys: Keys, sweep: Sweep) -> None:
    """Delete a sweep; doing it again finishes what was begun."""
    key = keys.sweep(sweep.id)
    total: Any = redis.hlen(keys.sweep(sweep.id, "params"))
    remove_trials(redis, keys, sweep.id, total)
    pipe = redis.pipeline(transaction=False)  # a full server queues nothing for a transaction
    pipe.zrem(keys.sweeps, sweep.id)
    pipe.zrem(keys.bulk, sweep.id)
    pipe.zrem(keys.worker_class(sweep.worker_class, "open"), sweep.id)
    for key_of, field in ((keys.digests, sweep.digest), (keys.last, sweep.owner)):
        if redis.hget(key_of, field) == sweep.id.encode():
            pipe.hdel(key_of, field)
    pipe.unlink(key, *(keys.sweep(sweep.id, part) for part in SWEEP_PARTS))
    pipe.execute()


def remove_trials(redis: Redis, keys: Keys, sid: str, total: int) -> None:
    """Delete the trials 1 to `total` of a sweep."""
    for start in range(1, total + 1, _ROWS):
        numbers = range(start, min(start + _ROWS, total + 1))
        _remove_some(redis, keys, [TrialId(sweep=sid, number=n) for n in numbers])


def _remove_some(redis: Redis, keys: Keys, trials: Sequence[TrialId]) -> None:
    pipe = redis.pipeline(transaction=False)
    for trial in trials:
        pipe.hkeys(keys.trial(trial))
    doomed: list[str] = []
    start = len(wire.METRIC_FIELD)
    for trial, names in zip(trials, pipe.execute(), strict=True):
        if names:
            doomed += [keys.trial(trial), keys.trial(trial, "log")]
            doomed += [
                keys.points(trial, name[start:].decode())
                for name in names
                if name.startswith(wire.METRIC_FIELD)
            ]
    if doomed:
        redis.unlink(*doomed)
