"""Files in a store that nothing points to any more, and how they go.

A script that takes a pointer away, or ends a trial, names the trial in a stream of the store's own
(a removed sweep: the sweep). Anybody who has that store removes what lies there and is not pointed
to, and takes the entry down only then; so what a crash or an absent store delays is not forgotten.
Safe to do twice, and by many at once. Attempts that may still write are left alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis import Redis

from hpq.domain.trial import TrialId
from hpq.filestore.local import Files, attempt_of, folder_of
from hpq.store.keys import Keys
from hpq.store.scripts import Scripts

_PAGE = 100
_CLEARING_S = 120  # so long a restoring waits for somebody who died while removing
_LATE_MS = 60_000  # an attempt of a removed sweep may write a little longer: it hears at its beat


class DoomedFiles:
    """What the stores of a prefix may lose."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis, self._keys = redis, keys
        self._scripts = Scripts(redis, keys)

    def stores(self) -> set[str]:
        """The ids of the stores that files of the newest sweeps went to.

        Raises:
            redis.RedisError: Redis is away.
        """
        newest: Any = self._redis.zrange(self._keys.sweeps, 0, _PAGE - 1, desc=True)
        pipe = self._redis.pipeline(transaction=False)
        for sid in newest:
            pipe.smembers(self._keys.sweep(sid.decode(), "stores"))
        return {store.decode() for found in pipe.execute() for store in found}

    def work_off(self, files: Files, only: str = "") -> None:
        """Remove what this store may lose (of one sweep `only`).

        Raises:
            OSError: the store does not let us; the rest stays named.
            redis.RedisError: Redis is away.
        """
        stream, start = self._keys.doomed(files.id), "-"
        while True:
            page: Any = self._redis.xrange(stream, min=start, count=_PAGE)
            if not page:
                return
            seconds, _ = self._redis.time()
            done: list[bytes] = []
            try:
                for entry, fields in page:
                    sid, number = fields[b"s"].decode(), fields[b"n"].decode()
                    if not only or only == sid:
                        age_ms = 1000 * seconds - int(entry.partition(b"-")[0])
                        if self._remove(files, sid, number) and (number or age_ms > _LATE_MS):
                            done.append(entry)
            finally:
                if done:
                    self._scripts.run("forget", files.id, *done)
            start = f"({page[-1][0].decode()}"

    def _remove(self, files: Files, sid: str, number: str) -> bool:
        """False where nobody can tell yet: the sweep may come back."""
        if self._redis.exists(self._keys.sweep(sid)):  # or it has been restored from an archive
            if number:
                trial = TrialId(sweep=sid, number=int(number))
                self._tidy(files, trial, folder_of(self._keys.prefix, trial))
            return True
        if number:  # all of the sweep is named as well, unless its files are to stay
            return True
        with self.barred(sid) as may_go:
            if may_go:
                files.remove(f"{self._keys.prefix}/{sid}")
        return may_go

    @contextmanager
    def barred(self, sid: str) -> Iterator[bool]:
        """Meanwhile nobody restores the sweep; False where it is there or is being restored."""
        word, _ = self._scripts.run("clear", sid, _CLEARING_S)
        try:
            yield word == "ok"
        finally:
            if word == "ok":
                self._scripts.run("clear", sid, 0)

    def _tidy(self, files: Files, trial: TrialId, base: str) -> None:
        fields = ("attempt", "closed", "checkpoint", "artifacts")
        row: Any = self._redis.hmget(self._keys.trial(trial), fields)
        attempt, closed, *pointers = row
        if attempt is None:
            return
        try:
            stays = {json.loads(text)["path"] for text in pointers if text}
        except (ValueError, KeyError, TypeError):  # who knows what it points to
            return
        over = int(attempt) if closed == attempt else int(attempt) - 1  # up to there nobody writes
        for folder in {"/".join(name.split("/")[:2]) for name in files.names(base)}:
            written_by = attempt_of(folder.partition("/")[0])
            is_over = written_by is not None and written_by <= over
            if is_over and f"{base}/{folder}" not in stays:
                files.remove(f"{base}/{folder}")
