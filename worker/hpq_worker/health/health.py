"""Whether a supervisor and its workers are alive and ready.

/livez never depends on Redis: an outage must not restart every pod. It fails if the supervisor's
loop hangs, or a worker's reaper does. /readyz is for rollouts: some worker has reached Redis lately
and can run trials.

Each worker writes its state to a file, which the supervisor reads when a probe asks. The file has
no name, so a killed supervisor leaves none behind. The worker inherits it, and always overwrites
the whole of it: the supervisor sees the newest state only.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from hpq.notice import tagged

HANG_S = 60.0  # without a turn of the supervisor's loop
LOST_S = 15.0  # without an answer of Redis, after two failed calls: not ready
# Without a new state of a worker, beyond HPQ_REAP_S: two calls of Redis may time out in between.
SILENT_S = 120.0
_BYTES = 4096  # in the file from the start: a full disk still takes a state
_MOST_REASON = 200  # characters; JSON may make twelve bytes of one
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """What a worker wrote last; times by the machine's monotonic clock, 0 for never."""

    status: str = "starting"  # starting, idle, busy or stopping
    reason: str = ""  # why it cannot run trials
    written_at: float = 0.0
    redis_at: float = 0.0  # the last answer of Redis
    failures: int = 0  # of calls of Redis since


class StateWriter:
    """A worker's side; writes nothing without a file."""

    def __init__(self, fd: int | None, clock: Clock = time.monotonic) -> None:
        self._fd, self._clock = fd, clock
        self._state = WorkerState()
        if fd is not None:
            os.set_inheritable(fd, False)  # the runner does not inherit it

    def worker_state(self, status: str, reason: str = "") -> None:
        """Write what the worker does, and why it cannot run trials."""
        self._write(replace(self._state, status=status, reason=reason[:_MOST_REASON]))

    def redis_answered(self) -> None:
        """Write that Redis answered."""
        self._write(replace(self._state, redis_at=self._clock(), failures=0))

    def redis_failed(self) -> None:
        """Write that Redis did not answer."""
        self._write(replace(self._state, failures=self._state.failures + 1))

    def _write(self, state: WorkerState) -> None:
        self._state = replace(state, written_at=self._clock())
        if self._fd is not None:
            with suppress(OSError):  # the supervisor then sees a worker that writes nothing
                os.pwrite(self._fd, json.dumps(asdict(self._state)).encode().ljust(_BYTES), 0)


class StateFile:
    """The supervisor's side: one file for one worker process."""

    def __init__(self) -> None:
        """Create the file.

        Raises:
            OSError: the directory of temporary files cannot be written.
        """
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - until `close`
        self._state = WorkerState()
        os.pwrite(self.fd, b"".ljust(_BYTES), 0)

    @property
    def fd(self) -> int:
        """The file descriptor that the worker inherits."""
        return self._file.fileno()

    def read(self) -> WorkerState:
        """Return the newest state."""
        # Nothing is written yet, the worker is writing, or has just ended: the last state counts.
        with suppress(OSError, ValueError, TypeError):
            self._state = WorkerState(**json.loads(os.pread(self.fd, _BYTES, 0)))
        return self._state

    def close(self) -> None:
        """Close the file, which removes it when the worker has ended, too."""
        self._file.close()


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
