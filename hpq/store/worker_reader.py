"""What a server says of itself and its prefix in a few plain reads, for graphs and alerts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis import Redis

from hpq.store.keys import Keys

# By the name in graphs, the field of the counters.
COUNTED = {
    "leases_expired": "leases_expired",
    "stale_commits": "stale_commits",
    "set_aside": "tickets_set_aside",
    "code_refused": "code_refused",
}


def pulse(redis: Redis, keys: Keys, worker_class: str) -> Mapping[str, float]:
    """Figures by name: demand of the class, memory and append-only file, and what was counted.

    Raises:
        RedisError: the server does not answer.
    """
    pipe = redis.pipeline(transaction=False)
    pipe.llen(keys.demand(worker_class))
    pipe.hmget(keys.counters, list(COUNTED.values()))
    pipe.info("memory")
    pipe.info("persistence")
    answers: list[Any] = pipe.execute()
    demand, counted, memory, persistence = answers
    limit = memory.get("maxmemory", 0)
    is_kept = persistence.get("aof_enabled") and persistence.get("aof_last_write_status") == "ok"
    return {
        "demand": float(demand),
        "redis_memory_ratio": memory["used_memory"] / limit if limit else 0.0,
        "redis_aof_ok": float(bool(is_kept)),
        **{name: float(n or 0) for name, n in zip(COUNTED, counted, strict=True)},
    }
