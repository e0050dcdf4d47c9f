"""The presence record of a worker, for the reaper, `hpq workers` and other workers' claims."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace

from hpq import __version__
from hpq.code.signing import fingerprint
from hpq.domain.attempt import WorkerPresence
from hpq.domain.trainer_specs import BUILT_IN
from hpq.store.wire.fields import dumps
from hpq_worker.attempt.parts import WorkerParts
from hpq_worker.consumer.claim_loop import ClaimLoop


class PresenceRecord:
    """One worker, as it is at each call."""

    def __init__(self, parts: WorkerParts, device: str, loop: ClaimLoop) -> None:
        self._parts, self._loop = parts, loop
        settings = parts.settings
        self._constant = {
            "pid": str(os.getpid()),
            "device": device,
            "version": __version__,
            "only": settings.sweep,
            "pod": settings.pod,
            "ran_on": parts.provenance,
            "store": "yes" if settings.store else "no",
            "takes": json.dumps(list(BUILT_IN)),
        }

    def current(self) -> tuple[WorkerPresence, bool]:
        """Return the record, and whether the worker is idle."""
        trial, backoff = self._loop.trial, self._loop.backoff
        is_stopping = self._parts.signals.is_stopping
        gpu_util = self._parts.usage.latest.get("gpu.util")
        fields = {
            "state": "stopping" if is_stopping else "busy" if trial else "idle",
            "trial": trial,
            "fault": "" if trial else backoff.fault,
            "gpu_util": "" if gpu_util is None else f"{gpu_util:.0f}",
            # The first enqueue of this user may create the key later.
            "key": fingerprint(self._parts.trust.key),
            "store_id": self._parts.files.id,
            "refuses": dumps({s: asdict(r) for s, r in backoff.reasons.items()}),
        }
        return replace(self._parts.worker, fields={**self._constant, **fields}), not trial
