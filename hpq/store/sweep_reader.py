"""Plain reads of whose turn comes first in a worker class; `lua/turns` decides it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from redis import Redis

from hpq.domain.sweep import Sweep
from hpq.store.keys import Keys

_OPEN = 200  # open sweeps of a class that are looked at, those first served first
_FEW = 20  # sweeps told of each


class TurnsView:
    """The part of `view` that knows of turns."""

    _redis: Redis
    _keys: Keys

    def ids_ahead(self, sweeps: Sequence[Sweep]) -> dict[str, list[str]]:
        """By sweep, which open ones of its class go before it whatever else trains.

        Those are the ones of a higher priority, and the older ones of its owner with the same:
        other owners take turns with this one. As they are served, first ones first; a few at most.
        Two round trips, however many sweeps are asked about.
        """
        classes = list(dict.fromkeys(sweep.worker_class for sweep in sweeps))
        pipe = self._redis.pipeline(transaction=False)
        for name in classes:
            pipe.zrange(self._keys.worker_class(name, "open"), 0, _OPEN - 1, withscores=True)
        for sweep in sweeps:
            pipe.zscore(self._keys.worker_class(sweep.worker_class, "open"), sweep.id)
        answers: list[Any] = pipe.execute()
        places = dict(zip(classes, answers, strict=False))
        owners = self._owners({name: [raw for raw, _ in places[name]] for name in classes})
        return {
            sweep.id: _before(sweep, place, places[sweep.worker_class], owners)
            for sweep, place in zip(sweeps, answers[len(classes) :], strict=True)
        }

    def _owners(self, sids: dict[str, list[bytes]]) -> dict[bytes, bytes]:
        pipe = self._redis.pipeline(transaction=False)
        some = {name: those for name, those in sids.items() if those}
        for name, those in some.items():
            pipe.hmget(self._keys.worker_class(name, "owners"), those)
        found: dict[bytes, bytes] = {}
        for those, owners in zip(some.values(), pipe.execute(), strict=True):
            found |= {sid: owner or b"" for sid, owner in zip(those, owners, strict=True)}
        return found


def _before(
    sweep: Sweep,
    place: float | None,
    served: Iterable[tuple[bytes, float]],
    owners: dict[bytes, bytes],
) -> list[str]:
    if place is None:  # nothing of it waits any more
        return []
    highest = place - sweep.created_ms  # where its priority begins: a place is age below priority
    owner = sweep.owner.encode()
    ahead = (
        sid.decode()
        for sid, at in served
        if at < place and (at < highest or owners.get(sid) == owner)
    )
    return list(ahead)[:_FEW]
