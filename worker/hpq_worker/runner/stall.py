"""Detects a stalled trial, and writes its stacks to its log.

A trainer's stacks are written by faulthandler inside the runner, on a signal that no training code
uses; it works in C, also while the interpreter is stuck. A program that is Python is started with
PYTHONFAULTHANDLER, writes its stacks on SIGABRT and dies of it; any other just dies.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import resource
import signal
import statistics
from collections import deque

from hpq_worker.process.process_tree import SPARED, descendants

LEAST_S = 900.0
USUAL = 10  # times the usual gap
_BURST_S = 1.0  # events closer together count as one
_GAPS = 100
DUMP = getattr(signal, "SIGRTMIN", signal.SIGUSR2) + 5


class StallDetector:
    """Tracks how often a trial reports or prints, and when its silence is too long.

    `stall_s` is the sweep's limit; 0 means the longer of 15 minutes and ten times the usual gap.
    """

    def __init__(self, stall_s: float, now: float) -> None:
        self._stall_s, self._active_at = stall_s, now
        self._gaps: deque[float] = deque(maxlen=_GAPS)

    def active(self, now: float) -> None:
        """Record that the trial reported or printed."""
        gap = now - self._active_at
        if gap >= _BURST_S:
            self._gaps.append(gap)
        self._active_at = now

    @property
    def limit_s(self) -> float:
        """Seconds for which the trial may be silent."""
        if self._stall_s:
            return self._stall_s
        usual = statistics.median(self._gaps) if self._gaps else 0.0
        return max(LEAST_S, USUAL * usual)

    @property
    def stalled_at(self) -> float:
        """When the trial counts as stalled if it stays silent."""
        return self._active_at + self.limit_s


def dump_on_signal() -> None:
    """Write the stacks of all threads to stderr on DUMP."""
    # A copy: training code may close its stderr.
    faulthandler.register(DUMP, file=os.dup(2), all_threads=True)


def abort_descendants() -> None:
    """Send SIGABRT to all descendants except SPARED."""
    for pid in set(descendants(os.getpid())) - SPARED:
        abort(pid)


def abort(pid: int) -> None:
    """Send SIGABRT to a process, without a core file."""
    with contextlib.suppress(OSError, ValueError):
        if hasattr(resource, "prlimit"):
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        os.kill(pid, signal.SIGABRT)
