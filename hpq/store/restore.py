"""Write an archived sweep back into Redis.

Rows are written key by key where no reader looks; the last call makes all of them visible. What a
restore that died has written expires.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from hpq.errors import UserError
from hpq.store.control import delete_trials
from hpq.store.keys import SWEEP_PARTS
from hpq.store.scripts import UNSEALED_TTL_S, StoreContext


class ArchiveRestore:
    """One restore of one sweep."""

    def __init__(self, context: StoreContext, sid: str, trials: int) -> None:
        self._context, self._sid, self._trials = context, sid, trials
        self._redis, self._keys = context.redis, context.keys
        self._scripts = context.scripts
        self._token = secrets.token_hex(8)
        self._begun: set[tuple[int, str]] = set()  # parts of the last trial and of the sweep
        self._count = 0

    def write(self, trial: int, part: str, kind: str, items: Sequence[bytes]) -> None:
        """Write rows of one key; all rows of a key must follow one another.

        Raises:
            UserError: the sweep exists, or another process restores it.
        """
        first = (trial, part) not in self._begun
        if first:
            self._begun = {place for place in self._begun if place[0] in (0, trial)}
            self._begun.add((trial, part))
            self._count += 1
        args = (self._sid, self._token, UNSEALED_TTL_S, trial, part, kind, int(first))
        reply, _ = self._scripts.run("restore", *args, *items)
        self._check(reply)

    def reveal(self, fields: Mapping[bytes, bytes]) -> None:
        """Make the sweep visible with all rows that were written.

        Raises:
            UserError: the sweep was made meanwhile, or some of its rows expired.
        """
        flat = [part for pair in fields.items() for part in pair]
        args = (self._sid, self._token, self._trials, self._count, UNSEALED_TTL_S)
        reply, rest = self._scripts.run("reveal", *args, *flat)
        self._check(reply)
        self._context.mint(rest[0], int(rest[1]))

    def keep_shared(self, part: str, digest: str, data: bytes) -> None:
        """Write what other sweeps may refer to as well, under its digest.

        `part` is bundle (a code snapshot), code (its manifest) or provenance.
        """
        if part == "bundle":
            self._scripts.run("keep_code", digest, UNSEALED_TTL_S, data)
        elif part == "code":
            self._redis.hsetnx(self._keys.code, digest, data.decode())
        else:
            self._scripts.run("keep_ran_on", digest, data.decode())

    def _check(self, reply: str) -> None:
        if reply == "exists":
            raise UserError(
                f"sweep {self._sid} is there; `hpq rm {self._sid}` removes it", code="sweep-exists"
            )
        if reply == "removing":
            raise UserError(
                f"sweep {self._sid} is half removed; `hpq rm {self._sid}` finishes that",
                code="sweep-half-removed",
            )
        if reply == "taken":
            raise UserError(
                f"sweep {self._sid} is being restored by somebody else, or its files are being"
                " removed; try again in two minutes",
                code="restore-busy",
            )
        if reply == "torn":
            raise UserError(
                f"sweep {self._sid}: what was restored expired or is not what the archive holds;"
                " nothing was kept, restore it again",
                code="rows-expired",
            )

    def discard(self) -> None:
        """Delete what was written, unless the sweep exists or another process restores it."""
        mark = self._keys.sweep(self._sid, "restoring")
        token: Any = self._redis.hget(mark, "token")
        if token != self._token.encode() or self._redis.exists(self._keys.sweep(self._sid)):
            return
        delete_trials(self._context, self._sid, 1, self._trials)
        parts = {*SWEEP_PARTS, *(part for trial, part in self._begun if not trial)}
        self._redis.unlink(*(self._keys.sweep(self._sid, part) for part in parts), mark)
