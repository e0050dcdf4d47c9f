"""The state of a worker, in a file that its supervisor reads when a probe asks.

The file has no name, so a killed supervisor leaves none behind. The worker inherits it, and always
overwrites the whole of it: the supervisor sees the newest state only.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

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
