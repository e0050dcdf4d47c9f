"""Remove files of file stores that no sweep points to any more.

A script that drops a pointer to files, or ends a trial, appends the trial to a stream of the file
store (for a removed sweep: the sweep). Any process that reaches the file store removes the files
there that have no pointer, and then deletes the entry; a crash or an unreachable store only delays
that. Many processes may do this at once. Files of attempts that may still write are kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hpq.domain.identity import SWEEP_ID
from hpq.domain.trial import TrialId
from hpq.filestore.base import Files, attempt_of, folder_of
from hpq.store.scripts import StoreContext

_PAGE = 100
_BARRED_S = 120  # a restore waits this long if the process that removes files died
_GRACE_MS = 60_000  # an attempt of a removed sweep writes until its next heartbeat


class FileGarbage:
    """The files of one prefix that file stores may delete."""

    def __init__(self, context: StoreContext) -> None:
        self._redis, self._keys = context.redis, context.keys
        self._scripts = context.scripts

    def recent_stores(self) -> set[str]:
        """Return the ids of the file stores that the newest sweeps used.

        Raises:
            redis.RedisError: Redis cannot be reached.
        """
        newest: Any = self._redis.zrange(self._keys.sweeps, 0, _PAGE - 1, desc=True)
        pipe = self._redis.pipeline(transaction=False)
        for sid in newest:
            pipe.smembers(self._keys.sweep(sid.decode(), "stores"))
        return {store.decode() for found in pipe.execute() for store in found}

    def remove_from(self, files: Files, only: str = "") -> None:
        """Remove the garbage of one file store (of the sweep `only`, if given).

        Raises:
            OSError: the file store failed; what remains is removed by a later call.
            redis.RedisError: Redis cannot be reached.
        """
        stream, start = self._keys.garbage(files.id), "-"
        while True:
            page: Any = self._redis.xrange(stream, min=start, count=_PAGE)
            if not page:
                return
            seconds, _ = self._redis.time()
            done: list[bytes] = []
            try:
                for entry, fields in page:
                    sid, number = (
                        fields.get(name, b"").decode("utf-8", "replace") for name in (b"s", b"n")
                    )
                    if not SWEEP_ID.match(sid) or not (number or "0").isdecimal():
                        done.append(entry)  # not written by a script: it names no trial
                    elif not only or only == sid:
                        age_ms = 1000 * seconds - int(entry.partition(b"-")[0])
                        if self._remove(files, sid, number) and (number or age_ms > _GRACE_MS):
                            done.append(entry)
            finally:
                if done:
                    self._scripts.run("forget", files.id, *done)
            start = f"({page[-1][0].decode()}"

    def _remove(self, files: Files, sid: str, number: str) -> bool:
        """Return False if a restore may bring the sweep back; then its files stay for now."""
        if self._redis.exists(self._keys.sweep(sid)):  # running, or restored from an archive
            if number:
                trial = TrialId(sweep=sid, number=int(number))
                self._remove_unreferenced(files, trial, folder_of(self._keys.prefix, trial))
            return True
        if number:  # the sweep has an entry of its own, unless its files are kept
            return True
        with self.restore_barred(sid) as may_go:
            if may_go:
                files.remove(f"{self._keys.prefix}/{sid}")
        return may_go

    @contextmanager
    def restore_barred(self, sid: str) -> Iterator[bool]:
        """Bar a restore of the sweep; yield False if the sweep exists or is being restored."""
        reply, _ = self._scripts.run("clear", sid, _BARRED_S)
        try:
            yield reply == "ok"
        finally:
            if reply == "ok":
                self._scripts.run("clear", sid, 0)

    def _remove_unreferenced(self, files: Files, trial: TrialId, base: str) -> None:
        fields = ("attempt", "closed", "checkpoint", "artifacts")
        row: Any = self._redis.hmget(self._keys.trial(trial), fields)
        attempt, closed, *pointers = row
        if attempt is None:
            return
        try:
            kept = {json.loads(text)["path"] for text in pointers if text}
        except (ValueError, KeyError, TypeError):  # its pointers cannot be read: keep all
            return
        ended = int(attempt) if closed == attempt else int(attempt) - 1  # the last that ended
        for folder in {"/".join(name.split("/")[:2]) for name in files.names(base)}:
            written_by = attempt_of(folder.partition("/")[0])
            has_ended = written_by is not None and written_by <= ended
            if has_ended and f"{base}/{folder}" not in kept:
                files.remove(f"{base}/{folder}")
