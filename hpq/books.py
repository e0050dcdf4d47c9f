"""Plain reads of how a sweep is kept: where each trial's number lies, and what the counters say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis import Redis

from hpq.audit import Books, Standing
from hpq.keys import Keys
from hpq.trial import TrialId, TrialState

_PLACES = ("waiting", "running", "dropped", "ended")
_ENDS = [state for state in TrialState if state.is_terminal]


class BooksView:
    """The half of `view` that the audit asks."""

    _redis: Redis
    _keys: Keys

    def books(self, sid: str) -> Books:
        """The sizes of a sweep's sets and its counters."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.hlen(self._keys.sweep(sid, "params"))
        for place in _PLACES:
            pipe.zcard(self._keys.sweep(sid, place))
        pipe.hmget(self._keys.sweep(sid), [f"n_{end}" for end in _ENDS])
        total, waiting, running, dropped, ended, counters = pipe.execute()
        return Books(
            total=total,
            waiting=waiting,
            running=running,
            dropped=dropped,
            ended=ended,
            counters={end: int(n or 0) for end, n in zip(_ENDS, counters, strict=True)},
        )

    def standings(self, sid: str, numbers: Sequence[int]) -> list[Standing]:
        """What the store holds of these trials, in this order."""
        if not numbers:
            return []
        names = [str(n) for n in numbers]
        pipe = self._redis.pipeline(transaction=False)
        for place in _PLACES:
            pipe.zmscore(self._keys.sweep(sid, place), names)
        pipe.zmscore(self._keys.leases, [f"{sid}/{n}" for n in names])
        pipe.hmget(self._keys.sweep(sid, "params"), names)
        for n in numbers:
            pipe.hmget(self._keys.trial(TrialId(sweep=sid, number=n)), "state", "attempt")
        answers: list[Any] = pipe.execute()
        places = dict(zip((*_PLACES, "leases"), answers, strict=False))
        return [
            Standing(
                number=n,
                state=(row[0] or b"queued").decode("utf-8", "replace"),
                attempt=int(row[1] or 0),
                has_params=params is not None,
                places=frozenset(p for p, scores in places.items() if scores[i] is not None),
            )
            for i, (n, params, row) in enumerate(
                zip(numbers, answers[5], answers[6:], strict=True)
            )
        ]  # fmt: skip
