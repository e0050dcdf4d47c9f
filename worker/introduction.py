"""How a worker introduces itself to people and to the reaper: what it is, takes and leaves."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace

from hpq import __version__, wire
from hpq.hyperparams import SHIPPED
from hpq.outcome import Presence
from hpq.settings import Settings
from hpq.signing import fingerprint
from hpq.sweep import SCHEMA
from worker.access import Access
from worker.slot import Slot
from worker.stopping import Stopping
from worker.tidying import Shelf


class Introduction:
    """One worker, as it is at each call."""

    def __init__(
        self,
        settings: Settings,
        who: Presence,
        device: str,
        access: Access,
        slot: Slot,
        shelf: Shelf,
        ran_on: str,
    ) -> None:
        self._who, self._slot, self._access, self._shelf = who, slot, access, shelf
        self._fixed = {
            "pid": str(os.getpid()),
            "device": device,
            "version": __version__,
            "only": settings.sweep,
            "pod": settings.pod,
            "schema": str(SCHEMA),
            "ran_on": ran_on,
            "store": "yes" if settings.store else "no",
            "code": str(settings.code or ""),
            "takes": json.dumps([*SHIPPED, *(f"allow:{line}" for line in settings.allow)]),
        }

    def now(self, stopping: Stopping) -> tuple[Presence, bool]:
        """What to say, and whether the worker is idle."""
        busy = self._slot.trial
        fields = {
            "state": "stopping" if stopping.level else "busy" if busy else "idle",
            "trial": busy,
            "fault": "" if busy else self._slot.refusals.fault,
            "key": fingerprint(self._access.key),  # the first enqueue here may make it later
            "store_id": self._shelf.id,
            "refuses": wire.dumps({s: asdict(r) for s, r in self._slot.refusals.reasons.items()}),
        }
        return replace(self._who, fields={**self._fixed, **fields}), not busy
