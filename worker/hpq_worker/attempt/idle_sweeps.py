"""Sweeps that had no activity for a day when `hpq worker` started, which this worker skips.

A person who starts a worker does not expect a forgotten sweep on their GPU. The skip ends when a
user resumes, retries, extends or changes the sweep, so that no wanted trial waits for ever.
"""

from __future__ import annotations

from collections.abc import Mapping

from hpq.notice import Notice
from hpq.store.event_reader import EventReader

_BY_USERS = frozenset({"resume", "retried", "added", "set"})
_AT_ONCE = 1_000  # events


class IdleSweeps:
    """The sweeps to skip, by id, with the last event that was read of each."""

    def __init__(self, last: Mapping[str, str], events: EventReader) -> None:
        self._last, self._events = dict(last), events

    @property
    def refusals(self) -> dict[str, Notice]:
        """Why each sweep is skipped."""
        text = "no activity for a day before this worker started; `hpq resume {sid}` starts it"
        return {sid: Notice("sweep-idle", text.format(sid=sid)) for sid in self._last}

    def refusal(self, sid: str) -> Notice | None:
        """Return why a sweep is skipped; None if it is not, or no longer.

        Raises:
            redis.RedisError: Redis is away.
        """
        if sid in self._last:
            events = self._events.read(sid, self._last[sid], count=_AT_ONCE)
            if any(event.what in _BY_USERS for event in events):
                del self._last[sid]
            elif events:
                self._last[sid] = events[-1].id
        return self.refusals.get(sid)
