"""Says in the log when Redis goes away and when it is back, and little between.

A worker speaks to Redis from several threads, each of which tries again every second or so; all
tell the one outage of their process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Lock

from redis.exceptions import OutOfMemoryError

from hpq.connection.client import short_reason

log = logging.getLogger("hpq.redis")
_REMIND_S = 300.0
_FULL = "the server is full: no trial starts until there is room; what runs trains on"


class Outage:
    """What the threads of one worker hear of Redis. `clock` answers seconds that only rise."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, Lock()
        self._missing: set[str] = set()  # the threads that have no contact
        self._idle: set[str] = set()  # those of them that ask for nothing any more
        self._said: set[type] = set()
        self._since = self._said_at = 0.0
        self._kept = 0
        self.times = 0  # how often it began

    def missed(self, who: str, error: Exception) -> None:
        """A thread got no answer, or a refusal that waiting may mend."""
        with self._lock:
            now, reason = self._clock(), short_reason(error)
            if not self._missing:
                self._since = self._said_at = now
                self.times += 1
            self._missing.add(who)
            self._idle.discard(who)
            if isinstance(error, OutOfMemoryError) and type(error) not in self._said:
                log.warning("%s", _FULL)
            elif not self._said:
                log.warning("Redis: %s; trying again, training goes on", reason)
            elif type(error) not in self._said:  # as when it is loading after it was gone
                log.warning("Redis: %s", reason)
            elif now - self._said_at >= _REMIND_S:
                self._said_at = now
                log.warning("%s", self._reminder(error, reason))
            self._said.add(type(error))

    def answered(self, who: str) -> None:
        """A thread got its answer."""
        with self._lock:
            if not self._missing:
                return
            self._missing.discard(who)
            if self._missing <= self._idle:
                waited = f"; results that waited: {self._kept}" if self._kept else ""
                again = (
                    "the server has room" if self._said == {OutOfMemoryError} else "Redis answers"
                )
                log.warning("%s again after %s%s", again, self._span(), waited)
                self._missing.clear()
                self._idle.clear()
                self._said.clear()
                self._kept = 0

    def left(self, who: str) -> None:
        """A thread has nothing to ask for: nobody waits for its answer."""
        with self._lock:
            self._idle.add(who)

    def kept(self) -> None:
        """A result waits until Redis is back, on disk or in memory."""
        with self._lock:
            self._kept += 1

    def _reminder(self, error: Exception, reason: str) -> str:
        if isinstance(error, OutOfMemoryError):
            return f"{_FULL} (for {self._span()} now)"
        return f"Redis does not answer for {self._span()}: {reason}"

    def _span(self) -> str:
        seconds = self._clock() - self._since
        return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
