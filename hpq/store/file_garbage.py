"""Remove files of file stores that no sweep needs any more: mark what is needed, remove the rest.

A trial's files are needed if a pointer in Redis names them, or names the place where a worker will
copy them, or if another trial begins at them, or if their attempt may still write: it has not
ended, or Redis does not know it. The number of the attempt decides, not the age of a file, so a
server that lost its newest data removes nothing that it has yet to learn of. Of a sweep that Redis
does not have, files go only if `removed` says that they may: other servers share the store, and
data may be lost.

Nothing is listed in advance. A crash, or a store that is away, only delays a removal until the next
worker looks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from redis.exceptions import OutOfMemoryError

from hpq.domain.identity import SWEEP_ID
from hpq.domain.trial import TrialId
from hpq.errors import DecodeError
from hpq.filestore.base import Files, attempt_of, folder_of
from hpq.redis.damage import answered
from hpq.store.scripts import BATCH_ROWS, StoreContext
from hpq.store.wire.fields import count, decoding, mapping

_EVERY_S = 600  # between two looks at a whole store
_BARRED_S = 600  # a restore waits this long if the process that removes files died
_QUIET = 2  # looks without an event of the sweep; an attempt that lost its trial writes a little on


class FileGarbage:
    """The files of one prefix that file stores may delete."""

    def __init__(self, context: StoreContext) -> None:
        self._redis, self._keys = context.redis, context.keys
        self._looks: dict[str, tuple[object, int]] = {}  # sweep: its last event, looks since then

    def recent_stores(self) -> set[str]:
        """Return the ids of the file stores that the newest sweeps used.

        Raises:
            redis.RedisError: Redis cannot be reached.
        """
        newest: Any = self._redis.zrange(self._keys.sweeps, 0, 99, desc=True)
        keys = [self._keys.sweep(_text(sid), "stores") for sid in newest]
        pipe = self._redis.pipeline(transaction=False)
        for key in keys:
            pipe.smembers(key)
        stores = set[str]()
        for key, found in zip(keys, pipe.execute(raise_on_error=False), strict=True):
            with suppress(DecodeError):  # another type; the others are known
                stores.update(map(_text, answered(key, found)))
        return stores

    def is_due(self, files: Files) -> bool:
        """Return True for the one worker that must look at the whole store now.

        Raises:
            redis.RedisError: Redis cannot be reached.
        """
        return self._take(self._keys.collected(files.id), _EVERY_S)

    def sweeps_in(self, files: Files) -> list[str]:
        """Return the names of the folders of the store that may hold what no sweep needs.

        Raises:
            OSError: the file store failed.
        """
        return [sid for sid in files.folders(self._keys.prefix) if SWEEP_ID.match(sid)]

    def remove_of_sweep(self, files: Files, sid: str) -> None:
        """Remove the unneeded files of one sweep; all of them if it was removed with its files.

        A sweep without an event since two earlier calls is not listed again.

        Raises:
            OSError: the file store failed; what remains is removed by a later call.
            redis.RedisError: Redis cannot be reached.
        """
        key = self._keys.sweep(sid)
        if not self._redis.exists(key):
            return self._remove_removed(files, sid)
        newest = self._redis.xrevrange(self._keys.sweep(sid, "events"), count=1)
        last, looks = self._looks.get(sid, (None, 0))
        looks = looks + 1 if newest == last else 0
        if looks < _QUIET:
            self._remove_unneeded(files, sid, files.names(f"{self._keys.prefix}/{sid}"))
        self._looks[sid] = newest, looks

    def remove_of_trial(self, files: Files, trial: TrialId, *, has_keep: bool) -> None:
        """Remove the unneeded files of a trial that has just ended.

        If its sweep has a `keep`, remove those of the trials that it has dropped, too.

        Raises:
            OSError: the file store failed; what remains is removed by a later call.
            redis.RedisError: Redis cannot be reached.
        """
        numbers = {str(trial.number)}
        sid = trial.sweep
        prefix = self._keys.prefix
        if has_keep:
            kept: Any = self._redis.smembers(self._keys.sweep(sid, "files"))
            numbers |= set(files.folders(f"{prefix}/{sid}")) - set(map(_text, kept))
        for number in numbers:
            names = files.names(f"{prefix}/{sid}/{number}")
            self._remove_unneeded(files, sid, (f"{number}/{name}" for name in names))

    def _take(self, key: str, lifetime_s: int) -> bool:
        """Set a key for a time; False if it is set, or Redis is full: then a later look removes."""
        with suppress(OutOfMemoryError):
            return bool(self._redis.set(key, "1", nx=True, ex=lifetime_s))
        return False

    def _remove_removed(self, files: Files, sid: str) -> None:
        """Remove the folder of a removed sweep; no archive restores the sweep meanwhile."""
        lock = self._keys.sweep(sid, "restoring")
        if not self._is_removed(sid) or not self._take(lock, _BARRED_S):
            return
        try:
            if self._is_removed(sid) and not self._redis.exists(self._keys.sweep(sid)):
                files.remove(f"{self._keys.prefix}/{sid}")
        finally:
            self._redis.delete(lock)

    def _is_removed(self, sid: str) -> bool:
        """True if Redis lists the sweep as removed with its files."""
        removed: Any = self._redis.zscore(self._keys.removed, sid)
        return removed is not None and float(removed).is_integer()

    def _remove_unneeded(self, files: Files, sid: str, names: Iterable[str]) -> None:
        """Remove unneeded files of trials; `names` are those in the store: number/attempt/…"""
        found = defaultdict[str, set[str]](set)
        for name in names:
            number, _, rest = name.partition("/")
            if number.isdecimal():
                found[number].add("/".join(rest.split("/")[:2]))
        numbers = sorted(found)
        for start in range(0, len(numbers), BATCH_ROWS):
            page = [TrialId(sweep=sid, number=int(n)) for n in numbers[start : start + BATCH_ROWS]]
            pipe = self._redis.pipeline(transaction=False)
            for trial in page:
                fields = "attempt", "closed", "starts", "checkpoint", "artifacts", "unstored"
                pipe.hmget(self._keys.trial(trial), fields)
            for trial, row in zip(page, pipe.execute(), strict=True):
                base = folder_of(self._keys.prefix, trial)
                for folder in _unneeded(row, base, found[str(trial.number)]):
                    files.remove(f"{base}/{folder}")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _unneeded(row: Any, base: str, folders: set[str]) -> set[str]:
    """Return which of a trial's folders ATTEMPT/NAME may be removed."""
    attempt, closed, starts, *pointers = row
    try:
        with decoding(base):
            kept = {mapping(text.decode())["path"] for text in pointers if text}
            kept.update((starts or b"").decode().splitlines())
            ended = count(attempt) if closed == attempt else count(attempt) - 1  # the last
    except DecodeError:  # never claimed, or damaged: keep all
        return set()
    written_by = {folder: attempt_of(folder.partition("/")[0]) for folder in folders}
    return {
        folder
        for folder, number in written_by.items()
        if number is not None and number <= ended and f"{base}/{folder}" not in kept
    }
