"""The sweeps that this worker skips, why, and when it checks them again."""

from __future__ import annotations

import time
from collections.abc import Mapping

from hpq.errors import HpqError, NotFound
from hpq.notice import Notice
from hpq_worker.attempt.trust import LaunchRecords

_RECHECK_S = 5.0
_FIRST_TRY_S, _LAST_TRY_S = 30.0, 600.0


class Backoff:
    """Reasons by sweep id.

    A sweep that this worker may not run (not allowed, code edited) is checked again every few
    seconds without a claim. A sweep that failed here (data missing) is tried again, ever more
    rarely.
    """

    def __init__(self, launches: LaunchRecords) -> None:
        self._launches = launches
        self._reasons: dict[str, Notice] = {}
        self._again_at: dict[str, float] = {}
        self._waits_s: dict[str, float] = {}

    @property
    def reasons(self) -> Mapping[str, Notice]:
        """The reasons by sweep id."""
        return dict(self._reasons)

    @property
    def fault(self) -> str:
        """The first fault of this worker that still holds; "" if there is none."""
        faults = (self._reasons[sid].text for sid in self._waits_s if sid in self._reasons)
        return next(faults, "")

    def refuse(self, sid: str, reason: Notice) -> None:
        """Skip a sweep that this worker may not run."""
        self._reasons[sid], self._again_at[sid] = reason, time.monotonic() + _RECHECK_S

    def back_off(self, sid: str, reason: Notice) -> None:
        """Skip a sweep that failed here, twice as long each time."""
        wait_s = self._waits_s.get(sid, _FIRST_TRY_S)
        self._waits_s[sid] = min(_LAST_TRY_S, 2 * wait_s)
        self._reasons[sid], self._again_at[sid] = reason, time.monotonic() + wait_s

    def reset(self, sid: str) -> None:
        """Forget the faults of a sweep: a trial of it ran here."""
        self._waits_s.pop(sid, None)

    def current(self) -> list[str]:
        """Return the sweeps to skip now, after a check of those that are due.

        Raises:
            redis.RedisError: Redis is away.
        """
        now = time.monotonic()
        for sid in [sid for sid, at in self._again_at.items() if at <= now]:
            reason = self._check(sid) if sid not in self._waits_s else None
            if reason is None:
                del self._reasons[sid], self._again_at[sid]
            else:
                self.refuse(sid, reason)
        return list(self._reasons)

    def _check(self, sid: str) -> Notice | None:
        try:
            return self._launches.admit(sid)[1]
        except NotFound:
            return None
        except HpqError as error:
            return error.notice
