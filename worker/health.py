"""/livez, /readyz and /metrics of a fleet, on HPQ_PORT.

/livez never depends on Redis: an outage must not have every pod restarted. It fails where the
fleet's own loop stands still, or a worker's housekeeper does. /readyz is for people and rollouts:
some worker has reached Redis lately and can work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from hpq.errors import UserError
from worker.vitals import Vital

STILL_S = 60.0  # without a turn of the fleet's loop: it hangs
LOST_S = 15.0  # without an answer of Redis, where the last two looks failed: not ready
SILENT_S = 120.0  # without a word of a worker: two answers of Redis may time out in between
_TEXT = "text/plain; charset=utf-8"
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
    server: dict[str, float] = field(default_factory=dict)
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
            self.server.update(vital.server)
        elif vital.kind == "error":
            one.missed += 1

    def not_alive(self) -> str:
        """Why this pod should be started again; "" where it is well."""
        now = self.clock()
        if now - self.turned_at > STILL_S:
            return f"the fleet has stood still for {now - self.turned_at:.0f} s"
        for number, slot in self.slots.items():
            if slot.is_there and now - slot.heard_at > SILENT_S:
                return f"worker {number} has said nothing for {now - slot.heard_at:.0f} s"
        return ""

    def not_ready(self) -> str:
        """Why nothing can be worked on here; "" where something can."""
        whys = [self._why(number, slot) for number, slot in self.slots.items()]
        return "" if "" in whys else "; ".join(whys)

    def _why(self, number: int, slot: Slot) -> str:
        if not slot.is_there:
            return f"worker {number} is not running"
        bound_s = LOST_S if slot.missed > 1 else SILENT_S / 2
        if not slot.redis_at or self.clock() - slot.redis_at > bound_s:
            return f"worker {number} does not reach Redis"
        if slot.word == "stopping":
            return f"worker {number} is stopping"
        return f"worker {number}: {slot.why}" if slot.why else ""


class Endpoint:
    """The HTTP server of a fleet, in threads of its own."""

    def __init__(self, port: int, health: Health, metrics: Callable[[], bytes]) -> None:
        """Raises UserError where the port cannot be had."""
        pages: dict[str, Callable[[], tuple[int, bytes]]] = {
            "/livez": lambda: _verdict(health.not_alive()),
            "/readyz": lambda: _verdict(health.not_ready()),
            "/metrics": lambda: (200, metrics()),
        }
        try:
            self._server = ThreadingHTTPServer(("", port), _handler(pages))
        except OSError as error:
            raise UserError(f"HPQ_PORT: {port} cannot be used: {error.strerror}") from None
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = Thread(target=self._server.serve_forever, name="health", daemon=True)

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


def _verdict(why_not: str) -> tuple[int, bytes]:
    return (503, f"{why_not}\n".encode()) if why_not else (200, b"ok\n")


def _handler(pages: dict[str, Callable[[], tuple[int, bytes]]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # of a caller that says nothing

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            status, body = page() if page else (404, b"/livez, /readyz or /metrics\n")
            self.send_response(status)
            self.send_header("Content-Type", _TEXT)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Probes come every few seconds: no line for each."""

    return Handler
