"""Plain reads of how a sweep is kept: where each trial's number lies, and what the counters say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from redis import Redis

from hpq.domain.identity import identity
from hpq.domain.trial import TrialId, TrialState
from hpq.store.keys import Keys
from hpq_producer.audit.replay import SweepCounters, TrialRecord
from hpq_producer.audit.results import Held

_PLACES = ("waiting", "running", "dropped", "ended")
_FIELDS = ("state", "attempt", "objective", "checkpoint", "artifacts")
_ENDS = [state for state in TrialState if state.is_terminal]


class BooksView:
    """The half of `view` that the audit asks."""

    _redis: Redis
    _keys: Keys

    def books(self, sid: str) -> SweepCounters:
        """The sizes of a sweep's sets and its counters."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.hlen(self._keys.sweep(sid, "params"))
        for place in _PLACES:
            pipe.zcard(self._keys.sweep(sid, place))
        pipe.scard(self._keys.sweep(sid, "ids"))
        pipe.hmget(self._keys.sweep(sid), [f"n_{end}" for end in _ENDS])
        total, waiting, running, dropped, ended, identities, counters = pipe.execute()
        return SweepCounters(
            total=total,
            waiting=waiting,
            running=running,
            dropped=dropped,
            ended=ended,
            identities=identities,
            counters={end: int(n or 0) for end, n in zip(_ENDS, counters, strict=True)},
        )

    def standings(self, sid: str, numbers: Sequence[int], replicates: int = 1) -> list[TrialRecord]:
        """What the store holds of these trials, in this order."""
        if not numbers:
            return []
        names = [str(n) for n in numbers]
        pipe = self._redis.pipeline(transaction=False)
        for part in (*_PLACES, "rank", "means"):
            pipe.zmscore(self._keys.sweep(sid, part), names)
        pipe.zmscore(self._keys.leases, [f"{sid}/{n}" for n in names])
        pipe.smismember(self._keys.sweep(sid, "files"), names)
        pipe.hmget(self._keys.sweep(sid, "params"), names)
        for n in numbers:
            pipe.hmget(self._keys.trial(TrialId(sweep=sid, number=n)), _FIELDS)
        answers: list[Any] = pipe.execute()
        parts = (*_PLACES, "rank", "means", "leases", "files", "params")
        found = dict(zip(parts, answers, strict=False))
        known = self._known(sid, found["params"], replicates)
        return [
            TrialRecord(
                number=n,
                state=(row[0] or b"queued").decode("utf-8", "replace"),
                attempt=int(row[1] or 0),
                has_params=found["params"][i] is not None,
                places=frozenset(p for p in (*_PLACES, "leases") if found[p][i] is not None),
                held=Held(
                    objective=(row[2] or b"").decode("utf-8", "replace"),
                    score=found["rank"][i],
                    mean=found["means"][i],
                    has_pointers=any(row[3:]),
                    is_filed=bool(found["files"][i]),
                    is_known=known[i],
                ),
            )
            for i, (n, row) in enumerate(zip(numbers, answers[len(parts) :], strict=True))
        ]

    def _known(self, sid: str, texts: Sequence[bytes | None], replicates: int) -> list[bool]:
        """Which of these parameters have an identity in the sweep; True where there are none."""
        marks: list[list[bytes]] = [_marks(text, replicates) if text else [] for text in texts]
        flat = [mark for some in marks for mark in some]
        key = self._keys.sweep(sid, "ids")
        answer: Any = self._redis.smismember(key, flat) if flat else []
        there = {mark for mark, is_there in zip(flat, answer, strict=True) if is_there}
        return [not text or not there.isdisjoint(m) for text, m in zip(texts, marks, strict=True)]


def _marks(text: bytes, replicates: int) -> list[bytes]:
    """What could be the identity of a set; nothing where it cannot be read."""
    try:
        params = json.loads(text)
        return [identity(params, i) for i in range(max(1, replicates))]
    except (ValueError, AttributeError, RecursionError):
        return []
