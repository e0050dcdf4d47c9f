"""RQ as its users run a sweep: one job per trial, results kept, RQ's default settings.

`train` runs only in RQ's workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import islice

from redis import Redis
from rq import Queue

from hpq.domain.trial import Json

_CHUNK = 500  # as many as hpq writes in one call
FINISHED = "rq:finished:default"  # the sorted set of jobs that have finished


def train(**params: object) -> dict[str, float]:
    """Return a result at once."""
    return {"loss": 0.0}


def hold(file: str) -> None:
    """Record the start time, then run for a long time."""
    with open(file, "a", encoding="ascii") as out:
        out.write(f"{time.monotonic()!r}\n")
    time.sleep(3_600)


def enqueue(redis: Redis, every: Sequence[dict[str, Json]]) -> None:
    """Queue each set by one call."""
    queue = Queue(connection=redis)
    for params in every:
        queue.enqueue(train, kwargs=params)


def enqueue_many(redis: Redis, every: Sequence[dict[str, Json]]) -> None:
    """Queue some hundred sets by one pipeline."""
    queue = Queue(connection=redis)
    rest = iter(every)
    while some := list(islice(rest, _CHUNK)):
        queue.enqueue_many([Queue.prepare_data(train, kwargs=params) for params in some])


def enqueue_calls(redis: Redis, function: Callable[..., object], count: int, **fixed: Json) -> None:
    """Queue `count` jobs of a function."""
    queue = Queue(connection=redis)
    data = [Queue.prepare_data(function, kwargs={"number": i, **fixed}) for i in range(count)]
    queue.enqueue_many(data)
