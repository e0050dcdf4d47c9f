"""How full the server is, and whether its disk is. A plain read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redis import Redis

FULL = 0.8  # of maxmemory; what is above it is for reports and results


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What the server uses and may use, in bytes (0: no limit), and what it does at the limit."""

    used: int
    limit: int
    policy: str
    is_kept: bool = True  # False: the disk took no write of late, and every change is refused

    @property
    def evicts(self) -> bool:
        """True where the server would throw away trials rather than refuse a write."""
        return self.policy != "noeviction"

    @property
    def is_full(self) -> bool:
        """True where no further trial starts, unless logs and curves can be dropped for it."""
        return bool(self.limit) and not self.evicts and self.used > self.limit

    def takes(self, more: int) -> bool:
        """True where so many bytes more leave what is kept free for results."""
        return not self.limit or self.used + more <= FULL * self.limit


def room_of(redis: Redis) -> Room:
    """The server's memory as it is now, and whether its last write to the disk was good."""
    pipe = redis.pipeline(transaction=False)
    pipe.info("memory")
    pipe.info("persistence")
    answers: list[Any] = pipe.execute()
    memory, persistence = answers
    return Room(
        used=int(memory["used_memory"]) - int(memory.get("mem_not_counted_for_evict", 0)),
        limit=int(memory.get("maxmemory", 0)),
        policy=str(memory.get("maxmemory_policy", "noeviction")),
        is_kept=persistence.get("aof_last_write_status", "ok") == "ok",
    )
