"""/livez, /readyz and /metrics of a fleet, on HPQ_PORT.

/livez never depends on Redis: an outage must not have every pod restarted. It fails where the
fleet's own loop stands still, or a worker's housekeeper does. /readyz is for people and rollouts:
some worker has reached Redis lately and can work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from hpq_worker.health.telemetry import Vital

STILL_S = 60.0  # without a turn of the fleet's loop: it hangs
LOST_S = 15.0  # without an answer of Redis, where the last two looks failed: not ready
# Without a word of a worker beyond HPQ_REAP_S: two answers of Redis may time out in between.
SILENT_S = 120.0
Clock = Callable[[], float]


@dataclass(slots=True)
class Slot:
    """What is known of one slot's worker; times by the fleet's clock, 0 for never."""

    word: str = "starting"
    why: str = ""
    heard_at: float = 0.0
    redis_at: float = 0.0
    missed: int = 0  # looks at Redis that failed since
    beat_s: float = 0.0  # wall clock of redis_at, for people's graphs
    is_there: bool = False


@dataclass(slots=True)
class Health:
    """What the fleet knows of itself and its workers."""

    slots: dict[int, Slot]
    clock: Clock = time.monotonic
    every_s: float = 0.0  # between two words of a worker
    server: dict[str, float] = field(default_factory=dict)
    server_at: float = 0.0
    turned_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.turned_at = self.clock()

    def turn(self) -> None:
        """The fleet's loop went round."""
        self.turned_at = self.clock()

    def born(self, slot: int) -> None:
        """A worker was started in a slot."""
        self.slots[slot] = Slot(heard_at=self.clock(), is_there=True)

    def died(self, slot: int) -> None:
        """It ended."""
        self.slots[slot].is_there, self.slots[slot].word = False, "down"

    def hear(self, slot: int, vital: Vital) -> None:
        """A worker said something."""
        one = self.slots[slot]
        one.heard_at = self.clock()
        if vital.kind == "state":
            one.word, one.why = vital.word, vital.why
        elif vital.kind == "tick":
            one.redis_at, one.beat_s, one.missed = one.heard_at, time.time(), 0
            if vital.server:
                self.server, self.server_at = dict(vital.server), one.heard_at
        elif vital.kind == "error":
            one.missed += 1

    def figures(self) -> Mapping[str, float]:
        """What Redis counted when last asked; nothing where that is long ago."""
        is_old = self.clock() - self.server_at > SILENT_S + self.every_s
        return {} if is_old else self.server

    def not_alive(self) -> str:
        """Why this pod should be started again; "" where it is well."""
        now = self.clock()
        if now - self.turned_at > STILL_S:
            return f"the fleet has stood still for {now - self.turned_at:.0f} s"
        for number, slot in self.slots.items():
            if slot.is_there and now - slot.heard_at > SILENT_S + self.every_s:
                return f"worker {number} has said nothing for {now - slot.heard_at:.0f} s"
        return ""

    def not_ready(self) -> str:
        """Why nothing can be worked on here; "" where something can."""
        whys = [self._why(number, slot) for number, slot in self.slots.items()]
        return "" if "" in whys else "; ".join(whys)

    def _why(self, number: int, slot: Slot) -> str:
        if not slot.is_there:
            return f"worker {number} is not running"
        bound_s = LOST_S if slot.missed > 1 else SILENT_S / 2 + self.every_s
        if not slot.redis_at or self.clock() - slot.redis_at > bound_s:
            return f"worker {number} does not reach Redis"
        if slot.word == "stopping":
            return f"worker {number} is stopping"
        return f"worker {number}: {slot.why}" if slot.why else ""


def pages(health: Health, metrics: WSGIApplication) -> dict[str, WSGIApplication]:
    """What answers each path."""
    return {
        "/livez": _verdict(health.not_alive),
        "/readyz": _verdict(health.not_ready),
        "/metrics": metrics,
    }


def _verdict(why_not: Callable[[], str]) -> WSGIApplication:
    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        why = why_not()
        status = "503 Service Unavailable" if why else "200 OK"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{why or 'ok'}\n".encode()]

    return app
