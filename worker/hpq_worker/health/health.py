"""Whether a supervisor and its workers are alive and ready.

/livez never depends on Redis: an outage must not restart every pod. It fails if the supervisor's
loop hangs, or a worker's reaper does. /readyz is for rollouts: some worker has reached Redis lately
and can run trials.
"""

from __future__ import annotations

import time

from hpq.notice import tagged
from hpq_worker.health.state import Clock, StateFile, WorkerState

HANG_S = 60.0  # without a turn of the supervisor's loop
LOST_S = 15.0  # without an answer of Redis, after two failed calls: not ready
# Without a new state of a worker, beyond HPQ_REAP_S: two calls of Redis may time out in between.
SILENT_S = 120.0


class Health:
    """The health of a supervisor and its workers; probes ask from other threads."""

    def __init__(self, slots: int, interval_s: float, clock: Clock = time.monotonic) -> None:
        """`interval_s` passes between two states of a worker."""
        self._interval_s, self._clock = interval_s, clock
        self._looped_at = clock()
        self._files: dict[int, StateFile | None] = dict.fromkeys(range(slots))
        self._started_at = dict.fromkeys(range(slots), 0.0)

    def loop(self) -> None:
        """Record a turn of the supervisor's loop."""
        self._looped_at = self._clock()

    def worker_started(self, slot: int) -> int:
        """Return the file descriptor of a new state file, for the worker that starts in a slot.

        Raises:
            OSError: the directory of temporary files cannot be written.
        """
        self.worker_ended(slot)  # an earlier start may have failed
        file = StateFile()
        self._started_at[slot] = self._clock()
        self._files[slot] = file
        return file.fd

    def worker_ended(self, slot: int) -> None:
        """Record that the worker of a slot has ended."""
        file = self._files[slot]
        self._files[slot] = None
        if file is not None:
            file.close()

    def not_alive(self) -> str:
        """Return why this pod must be restarted; "" if it is alive."""
        now = self._clock()
        if now - self._looped_at > HANG_S:
            text = f"the supervisor has been stuck for {now - self._looped_at:.0f} s"
            return tagged(text, "supervisor-hung")
        for slot, state in self._states().items():
            if state is None:
                continue
            silent_s = now - max(state.written_at, self._started_at[slot])
            if silent_s > SILENT_S + self._interval_s:
                text = f"worker {slot} has written nothing for {silent_s:.0f} s"
                return tagged(text, "worker-silent")
        return ""

    def not_ready(self) -> str:
        """Return why no worker can run trials; "" if one can."""
        reasons = [self._not_ready(slot, state) for slot, state in self._states().items()]
        return "" if "" in reasons else "\n".join(reasons)

    def _states(self) -> dict[int, WorkerState | None]:
        """Return the state of the worker of each slot; None: no worker runs there."""
        files = self._files.items()
        return {slot: None if file is None else file.read() for slot, file in files}

    def _not_ready(self, slot: int, state: WorkerState | None) -> str:
        if state is None:
            return tagged(f"worker {slot} is not running", "worker-down")
        bound_s = LOST_S if state.failures > 1 else SILENT_S / 2 + self._interval_s
        if not state.redis_at or self._clock() - state.redis_at > bound_s:
            return tagged(f"worker {slot} does not reach Redis", "redis-away")
        if state.status == "stopping":
            return tagged(f"worker {slot} is stopping", "worker-stopping")
        return f"worker {slot}: {state.reason}" if state.reason else ""
