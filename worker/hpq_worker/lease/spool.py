"""Results that wait for Redis, as files under HPQ_HOME, so that a crash loses none.

A file is written under another name and then renamed. A result may be committed twice: the store
records an attempt's end once. A file that is no result becomes `.bad`, and one of a trial
that Redis does not know becomes `.unknown`; neither blocks the worker.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from redis.exceptions import DataError, ResponseError

from hpq.domain.attempt import CommitReply, Outcome
from hpq.domain.identity import SWEEP_ID
from hpq.domain.trial import Claim, TrialId
from hpq.notice import tagged
from hpq.private_files import make_private, sync_folder
from hpq.redis.damage import damage
from hpq.store.trials import TrialStore
from hpq.store.wire import decode
from hpq.store.wire.attempt import OUTCOME

log = logging.getLogger("hpq.spool")
_LARGEST = 2**53  # of a count
_UNKNOWN_S = 300.0  # between two retries of unknown results


class Spool:
    """The results of this machine's workers that wait for Redis. `clock`: seconds that rise."""

    def __init__(
        self, home: Path, prefix: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = home / "spool" / prefix
        self._clock = clock
        self._logged: set[Path] = set()  # files that stay, since they cannot be renamed
        self._locks: dict[Path, int] = {}  # the worker that has a file's lock commits it
        self._retried_at: float | None = None  # unknown results
        self._sweeps: frozenset[str] = frozenset()  # of unknown results, those that Redis has

    def _path(self, claim: Claim) -> Path:
        return self._folder / f"{claim.trial.sweep}.{claim.trial.number}.{claim.token}.json"

    def keep(self, claim: Claim, outcome: Outcome) -> str:
        """As `put`; return a line for the log."""
        try:
            self.put(claim, outcome)
        except OSError as error:
            line = f"cannot write the result to disk ({error}); this process holds it in memory"
            return tagged(line, "result-not-on-disk")
        return tagged("the result is on disk until Redis accepts it", "result-on-disk")

    def put(self, claim: Claim, outcome: Outcome) -> None:
        """Keep one result, whole or not at all.

        Raises:
            OSError: the disk cannot take it.
        """
        text = _encode(claim, outcome).encode()
        make_private(self._folder)
        path = self._path(claim)
        draft = path.with_suffix(f".{os.getpid()}.tmp")
        # For writing too: some network file systems lock nothing else.
        lock = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            with open(lock, "wb", closefd=False) as file:
                file.write(text)
            os.fsync(lock)
            with suppress(OSError):  # a file system without locks: another worker may be quicker
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its reports go first
            draft.replace(path)
        except OSError:
            os.close(lock)
            draft.unlink(missing_ok=True)
            raise
        self._unlock(path)
        self._locks[path] = lock
        sync_folder(self._folder)

    def _unlock(self, path: Path) -> None:
        if path in self._locks:
            os.close(self._locks.pop(path))

    def close(self) -> None:
        """Leave the results to the other workers of this machine, as the end of a process does."""
        for path in list(self._locks):
            self._unlock(path)

    def remove_answered(self, claim: Claim, answer: CommitReply) -> None:
        """Remove a result that Redis has answered; one that it does not know stays as `.unknown`.

        Its data may return, from a backup or with the right server: `flush` tries again.
        Redis answers `stale` for a sweep that was removed.
        """
        if (path := self._path(claim)) in self._locks:  # Redis was away, and this worker kept it
            self._remove(path, claim, answer)

    def _remove(self, path: Path, claim: Claim, answer: CommitReply) -> None:
        self._unlock(path)
        aside = path.with_suffix(".unknown")
        if answer is not CommitReply.UNKNOWN:
            path.unlink(missing_ok=True)
            aside.unlink(missing_ok=True)
            return
        with suppress(FileNotFoundError):  # another worker of this machine was quicker
            path.replace(aside)
            what = "Redis does not know this attempt of %s, or its record is damaged"
            line = f"{what}; its result is kept as %s"
            log.warning(tagged(line, "result-unknown"), claim.trial, aside)

    def retry_unknown(self) -> None:
        """Let the next `flush` retry unknown results: Redis was away."""
        self._retried_at = None

    def flush(self, store: TrialStore) -> int:
        """Commit the results, oldest first; return how many Redis has answered.

        Retries unknown results at the first call, every few minutes, and when their sweep exists
        again: a server may have restarted with other data.

        Raises:
            redis.RedisError: Redis is still away; the remaining results stay.
        """
        if not self._folder.is_dir():
            return 0
        now = self._clock()
        kept = [*self._folder.glob("*.json")]
        aside = [*self._folder.glob("*.unknown")]
        retries = self._retried_at is None or now - self._retried_at >= _UNKNOWN_S
        has_returned = self._has_returned(store, aside)  # asked each time: it remembers
        if retries or has_returned:
            kept += aside
        done = sum(self._commit(store, path) for path in sorted(kept, key=_age))
        if retries:
            self._retried_at = now
        return done

    def _has_returned(self, store: TrialStore, aside: Sequence[Path]) -> bool:
        """True if Redis has a sweep of these that it did not have at the last call."""
        sids = {path.name.partition(".")[0] for path in aside}
        found = store.existing(sids) if sids else frozenset[str]()
        has_new = not found <= self._sweeps
        self._sweeps = found
        return has_new

    def _commit(self, store: TrialStore, path: Path) -> bool:
        """Commit one result; False if Redis has not answered."""
        try:
            if (text := self._read(path)) is None:
                return False
            claim, outcome = _decode(text)
            answer = store.commit(claim, outcome)
        except (ValueError, KeyError, TypeError, RecursionError, DataError) as error:
            self._set_aside(path, error)
            return False
        except ResponseError as error:
            if not damage(error):
                raise
            self._set_aside(path, error)
            return False
        self._remove(path.with_suffix(".json"), claim, answer)
        if answer is CommitReply.UNKNOWN:
            return False
        log.info("spooled result of %s: %s", claim.trial, answer)
        return True

    def _read(self, path: Path) -> bytes | None:
        """Read a file; None if another worker holds it, or it was removed."""
        if path in self._locks:
            return None
        try:
            with path.open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:  # another worker of this machine commits it
                    return None
                except OSError:  # a file system without locks: committing it twice is harmless
                    pass
                return file.read()
        except OSError:  # removed, or not readable
            return None

    def _log_once(self, path: Path, why: str) -> None:
        if path not in self._logged:
            log.warning("%s: %s", path, why)
        self._logged.add(path)

    def _set_aside(self, path: Path, error: Exception) -> None:
        try:
            path.replace(path.with_suffix(".bad"))
        except OSError as why:  # another user's folder
            self._log_once(path, f"cannot commit this result: {error}; cannot rename it: {why}")
            return
        log.error("%s: cannot commit this result: %s; renamed to .bad", path, error)


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    sweep: str
    number: int
    attempt: int
    outcome: Outcome
    nonce: str


_RESULT = decode.Record(
    _Result,
    sweep=decode.text,
    number=decode.whole,
    attempt=decode.whole,
    outcome=OUTCOME,
    nonce=decode.text,
)


def _encode(claim: Claim, outcome: Outcome) -> str:
    """Return the text of a result."""
    result = _Result(
        sweep=claim.trial.sweep,
        number=claim.trial.number,
        attempt=claim.attempt,
        outcome=outcome,
        nonce=claim.nonce,
    )
    return json.dumps(asdict(result))


def _decode(text: bytes) -> tuple[Claim, Outcome]:
    """Return the claim and the outcome of a result.

    Every type is checked, and that numbers are finite: no partial result reaches Redis.

    Raises:
        ValueError, TypeError, RecursionError: the text is no result.
    """
    result = _RESULT(json.loads(text))
    outcome = result.outcome
    sizes = outcome.artifacts.files.values() if outcome.artifacts else ()
    counts = (result.number - 1, result.attempt - 1, outcome.step, outcome.ran_ms or 0, *sizes)
    if not all(0 <= count <= _LARGEST for count in counts):
        raise ValueError("a count is negative or too large")
    if not SWEEP_ID.match(result.sweep) or not outcome.state.is_terminal:
        raise ValueError(f"no end of a trial: {result.sweep[:80]!r} {outcome.state}")
    trial = TrialId(sweep=result.sweep, number=result.number)
    return Claim(trial=trial, attempt=result.attempt, nonce=result.nonce), outcome
