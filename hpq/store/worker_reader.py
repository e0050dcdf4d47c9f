"""Read live workers, the figures that workers publish as metrics, and how full the server is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from redis import Redis

from hpq.domain.status import ServerMemory, Worker
from hpq.notice import Notice
from hpq.store.keys import Keys
from hpq.store.wire.fields import Reader, Row

SILENT = 0.5  # of a lease without a heartbeat: heartbeats are a sixth of a lease apart
_NAME = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\Z")  # of a worker: host, pid, 4 hex digits
_CONNECTED = ("idle", "busy", "draining", "drained")  # states of a worker that sends heartbeats

# By the name in graphs, the field of the counters.
COUNTED = {
    "leases_expired": "leases_expired",
    "stale_commits": "stale_commits",
    "set_aside": "tickets_set_aside",
    "code_refused": "code_refused",
    "replica_misses": "replica_misses",
}


class WorkerReader:
    """Read the workers under one prefix; `lease_ms` is the lease of a trial."""

    def __init__(self, redis: Redis, keys: Keys, lease_ms: int) -> None:
        self._redis, self._keys, self._lease_ms = redis, keys, lease_ms

    @property
    def silent_ms(self) -> float:
        """After how many milliseconds without a heartbeat a worker counts as silent."""
        return SILENT * self._lease_ms

    def live(self, queue: str | None = None) -> list[Worker]:
        """Return the live workers, or those of one queue, by name."""
        now_ms = server_ms(self._redis)
        floor, silent_since = now_ms - self._lease_ms, now_ms - self.silent_ms
        names: Any = self._redis.zrangebyscore(self._keys.workers, floor, "+inf", withscores=True)
        names = [(name, seen) for name, seen in names if _NAME.match(name)]
        pipe = self._redis.pipeline(transaction=False)
        for name, _ in names:
            pipe.hgetall(self._keys.worker(name.decode()))
        found = [
            _worker(self._keys, name.decode(), int(seen), row, silent_since, now_ms)
            for (name, seen), row in zip(names, pipe.execute(), strict=True)
            if row
        ]
        return sorted((w for w in found if queue in (None, w.queue)), key=lambda w: w.name)

    def counters(self) -> dict[str, int]:
        """Return how often each thing happened that hpq counts, such as `leases_expired`."""
        found: Any = self._redis.hgetall(self._keys.counters)
        return {name.decode(): int(count) for name, count in found.items()}

    def server_figures(self, queue: str) -> Mapping[str, float]:
        """Return by name the demand of a queue, the use of memory, and the counters.

        Raises:
            RedisError: the server does not answer.
        """
        pipe = self._redis.pipeline(transaction=False)
        pipe.hget(self._keys.settle, f"demand:{queue}")
        pipe.hmget(self._keys.counters, list(COUNTED.values()))
        pipe.info("memory")
        pipe.info("persistence")
        answers: list[Any] = pipe.execute()
        demand, counted, memory, persistence = answers
        limit = memory.get("maxmemory", 0)
        aof_ok = persistence.get("aof_enabled") and persistence.get("aof_last_write_status") == "ok"
        return {
            "demand": float(demand or 0),
            "redis_memory_ratio": memory["used_memory"] / limit if limit else 0.0,
            "redis_aof_ok": float(bool(aof_ok)),
            **{name: float(n or 0) for name, n in zip(COUNTED, counted, strict=True)},
        }


def server_ms(redis: Redis) -> int:
    """Return the time by the server's clock, in milliseconds."""
    seconds, micros = redis.time()
    return int(seconds) * 1000 + int(micros) // 1000


def _worker(
    keys: Keys, name: str, seen_ms: int, row: Row, silent_since: float, now_ms: int
) -> Worker:
    r = Reader(keys.worker(name), row)
    state = r.text("state")
    if state in ("idle", "busy") and _is_drained(r.text("drain"), now_ms):
        state = "drained" if state == "idle" else "draining"
    return Worker(
        **r.plain(Worker, but=("name", "state", "seen_ms", "schema")),
        name=name,
        state="silent" if seen_ms < silent_since and state in _CONNECTED else state,
        seen_ms=seen_ms,
        schema=r.parse("schema", 1, int),
        takes=tuple(r.json("takes", [])),
        refuses=r.parse("refuses", {}, _refusals),
    )


def _refusals(text: str) -> dict[str, Notice]:
    return {sid: Notice(why["code"], str(why["text"])) for sid, why in json.loads(text).items()}


def _is_drained(until: str, now_ms: int) -> bool:
    """Return whether `until`, a time in ms or 0 for ever, is not over; the scripts agree."""
    return until.isdigit() and (int(until) == 0 or int(until) > now_ms)


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
