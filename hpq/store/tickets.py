"""RQ's queue as hpq uses it: an RQ job is a ticket that wakes one idle worker, and nothing else.

Only this module and worker/hpq_worker/consumer/rq_worker import rq. A ticket names no trial. A
lost, doubled or failed ticket costs nothing: the worker that wakes calls `claim`, and the reaper
mints what is missing.
"""

from __future__ import annotations

import json
import zlib
from contextlib import suppress
from typing import Any
from uuid import uuid4

from redis import Redis
from redis.exceptions import ResponseError
from rq import Queue
from rq.serializers import JSONSerializer

from hpq.store.keys import Keys

TASK = "hpq_worker.rq_job.wake"  # the only function a ticket may name
_TICKET_S = 86_400  # an older one still wakes a worker
_MAX_TICKETS = 1_000  # minted in one call
_NOT_A_TICKET = (ResponseError, zlib.error, ValueError, LookupError, TypeError, RecursionError)


class Tickets:
    """Mints tickets for the workers of a queue."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis, self._keys = redis, keys

    def of(self, queue: str) -> Queue:
        """Return RQ's queue with the tickets of a queue."""
        return Queue(self._keys.tickets(queue), connection=self._redis, serializer=JSONSerializer)

    def mint(self, queue: str, count: int) -> None:
        """Mint tickets for a queue, at most 1,000.

        Raises:
            redis.OutOfMemoryError: the server is full.
        """
        tickets = self.of(queue)
        jobs = [
            Queue.prepare_data(
                TASK,
                job_id=f"{self._keys.ticket}{uuid4().hex}",
                timeout=-1,
                result_ttl=0,
                failure_ttl=3600,
                description="wake",
            )
            for _ in range(min(count, _MAX_TICKETS))
        ]
        pipe = self._redis.pipeline()
        tickets.enqueue_many(jobs, pipeline=pipe)
        for job in jobs:  # else the ticket of a worker that died after the pop would stay
            pipe.expire(f"rq:job:{job.job_id}", _TICKET_S)
        pipe.execute()

    def pop(self, queue: str, timeout_s: float) -> bytes | None:
        """Wait for an RQ job of a queue and pop it; return its id, or None after the wait.

        A signal handler that raises ends the wait.
        """
        popped: Any = self._redis.blpop([self.of(queue).key], timeout=timeout_s)
        return None if popped is None else bytes(popped[1])

    def remove_worker(self, key: str) -> None:
        """Delete RQ's record of a worker."""
        self._redis.delete(key)

    def name_connection(self, name: str) -> None:
        """Set the name that CLIENT LIST shows; a server that refuses it shows none."""
        with suppress(ResponseError):
            self._redis.client_setname(name)

    def is_ticket(self, job_id: bytes) -> bool:
        """Delete a popped RQ job; return True if it is a ticket.

        The id of any other job is kept in `Keys.set_aside` and counted. Nothing in such a job is
        looked up, imported or unpickled.
        """
        key = b"rq:job:" + job_id
        try:
            data = self._redis.hget(key, "data")
            self._redis.delete(key)
            if data is None:  # expired or deleted: it still woke this worker
                return True
            text = zlib.decompressobj().decompress(data, 4096)  # type: ignore[arg-type]
            if json.loads(text)[0] == TASK:
                return True
        except _NOT_A_TICKET:
            pass
        pipe = self._redis.pipeline()
        pipe.hincrby(self._keys.counters, "tickets_set_aside", 1)
        pipe.lpush(self._keys.set_aside, job_id[:200])
        pipe.ltrim(self._keys.set_aside, 0, 99)
        pipe.execute()
        return False
