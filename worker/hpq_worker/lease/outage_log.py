"""Log when Redis stops answering and when it answers again, and little between.

Several threads of a worker call Redis and retry about every second; all report to the one outage of
their process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Lock

from redis.exceptions import OutOfMemoryError

from hpq.notice import tagged
from hpq.redis.client import short_reason

log = logging.getLogger("hpq.redis")
_REMIND_S = 300.0
_FULL = "Redis is out of memory: no trial starts until memory is free; running trials continue"


class OutageLog:
    """The outages that the threads of one worker meet. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, Lock()
        self._missing: set[str] = set()  # threads without contact
        self._idle: set[str] = set()  # those that call Redis no more
        self._logged: set[type] = set()
        self._since = self._logged_at = 0.0
        self._spooled = 0
        self.count = 0  # of outages so far

    def failed(self, thread: str, error: Exception) -> None:
        """Record that a thread got no answer, or an error that may pass."""
        with self._lock:
            now, reason = self._clock(), short_reason(error)
            if not self._missing:
                self._since = self._logged_at = now
                self.count += 1
            self._missing.add(thread)
            self._idle.discard(thread)
            if isinstance(error, OutOfMemoryError) and type(error) not in self._logged:
                log.warning(tagged(_FULL, "redis-memory"))
            elif not self._logged:
                log.warning(tagged("Redis: %s; retrying, training continues", "redis-away"), reason)
            elif type(error) not in self._logged:  # as when it loads after a restart
                log.warning("Redis: %s", reason)
            elif now - self._logged_at >= _REMIND_S:
                self._logged_at = now
                log.warning("%s", self._reminder(error, reason))
            self._logged.add(type(error))

    def answered(self, thread: str) -> None:
        """Record that a thread got its answer."""
        with self._lock:
            if not self._missing:
                return
            self._missing.discard(thread)
            if self._missing <= self._idle:
                waited = f"; results that waited: {self._spooled}" if self._spooled else ""
                again = (
                    "Redis has memory" if self._logged == {OutOfMemoryError} else "Redis answers"
                )
                log.warning(
                    tagged("%s again after %s%s", "redis-back"), again, self._span(), waited
                )
                self._missing.clear()
                self._idle.clear()
                self._logged.clear()
                self._spooled = 0

    def idle(self, thread: str) -> None:
        """Record that a thread calls Redis no more: the outage can end without its answer."""
        with self._lock:
            self._idle.add(thread)

    def spooled(self) -> None:
        """Record that a result waits on disk or in memory until Redis is back."""
        with self._lock:
            self._spooled += 1

    def _reminder(self, error: Exception, reason: str) -> str:
        if isinstance(error, OutOfMemoryError):
            return f"{_FULL} (since {self._span()})"
        return f"Redis has not answered for {self._span()}: {reason}"

    def _span(self) -> str:
        seconds = self._clock() - self._since
        return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
