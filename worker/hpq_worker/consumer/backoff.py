"""The sweeps that this worker leaves alone, why, and when it looks at them again."""

from __future__ import annotations

import time
from collections.abc import Mapping

from hpq.codes import Notice
from hpq.errors import HpqError, NotFound
from hpq.store.trials import TrialStore
from hpq_worker.attempt.trust import Access

_LOOK_AGAIN_S = 5.0
_FIRST_TRY_S, _LAST_TRY_S = 30.0, 600.0


class Backoff:
    """Reasons by sweep id.

    A refusal for what the sweep is (not allowed, code edited) is looked at again every few seconds
    without claiming; one for what went wrong here (data missing) is tried again ever more rarely.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._reasons: dict[str, Notice] = {}
        self._again_at: dict[str, float] = {}
        self._waits_s: dict[str, float] = {}

    @property
    def reasons(self) -> Mapping[str, Notice]:
        """Why, by sweep id."""
        return dict(self._reasons)

    @property
    def fault(self) -> str:
        """What went wrong here lately, where something did; "" where this worker is well."""
        faults = (self._reasons[sid].text for sid in self._waits_s if sid in self._reasons)
        return next(faults, "")

    def refuse(self, sid: str, reason: Notice) -> None:
        """Leave a sweep alone for what it is."""
        self._reasons[sid], self._again_at[sid] = reason, time.monotonic() + _LOOK_AGAIN_S

    def back_off(self, sid: str, reason: Notice) -> None:
        """Leave a sweep alone for a while, twice as long each time."""
        wait_s = self._waits_s.get(sid, _FIRST_TRY_S)
        self._waits_s[sid] = min(_LAST_TRY_S, 2 * wait_s)
        self._reasons[sid], self._again_at[sid] = reason, time.monotonic() + wait_s

    def forgive(self, sid: str) -> None:
        """A trial of the sweep ran here: whatever was wrong is right again."""
        self._waits_s.pop(sid, None)

    def current(self, store: TrialStore) -> list[str]:
        """The sweeps to skip now."""
        now = time.monotonic()
        for sid in [sid for sid, at in self._again_at.items() if at <= now]:
            reason = self._look(sid, store) if sid not in self._waits_s else None
            if reason is None:
                del self._reasons[sid], self._again_at[sid]
            else:
                self.refuse(sid, reason)
        return list(self._reasons)

    def _look(self, sid: str, store: TrialStore) -> Notice | None:
        try:
            sweep = store.sweep(sid)
        except NotFound:
            return None
        except HpqError as error:
            return error.notice
        return self._access.refusal(sweep, store.code_manifest(sweep.launch.code))
