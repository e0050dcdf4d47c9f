"""Results that Redis could not take yet, as files under HPQ_HOME, so that a crash loses none.

A file is written whole under another name and then moved; committing one twice is harmless, since
the store takes an attempt's end once. What is no result is set aside as `.bad`, what Redis does not
know as `.unknown`: neither keeps a worker from its work.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from redis.exceptions import DataError, ResponseError

from hpq.domain.attempt import CommitReply, Outcome
from hpq.domain.trial import Claim
from hpq.store.trials import TrialStore
from hpq_worker.lease.spool_file import Newer, decode, encode

log = logging.getLogger("hpq.spool")
_UNKNOWN_S = 300.0  # between two questions for what Redis did not know
# What a server refuses for reasons of its own, whatever the commit says; it may take it later.
_SERVERS = re.compile(
    r"\b(OOM|READONLY|LOADING|NOPERM|NOAUTH|WRONGPASS|MISCONF|BUSY|NOREPLICAS|MASTERDOWN|CLUSTERDOWN"
    r"|TRYAGAIN|NOSCRIPT|UNKILLABLE|ACL|can't run this command|permission)"
)


class Spool:
    """The results of this machine's workers that wait for Redis. `clock`: seconds that rise."""

    def __init__(
        self, home: Path, prefix: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder, self._clock = home / "spool" / prefix, clock
        self._left: set[Path] = set()  # said to stay: a newer worker's, or cannot be moved
        self._held: dict[Path, int] = {}  # descriptors: the lock says that its worker sees to it
        self._asked_at: float | None = None  # for what Redis did not know
        self._there: frozenset[str] = frozenset()  # sweeps of it that Redis has

    def _path(self, claim: Claim) -> Path:
        return self._folder / f"{claim.trial.sweep}.{claim.trial.number}.{claim.token}.json"

    def keep(self, claim: Claim, outcome: Outcome) -> str:
        """As `put`; says what became of it."""
        try:
            self.put(claim, outcome)
        except OSError as error:
            return f"the result cannot be kept on disk ({error}), only by this process"
        return "the result is on disk until it is back"

    def put(self, claim: Claim, outcome: Outcome) -> None:
        """Keep one result, whole or not at all.

        Raises:
            OSError: the disk does not take it.
        """
        text = encode(claim, outcome).encode()
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(claim)
        draft = path.with_suffix(f".{os.getpid()}.tmp")
        # For writing too: some network file systems lock nothing else.
        held = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            with open(held, "wb", closefd=False) as file:
                file.write(text)
            os.fsync(held)
            with suppress(OSError):  # a file system without locks: another may be quicker
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its reports go first
            draft.replace(path)
        except OSError:
            os.close(held)
            draft.unlink(missing_ok=True)
            raise
        self._let_go(path)
        self._held[path] = held
        _sync(self._folder)

    def _let_go(self, path: Path) -> None:
        if path in self._held:
            os.close(self._held.pop(path))

    def close(self) -> None:
        """Leave what is kept to the other workers of this machine, as the end of a process does."""
        for path in list(self._held):
            self._let_go(path)

    def settle(self, claim: Claim, answer: CommitReply) -> None:
        """Forget one result that Redis has answered for; one that it does not know stays on disk.

        Its data may come back, from a backup or with the right server: `flush` tries again.
        """
        self._settle(self._path(claim), claim, answer)

    def _settle(self, path: Path, claim: Claim, answer: CommitReply) -> None:
        self._let_go(path)
        aside = path.with_suffix(".unknown")
        if answer is not CommitReply.UNKNOWN:
            path.unlink(missing_ok=True)
            aside.unlink(missing_ok=True)
            return
        with suppress(FileNotFoundError):  # another worker of this machine was quicker
            path.replace(aside)
            log.warning("Redis does not know %s; its result is kept as %s", claim.trial, aside)

    def look_again(self) -> None:
        """Redis was away, and may know now what it did not know."""
        self._asked_at = None

    def flush(self, store: TrialStore) -> int:
        """Commit what is kept, oldest first; answers how many results Redis has answered for.

        What Redis did not know is asked for at the first call, every few minutes, and where its
        sweep is there again: a server may come back with other data before anybody misses it.

        Raises:
            redis.RedisError: Redis is still away; what is left stays.
        """
        now, kept = self._clock(), [*self._folder.glob("*.json")]
        aside = [*self._folder.glob("*.unknown")]
        asks = self._asked_at is None or now - self._asked_at >= _UNKNOWN_S
        if asks | self._is_back(store, aside):
            kept += aside
        done = sum(self._commit(store, path) for path in sorted(kept, key=_age))
        if asks:
            self._asked_at = now
        return done

    def _is_back(self, store: TrialStore, aside: Sequence[Path]) -> bool:
        """True where a sweep of these is there that was not at the last call."""
        sids = {path.name.partition(".")[0] for path in aside}
        there = store.existing(sids) if sids else frozenset[str]()
        is_new, self._there = not there <= self._there, there
        return is_new

    def _commit(self, store: TrialStore, path: Path) -> bool:
        """Commit one result; False where Redis has not answered for it."""
        try:
            if (text := self._read(path)) is None:
                return False
            claim, outcome = decode(text)
            answer = store.commit(claim, outcome)
        except Newer as error:
            self._leave(path, f"left for a newer worker: {error}")
            return False
        except (ValueError, KeyError, TypeError, RecursionError, DataError) as error:
            self._set_aside(path, error)
            return False
        except ResponseError as error:
            if type(error) is not ResponseError or _SERVERS.search(str(error)):
                raise
            self._set_aside(path, error)
            return False
        self._settle(path.with_suffix(".json"), claim, answer)
        if answer is CommitReply.UNKNOWN:
            return False
        log.info("spooled result of %s: %s", claim.trial, answer)
        return True

    def _read(self, path: Path) -> bytes | None:
        """What is in a file; None where it is not this worker's turn, or it is gone."""
        if path in self._held:
            return None
        try:
            with path.open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:  # held: another worker of this machine sees to it
                    return None
                except OSError:  # a file system without locks: committing it twice is harmless
                    pass
                return file.read()
        except OSError:  # gone, or not ours to read
            return None

    def _leave(self, path: Path, why: str) -> None:
        if path not in self._left:
            log.warning("%s: %s", path, why)
        self._left.add(path)

    def _set_aside(self, path: Path, error: Exception) -> None:
        try:
            path.replace(path.with_suffix(".bad"))
        except OSError as why:  # as in a folder that is another user's
            self._leave(path, f"not a result that can be committed: {error}; it stays: {why}")
            return
        log.error("%s: not a result that can be committed: %s; set aside", path, error)


def _sync(folder: Path) -> None:
    """The names in a folder are on the disk."""
    with suppress(OSError):  # not every file system does that
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
