"""SIGTERM and SIGINT of a worker: once, stop within the grace; twice, at once."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable
from types import FrameType


class Stopping:
    """What this process was told; `read_end` becomes readable when it is told something."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        for fd in (self.read_end, self.write_end):
            os.set_blocking(fd, False)
        self.level = 0  # how often it was told
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
        self.level += 1
        with contextlib.suppress(BlockingIOError):
            os.write(self.write_end, b"s")
        self.interrupt()

    def pause(self, seconds: float) -> None:
        """Wait, but for a signal."""
        if self.level == 0:
            select.select([self.read_end], [], [], seconds)
