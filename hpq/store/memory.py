"""Read how full the server is, and estimate how much memory sweeps take.

The estimate adds MEMORY USAGE of a sweep's keys and of a sample of its trials: a bounded number of
reads whatever the sweep's size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from redis import Redis

from hpq.domain.snapshot import ServerMemory
from hpq.domain.sweep import Sweep
from hpq.domain.trial import TrialId
from hpq.store.keys import Keys, sweep_parts
from hpq.store.wire import trial as trial_codec


def server_memory(redis: Redis) -> ServerMemory:
    """Read the server's memory and the state of its disk."""
    pipe = redis.pipeline(transaction=False)
    pipe.info("memory")
    pipe.info("persistence")
    answers: list[Any] = pipe.execute()
    memory, persistence = answers
    return ServerMemory(
        used=int(memory["used_memory"]) - int(memory.get("mem_not_counted_for_evict", 0)),
        limit=int(memory.get("maxmemory", 0)),
        policy=str(memory.get("maxmemory_policy", "noeviction")),
        is_kept=persistence.get("aof_last_write_status", "ok") == "ok",
    )


_SAMPLE = 24  # trials of each kind, evenly spread
_KINDS = ("ended", "running", "waiting")  # waiting: only trials that were claimed before


def sweep_bytes(redis: Redis, keys: Keys, sweeps: Sequence[Sweep]) -> list[int]:
    """Estimate the bytes that each of these sweeps takes.

    MEMORY USAGE of the sweep's keys and of a sample of its trials: a bounded number of reads.
    """
    return [_bytes_of(redis, keys, sweep) for sweep in sweeps]


def _bytes_of(redis: Redis, keys: Keys, sweep: Sweep) -> int:
    sid = sweep.id
    pipe = redis.pipeline(transaction=False)
    for kind in _KINDS:
        top = "0" if kind == "waiting" else "+inf"
        pipe.zcount(keys.sweep(sid, kind), "-inf", top)
    for key in (keys.sweep(sid), *(keys.sweep(sid, part) for part in sweep_parts(sweep.bands))):
        pipe.memory_usage(key)
    pipe.memory_usage(keys.bundle(sweep.bundle))
    pipe.scard(keys.bundle(sweep.bundle, "sweeps"))
    ended, running, again, *own, code, sharing = pipe.execute()
    total = sum(size or 0 for size in own) + (code or 0) // max(1, sharing)
    for kind, count in zip(_KINDS, (ended, running, again), strict=True):
        numbers = _sample_numbers(redis, keys.sweep(sid, kind), count)
        if numbers:
            total += count * sum(_trial_bytes(redis, keys, sid, numbers)) // len(numbers)
    return int(total)


def _sample_numbers(redis: Redis, key: str, count: int) -> list[int]:
    """Read trial numbers evenly spread over the first `count` of a sorted set."""
    ranks = sorted({i * count // _SAMPLE for i in range(_SAMPLE)}) if count else []
    pipe = redis.pipeline(transaction=False)
    for rank in ranks:
        pipe.zrange(key, rank, rank)
    return [int(found[0]) for found in pipe.execute() if found]


def _trial_bytes(redis: Redis, keys: Keys, sid: str, numbers: Sequence[int]) -> Iterator[int]:
    trials = [TrialId(sweep=sid, number=n) for n in numbers]
    pipe = redis.pipeline(transaction=False)
    for trial in trials:
        pipe.hkeys(keys.trial(trial))
    fields: list[list[bytes]] = pipe.execute()
    start, sizes = len(trial_codec.METRIC_FIELD), []
    for trial, names in zip(trials, fields, strict=True):
        points = [
            keys.points(trial, name[start:].decode("utf-8", "replace"))
            for name in names
            if name.startswith(trial_codec.METRIC_FIELD)
        ]
        for key in (keys.trial(trial), keys.trial(trial, "log"), *points):
            pipe.memory_usage(key)
        sizes.append(2 + len(points))
    answers: Iterator[Any] = iter(pipe.execute())
    for count in sizes:
        yield sum(size or 0 for size in islice(answers, count))
