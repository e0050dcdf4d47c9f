"""Read the sweeps that this worker runs from Redis, once, and decide whether it may run them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hpq.domain.sweep import RunnableSweep
from hpq.domain.trial import Claim
from hpq.notice import Notice
from hpq.store.event_reader import EventReader
from hpq.store.trials import TrialStore
from hpq_worker.attempt.trust import TrustPolicy

_MOST = 32  # sweeps in memory; a worker alternates between few
_BY_USERS = frozenset({"resume", "retried", "added", "set"})
_AT_ONCE = 1_000  # events


class IdleSweeps:
    """Sweeps that had no activity for a day when `hpq worker` started, which this worker skips.

    A person who starts a worker does not expect a forgotten sweep on their GPU. The skip ends when
    a user resumes, retries, extends or changes the sweep, so that no wanted trial waits for ever.
    """

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


class LaunchRecords:
    """Sweeps by id, the most recently used last.

    The launch record never changes; each claim brings the limits that `hpq set` may change.
    """

    def __init__(
        self, store: TrialStore, trust: TrustPolicy, idle: IdleSweeps | None = None
    ) -> None:
        self._store, self._trust, self._idle = store, trust, idle
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
        idle = self._idle.refusal(sid) if self._idle else None
        refusal = idle or self._trust.refusal(sweep)
        if refusal is not None:
            del self._records[sid]
        return sweep, refusal


def _names(it: RunnableSweep | Claim) -> tuple[int, str]:
    """Return what tells a sweep from a later one with its id."""
    return it.created_ms, it.signature
