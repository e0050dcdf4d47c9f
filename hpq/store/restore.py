"""Brings a sweep back key by key where nobody sees it; the last call makes it visible, whole.

What a restoring that died has written expires by itself.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from redis import Redis
from redis.exceptions import OutOfMemoryError

from hpq.errors import UserError
from hpq.store import control
from hpq.store.code import UNSEALED_TTL_S
from hpq.store.control import TopUp
from hpq.store.keys import SWEEP_PARTS, Keys
from hpq.store.scripts import Scripts


class Restoring:
    """One restoring of one sweep."""

    def __init__(self, redis: Redis, keys: Keys, sid: str, trials: int) -> None:
        self._redis, self._keys, self._sid, self._trials = redis, keys, sid, trials
        self._scripts = Scripts(redis, keys)
        self._token = secrets.token_hex(8)
        self._begun: set[tuple[int, str]] = set()  # of the last trial and of the sweep only
        self._count = 0

    def write(self, trial: int, part: str, kind: str, items: Sequence[bytes]) -> None:
        """Write some rows of a key; those of one key follow one another.

        Raises:
            UserError: the sweep is there, or somebody else restores it.
        """
        first = (trial, part) not in self._begun
        if first:
            self._begun = {place for place in self._begun if place[0] in (0, trial)}
            self._begun.add((trial, part))
            self._count += 1
        word, _ = self._scripts.run(
            "restore",
            *items,
            sweep=self._sid,
            token=self._token,
            ttl_s=UNSEALED_TTL_S,
            trial=trial,
            part=part,
            kind=kind,
            first=first,
        )
        self._check(word)

    def reveal(self, fields: Mapping[bytes, bytes], top_up: TopUp) -> None:
        """Make the sweep visible with all that was written.

        Raises:
            UserError: the sweep is there meanwhile, or some of its rows are not.
        """
        flat = [part for pair in fields.items() for part in pair]
        word, rest = self._scripts.run(
            "reveal",
            *flat,
            sweep=self._sid,
            token=self._token,
            trials=self._trials,
            keys=self._count,
            ttl_s=UNSEALED_TTL_S,
        )
        self._check(word)
        with contextlib.suppress(OutOfMemoryError):  # a ticket only wakes
            top_up(rest[0].decode(), int(rest[1]))

    def _check(self, word: str) -> None:
        if word == "exists":
            raise UserError(
                f"sweep {self._sid} is there; `hpq rm {self._sid}` removes it", code="sweep-exists"
            )
        if word == "removing":
            raise UserError(
                f"sweep {self._sid} is half removed; `hpq rm {self._sid}` finishes that",
                code="sweep-half-removed",
            )
        if word == "taken":
            raise UserError(
                f"sweep {self._sid} is being restored by somebody else, or its files are being"
                " removed; try again in two minutes",
                code="restore-busy",
            )
        if word == "torn":
            raise UserError(
                f"sweep {self._sid}: what was restored expired or is not what the archive holds;"
                " nothing was kept, restore it again",
                code="rows-expired",
            )

    def discard(self) -> None:
        """Forget what was written, unless the sweep is there or is another's to restore."""
        mark = self._keys.sweep(self._sid, "restoring")
        token: Any = self._redis.hget(mark, "token")
        if token != self._token.encode() or self._redis.exists(self._keys.sweep(self._sid)):
            return
        control.remove_trials(self._redis, self._keys, self._sid, self._trials)
        parts = {*SWEEP_PARTS, *(part for trial, part in self._begun if not trial)}
        self._redis.unlink(*(self._keys.sweep(self._sid, part) for part in parts), mark)
