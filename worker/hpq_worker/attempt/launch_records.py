"""Read the sweeps that this worker runs from Redis, once, and decide whether it may run them."""

from __future__ import annotations

from dataclasses import replace

from hpq.domain.sweep import RunnableSweep
from hpq.domain.trial import Claim
from hpq.notice import Notice
from hpq.store.trials import TrialStore
from hpq_worker.attempt.trust import TrustPolicy

_MOST = 32  # sweeps in memory; a worker alternates between few


class LaunchRecords:
    """Sweeps by id, the most recently used last.

    The launch record never changes; each claim brings the limits that `hpq set` may change.
    """

    def __init__(self, store: TrialStore, trust: TrustPolicy) -> None:
        self._store, self._trust = store, trust
        self._records: dict[str, RunnableSweep] = {}

    def sweep(self, sid: str, claim: Claim | None = None) -> RunnableSweep:
        """Return a sweep with its limits as they are now, or as they were at a claim.

        Raises:
            NotFound: the sweep was removed.
            DecodeError: the sweep cannot be read.
            redis.RedisError: Redis is away.
        """
        known = self._records.pop(sid, None)
        if known and claim and _names(known) == _names(claim):
            sweep = replace(known, timeout_s=claim.timeout_s, stall_s=claim.stall_s)
        else:  # unknown, or removed and perhaps created again
            sweep = self._store.sweep(sid)
        self._records[sid] = sweep
        if len(self._records) > _MOST:
            del self._records[next(iter(self._records))]
        return sweep

    def admit(self, sid: str, claim: Claim | None = None) -> tuple[RunnableSweep, Notice | None]:
        """Return a sweep, and why this worker may not run it.

        A sweep that was refused is read anew the next time. Raises as `sweep`.
        """
        sweep = self.sweep(sid, claim)
        refusal = self._trust.refusal(sweep)
        if refusal is not None:
            del self._records[sid]
        return sweep, refusal


def _names(it: RunnableSweep | Claim) -> tuple[int, str]:
    """Return what tells a sweep from a later one with its id."""
    return it.created_ms, it.signature
