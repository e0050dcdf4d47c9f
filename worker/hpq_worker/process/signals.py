"""SIGTERM and SIGINT of a worker: the first stops it within the grace, the second at once.

What that does to the trial is in attempt/halt.py.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import time
from collections.abc import Callable
from enum import IntEnum
from types import FrameType

FORWARDED = signal.SIGUSR2  # a SIGTERM or SIGINT that a supervisor passes on
_RESERVED_S = 1.0  # of the grace, for the last calls to Redis


class ShutdownLevel(IntEnum):
    """How fast this process must stop."""

    NONE = 0
    GRACEFUL = 1  # within the grace
    IMMEDIATE = 2


class Signals:
    """The shutdown requests of this process; `wake_fd` is readable after each, and after `wake`."""

    def __init__(self, grace_s: float = math.inf) -> None:
        self._grace_s = grace_s
        self.wake_fd, self._write_fd = os.pipe()
        for fd in (self.wake_fd, self._write_fd):
            os.set_blocking(fd, False)
        self.requests = 0  # all of them: a supervisor forwards each
        self._requested_at = 0.0
        self._received = [0, 0]  # sent to this process, and forwarded
        self.interrupt: Callable[[], None] = lambda: None  # ends a blocking call of the main thread

    def install(self) -> None:
        """Handle the signals of this process."""
        for number in (signal.SIGTERM, signal.SIGINT, FORWARDED):
            signal.signal(number, self._receive)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        # A signal to all processes of a job reaches a worker twice: also by its supervisor.
        is_forwarded = number == FORWARDED
        self._received[is_forwarded] += 1
        if self._received[is_forwarded] > self.requests:
            self.request_shutdown()

    def request_shutdown(self) -> None:
        """Stop within the grace; the second request, at once."""
        self._requested_at = self._requested_at or time.monotonic()
        self.requests += 1
        self.wake()
        self.interrupt()

    def wake(self) -> None:
        """Make `wake_fd` readable, from any thread."""
        with contextlib.suppress(BlockingIOError):  # full: the reader wakes anyway
            os.write(self._write_fd, b"w")

    @property
    def level(self) -> ShutdownLevel:
        """How fast this process must stop."""
        return ShutdownLevel(min(self.requests, ShutdownLevel.IMMEDIATE))

    @property
    def is_stopping(self) -> bool:
        """True once a shutdown was requested."""
        return self.level is not ShutdownLevel.NONE

    def is_late(self) -> bool:
        """True once this process must not wait: two requests, or the grace is nearly over."""
        if self.level is ShutdownLevel.GRACEFUL:
            waited_s = time.monotonic() - self._requested_at
            return waited_s > max(0.5, self._grace_s - _RESERVED_S)
        return self.level is ShutdownLevel.IMMEDIATE

    def await_shutdown(self, seconds: float) -> bool:
        """Wait for a shutdown request for these seconds, whatever else wakes this process."""
        end = time.monotonic() + seconds
        while not self.is_stopping and (left := end - time.monotonic()) > 0:
            self.pause(left)
        return self.is_stopping

    def pause(self, seconds: float) -> None:
        """Sleep until a signal arrives, or for these seconds."""
        if self.is_stopping:
            return
        select.select([self.wake_fd], [], [], seconds)
        with contextlib.suppress(BlockingIOError):  # a byte that stays would end every later pause
            os.read(self.wake_fd, 512)
