"""The sweeps that this worker runs, read from Redis once, and whether it may run them."""

from __future__ import annotations

from dataclasses import dataclass

from hpq.domain.sweep import Sweep
from hpq.notice import Notice
from hpq.store.trials import TrialStore
from hpq_worker.attempt.trust import TrustPolicy

_MOST = 32  # sweeps in memory; a worker alternates between few


@dataclass(slots=True)
class _Record:
    sweep: Sweep
    manifest: str | None = None


class LaunchRecords:
    """Sweeps by id, the most recently used last.

    The launch record never changes, so a trial reads only the limits that `hpq set` may change.
    """

    def __init__(self, store: TrialStore, trust: TrustPolicy) -> None:
        self._store, self._trust = store, trust
        self._records: dict[str, _Record] = {}

    def sweep(self, sid: str) -> Sweep:
        """Return a sweep with its limits as they are now.

        Raises:
            NotFound: the sweep was removed.
            DecodeError: the sweep cannot be read.
            redis.RedisError: Redis is away.
        """
        return self._record(sid).sweep

    def admit(self, sid: str) -> tuple[Sweep, Notice | None]:
        """Return a sweep, and why this worker may not run it.

        A sweep that was refused is read anew the next time. Raises as `sweep`.
        """
        record = self._record(sid)
        if record.manifest is None and self._trust.needs_manifest(record.sweep.launch):
            record.manifest = self._store.code_manifest(record.sweep.launch.code)
        refusal = self._trust.refusal(record.sweep, record.manifest)
        if refusal is not None:
            del self._records[sid]
        return record.sweep, refusal

    def _record(self, sid: str) -> _Record:
        record = self._records.pop(sid, None)
        limited = self._store.refresh_limits(record.sweep) if record else None
        if record is None or limited is None:  # unknown, or removed and perhaps created again
            record = _Record(self._store.sweep(sid))
        else:
            record.sweep = limited
        self._records[sid] = record
        if len(self._records) > _MOST:
            del self._records[next(iter(self._records))]
        return record
