"""SIGTERM and SIGINT of a worker: once, stop within the grace; twice, at once."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from types import FrameType

_LAST_WORDS_S = 1.0  # of the grace, for what Redis has to hear


class Stopping:
    """What this process was told; `read_end` becomes readable when it is told something."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        for fd in (self.read_end, self.write_end):
            os.set_blocking(fd, False)
        self.level = 0  # how often it was told
        self._told_at = 0.0
        self.interrupt: Callable[[], None] = lambda: (
            None
        )  # leaves a blocking call of the main thread

    def install(self) -> None:
        """Take the signals of this process."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._hear)

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        self.tell()

    def tell(self) -> None:
        """Stop within the grace; the second time, at once."""
        self._told_at = self._told_at or time.monotonic()
        self.level += 1
        with contextlib.suppress(BlockingIOError):
            os.write(self.write_end, b"s")
        self.interrupt()

    def is_late(self, grace_s: float) -> bool:
        """True once nothing may be waited for any more: told twice, or the grace is nearly over."""
        left_s = max(0.5, grace_s - _LAST_WORDS_S)
        return self.level > 1 or (self.level == 1 and time.monotonic() - self._told_at > left_s)

    def pause(self, seconds: float) -> None:
        """Wait, but for a signal."""
        if self.level == 0:
            select.select([self.read_end], [], [], seconds)
