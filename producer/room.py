"""How full the server is, and whether a sweep still goes in. Refuses before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from redis import Redis

from hpq.errors import OutOfReach
from hpq.sizes import about_bytes
from producer.look.text import size, trials_of
from producer.session import Session

FULL = 0.8  # of maxmemory; what is above it is for reports and results
TRIAL_BYTES = 450  # of a queued trial, measured; more than 200 bytes of parameters come on top


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What the server uses and may use, in bytes (0: no limit), and what it does at the limit."""

    used: int
    limit: int
    policy: str

    @property
    def evicts(self) -> bool:
        """True where the server would throw away trials rather than refuse a write."""
        return self.policy != "noeviction"

    def takes(self, more: int) -> bool:
        """True where so many bytes more leave what is kept free for results."""
        return not self.limit or self.used + more <= FULL * self.limit


def room_of(redis: Redis) -> Room:
    """The server's memory as it is now."""
    memory: Any = redis.info("memory")
    return Room(
        used=int(memory["used_memory"]),
        limit=int(memory.get("maxmemory", 0)),
        policy=str(memory.get("maxmemory_policy", "noeviction")),
    )


def check_room(session: Session, trials: int, *, weight: int = 0, code: int = 0) -> Iterator[str]:
    """Warnings about the server's memory, before `trials` more, and their code, are written.

    `weight` is about how many bytes the trials take, where that is known (0: as waiting trials
    do); `code` is how many their code takes.

    Raises:
        OutOfReach: they do not fit below 80 % of maxmemory (names what to remove).
    """
    room, more = room_of(session.redis), (weight or trials * TRIAL_BYTES) + code
    if not room.takes(more):
        raise OutOfReach(
            f"{size(room.used)} of the server's maxmemory of {size(room.limit)} are used, and"
            f" {trials_of(trials)} would take about {size(more)} more; hpq fills {FULL:.0%} of it."
            f" {_largest(session)}"
        )
    if room.limit and room.evicts:
        yield (
            f"maxmemory-policy is {room.policy}: under pressure the server would throw away"
            " trials; CONFIG SET maxmemory-policy noeviction"
        )


def _largest(session: Session) -> str:
    sweeps = [s for s in session.view.sweeps(session.view.sweep_ids(200)) if not s.counts.running]
    sizes = about_bytes(session.redis, session.keys, sweeps)
    largest = sorted(zip(sizes, sweeps, strict=True), key=lambda pair: -pair[0])[:3]
    if not largest:
        return "Raise maxmemory, or use another server"
    some = ", ".join(f"{s.id} (about {size(n)}, {s.state})" for n, s in largest)
    return f"Largest: {some}; remove one: hpq rm {largest[0][1].id}, or raise maxmemory"
