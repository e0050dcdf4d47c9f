"""Says in the log when Redis goes away and when it is back, and little between.

A worker speaks to Redis from several threads, each of which tries again every second or so; all
tell the one outage of their process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Lock

log = logging.getLogger("hpq.redis")
_REMIND_S = 300.0


class Outage:
    """What the threads of one worker hear of Redis. `clock` answers seconds that only rise."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, Lock()
        self._missing: set[str] = set()  # the threads that have no contact
        self._since = self._said_at = 0.0
        self._kept = 0

    def missed(self, who: str, error: Exception) -> None:
        """A thread got no answer, or a refusal that waiting may mend."""
        with self._lock:
            now = self._clock()
            if not self._missing:
                self._since = self._said_at = now
                log.warning("Redis: %s; trying again, training goes on", error)
            elif now - self._said_at >= _REMIND_S:
                self._said_at = now
                log.warning("Redis is away for %s: %s", _span(now - self._since), error)
            self._missing.add(who)

    def answered(self, who: str) -> None:
        """A thread got its answer, or has nothing to ask for any more."""
        with self._lock:
            if who not in self._missing:
                return
            self._missing.discard(who)
            if not self._missing:
                waited = f"; results that waited: {self._kept}" if self._kept else ""
                self._kept = 0
                log.warning("Redis is back after %s%s", _span(self._clock() - self._since), waited)

    def kept(self) -> None:
        """A result waits, on disk or in memory, until Redis is back."""
        with self._lock:
            self._kept += 1


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
