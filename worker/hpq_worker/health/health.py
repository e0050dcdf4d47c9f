"""Whether a supervisor and its workers are alive and ready.

/livez never depends on Redis: an outage must not restart every pod. It fails if the supervisor's
loop hangs, or a worker's reaper does. /readyz is for rollouts: some worker has reached Redis lately
and can run trials.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hpq.notice import tagged
from hpq_worker.health.telemetry import TelemetryMessage

HANG_S = 60.0  # without a turn of the supervisor's loop
LOST_S = 15.0  # without an answer of Redis, after two failed calls: not ready
# Without a message of a worker, beyond HPQ_REAP_S: two calls of Redis may time out in between.
SILENT_S = 120.0
Clock = Callable[[], float]


@dataclass(slots=True)
class WorkerHealth:
    """The last messages of one worker; times by the supervisor's clock, 0 for never."""

    status: str = "starting"
    reason: str = ""
    message_at: float = 0.0
    redis_at: float = 0.0
    failures: int = 0  # of calls of Redis since
    redis_s: float = 0.0  # wall clock of redis_at, for graphs
    is_running: bool = False
    usage: Mapping[str, float] = field(default_factory=dict)  # of the running trial


@dataclass(slots=True)
class Health:
    """The health of a supervisor and its workers."""

    workers: dict[int, WorkerHealth]
    clock: Clock = time.monotonic
    interval_s: float = 0.0  # between two messages of a worker
    looped_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.looped_at = self.clock()

    def loop(self) -> None:
        """Record a turn of the supervisor's loop."""
        self.looped_at = self.clock()

    def worker_started(self, slot: int) -> None:
        """Record that a worker was started in a slot."""
        self.workers[slot] = WorkerHealth(message_at=self.clock(), is_running=True)

    def worker_ended(self, slot: int) -> None:
        """Record that the worker of a slot has ended."""
        self.workers[slot].is_running, self.workers[slot].status = False, "down"

    def receive(self, slot: int, message: TelemetryMessage) -> None:
        """Record a message of a worker."""
        worker = self.workers[slot]
        worker.message_at = self.clock()
        if message.kind == "state":
            worker.status, worker.reason = message.status, message.reason
        elif message.kind == "redis":
            worker.redis_at, worker.redis_s, worker.failures = worker.message_at, time.time(), 0
        elif message.kind == "error":
            worker.failures += 1
        elif message.kind in ("usage", "end"):
            worker.usage = message.usage

    def not_alive(self) -> str:
        """Return why this pod must be restarted; "" if it is alive."""
        now = self.clock()
        if now - self.looped_at > HANG_S:
            text = f"the supervisor has been stuck for {now - self.looped_at:.0f} s"
            return tagged(text, "supervisor-hung")
        for number, worker in self.workers.items():
            if worker.is_running and now - worker.message_at > SILENT_S + self.interval_s:
                text = f"worker {number} has sent nothing for {now - worker.message_at:.0f} s"
                return tagged(text, "worker-silent")
        return ""

    def not_ready(self) -> str:
        """Return why no worker can run trials; "" if one can."""
        reasons = [self._not_ready(number, worker) for number, worker in self.workers.items()]
        return "" if "" in reasons else "\n".join(reasons)

    def _not_ready(self, number: int, worker: WorkerHealth) -> str:
        if not worker.is_running:
            return tagged(f"worker {number} is not running", "worker-down")
        bound_s = LOST_S if worker.failures > 1 else SILENT_S / 2 + self.interval_s
        if not worker.redis_at or self.clock() - worker.redis_at > bound_s:
            return tagged(f"worker {number} does not reach Redis", "redis-away")
        if worker.status == "stopping":
            return tagged(f"worker {number} is stopping", "worker-stopping")
        return f"worker {number}: {worker.reason}" if worker.reason else ""
