"""RQ's queue as hpq uses it: an RQ job is a ticket that wakes one idle worker, and nothing else.

rq is imported here and in worker/hpq_worker/consumer/rq_worker only. A ticket carries no trial;
losing, doubling or
failing one costs nothing, since a worker that wakes asks `claim` and the reaper tops tickets up.
"""

from __future__ import annotations

import json
import zlib
from uuid import uuid4

from redis import Redis
from redis.exceptions import ResponseError
from rq import Queue
from rq.serializers import JSONSerializer

from hpq.store.keys import Keys

TASK = "hpq_worker.ticket.wake"  # the only function a ticket may name
MOST = 1_000  # tickets minted in one call
_GARBAGE = (ResponseError, zlib.error, ValueError, LookupError, TypeError, RecursionError)


class Tickets:
    """Mints tickets on the queues of worker classes."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis, self._keys = redis, keys

    def queue(self, worker_class: str) -> Queue:
        """RQ's queue of a worker class."""
        return Queue(
            self._keys.queue(worker_class), connection=self._redis, serializer=JSONSerializer
        )

    def top_up(self, worker_class: str, wanted: int) -> int:
        """Mint what is missing to `wanted` tickets; answers how many."""
        if wanted < 1:
            return 0
        queue = self.queue(worker_class)
        missing = min(wanted, MOST) - int(queue.count)
        if missing < 1:
            return 0
        jobs = [
            Queue.prepare_data(
                TASK,
                job_id=f"{self._keys.ticket}{uuid4().hex}",
                timeout=-1,
                result_ttl=0,
                failure_ttl=3600,
                description="wake",
            )
            for _ in range(missing)
        ]
        queue.enqueue_many(jobs)
        return missing

    def is_ticket(self, job_id: bytes) -> bool:
        """Take a popped RQ job off the server; True where it is a ticket and nothing else.

        Whatever else lay on the queue is set aside and counted; nothing in it is looked up,
        imported or unpickled.
        """
        key = b"rq:job:" + job_id
        try:
            data = self._redis.hget(key, "data")
            self._redis.delete(key)
            if data is None:  # expired, or removed by hand: it still woke us
                return True
            text = zlib.decompressobj().decompress(data, 4096)  # type: ignore[arg-type]
            if json.loads(text)[0] == TASK:
                return True
        except _GARBAGE:
            pass
        pipe = self._redis.pipeline()
        pipe.hincrby(self._keys.counters, "tickets_set_aside", 1)
        pipe.lpush(self._keys.set_aside, job_id[:200])
        pipe.ltrim(self._keys.set_aside, 0, 99)
        pipe.execute()
        return False
