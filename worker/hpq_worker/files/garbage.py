"""The file store of a worker, and the thread that removes unneeded files.

A trial never waits for a removal. The files of a trial that has ended go at once; one worker of a
store looks for all others every few minutes, also for those that could not be removed.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection
from pathlib import Path
from threading import Event, Thread

from redis.exceptions import RedisError

from hpq.domain.trial import Claim, TrialId
from hpq.filestore.base import Files, is_reachable
from hpq.filestore.stores import open_files
from hpq.notice import plural, tagged
from hpq.redis.credentials import redact
from hpq.redis.damage import damage
from hpq.settings import Settings
from hpq.store.file_garbage import FileGarbage
from hpq_worker.files import artifacts
from hpq_worker.files.artifacts import UnstoredFiles
from hpq_worker.files.workdir import attempt_of, remove_abandoned, work_folder
from hpq_worker.process.signals import Signals
from hpq_worker.process.watchdog import Progress

log = logging.getLogger("hpq.files")
_PATIENCE_S = 5.0
_RETRY_S = 2.0  # to store the files of this worker's trials
_STORE_PATIENCE_S = 120.0  # of a worker that would end before the store is back
_LOOK_S = 0.05


class FileStoreHandle:
    """The file store of a worker, opened when it is first needed.

    Raises, when created: SettingsError if HPQ_STORE cannot be used here.
    """

    def __init__(self, settings: Settings) -> None:
        self._url = settings.store
        self.prefix = settings.prefix
        self._files: Files | None = None
        try:
            self.open()  # an unusable store must end the worker before the first claim
        except OSError as error:
            log.warning(tagged("%s; the worker retries at each trial", "store-unusable"), error)

    def open(self) -> Files | None:
        """Return the store, or None if HPQ_STORE is not set.

        Raises:
            OSError: the store cannot be reached now.
            SettingsError: HPQ_STORE cannot be used here.
        """
        if self._files is None and self._url:
            try:
                self._files = open_files(self._url)
            except OSError as error:
                why = error.strerror or error
                remedy = "name a directory that this user can write"
                raise OSError(f"HPQ_STORE={redact(self._url)}: {why}; {remedy}") from error
        return self._files

    @property
    def id(self) -> str:
        """The id of the store; "" without one, or before it was reached."""
        return self._files.id if self._files else ""

    def warn_if_unknown(self, known: Collection[str]) -> None:
        """Warn if the sweeps have files in other stores only: HPQ_STORE may be no mount."""
        if self.id and known and self.id not in known:
            log.warning(
                "HPQ_STORE=%s is store %s, but the sweeps have files in %s; check that the store is"
                " mounted. Trials with checkpoints there wait for a worker that has that store, and"
                " restart if none is live",
                redact(self._url),
                self.id,
                ", ".join(sorted(known)[:5]),
            )


class GarbageCollector:
    """The thread that tidies the store and the work directories, and stores what the store refused.

    It runs when a trial has ended, and every two leases: other workers may have left files. `dead`
    receives the attempts of the directories that killed workers left: their trials do not wait for
    the end of a lease.
    """

    def __init__(
        self,
        settings: Settings,
        files: FileStoreHandle,
        garbage: FileGarbage,
        waiting: UnstoredFiles,
    ) -> None:
        self._waiting = waiting
        self._own = deque[Path]()  # directories of this worker's trials
        self._has_given_up = False
        self._work_root = settings.work_root
        self._interval_s = 2 * settings.lease_s
        self._has_store = bool(settings.store)
        self._files = files
        self._garbage = garbage
        self._ended = deque[tuple[TrialId, bool]]()
        self.dead = deque[tuple[TrialId, str]]()
        self._abandoned: list[str] = []  # directories of killed workers, as of the last look
        self._wake = Event()
        self._is_over = False
        self._error = ""
        self._thread = Thread(target=self._loop, name="garbage", daemon=True)

    def start(self) -> None:
        """Remove the directories of killed workers at once; then start the thread."""
        self._remove_abandoned()
        self._wake.set()
        self._thread.start()

    def schedule(self, claim: Claim, *, has_keep: bool) -> None:
        """Remove soon what an attempt left that has ended, and store what it could not.

        If its sweep has a `keep`, remove the files of the trials that it has dropped, too.
        """
        if self._has_store:
            work = work_folder(self._work_root, claim)
            if artifacts.is_unstored(work):
                self._own.append(work)
            self._ended.append((claim.trial, has_keep))
            self._wake.set()

    def close(self, signals: Signals, progress: Progress) -> None:
        """Finish what was scheduled, within a few seconds.

        A worker that ends by itself waits for a store that is away, and so does one in a pod, with
        which the files go, within its grace.
        """
        until = time.monotonic() + _STORE_PATIENCE_S
        if self._unstored() and not signals.is_stopping:
            log.info("waits up to %g s for the store, which lacks files", _STORE_PATIENCE_S)
        while self._unstored() and time.monotonic() < until and not _must_leave(signals):
            progress.stamp()
            self._thread.join(_LOOK_S)
        self._is_over = True
        self._wake.set()
        until = time.monotonic() + _PATIENCE_S
        while self._thread.is_alive() and time.monotonic() < until and not signals.is_late():
            self._thread.join(_LOOK_S)
        self._has_given_up = True
        if left := self._unstored():
            what = f"the files of {len(left)} {plural(len(left), 'trial')} are not stored"
            log.warning(tagged(f"{what}; {artifacts.wait(left)}", "files-not-stored"))

    def _unstored(self) -> list[Path]:
        """Return where files of this worker's trials wait for the store."""
        return [work / "out" for work in list(self._own) if artifacts.is_unstored(work)]

    def _loop(self) -> None:
        is_over = False
        while not is_over:
            self._wake.wait(_RETRY_S if self._unstored() else self._interval_s)
            self._wake.clear()
            is_over = self._is_over  # read first: what was scheduled before `close` still happens
            self._remove_abandoned()
            try:
                files = self._files.open()
                if files is not None:
                    self._remove_from(files)
                self._error = ""
            except (OSError, RedisError) as error:
                if str(error) != self._error:  # each retry would log it
                    self._error = str(error)
                    log.warning("cannot tidy the file store now: %s", error)

    def _remove_from(self, files: Files) -> None:
        self._remove_ended(files)
        self._waiting.deliver(files, lambda: not self._has_given_up)
        if self._is_over or not self._garbage.is_due(files):
            return
        failure: Exception | None = None
        for sid in self._garbage.sweeps_in(files):
            try:
                self._garbage.remove_of_sweep(files, sid)
            except OSError as error:  # as of another user's files; the next sweeps are looked at
                if not is_reachable(files):
                    raise
                failure = error
            except RedisError as error:
                if not damage(error):
                    raise
                failure = error
            self._remove_ended(files)  # it must not wait for a large store
            if self._is_over:
                return
        if failure is not None:
            raise failure

    def _remove_ended(self, files: Files) -> None:
        while self._ended:
            trial, has_keep = self._ended.popleft()
            self._garbage.remove_of_trial(files, trial, has_keep=has_keep)

    def _remove_abandoned(self) -> None:
        before, self._abandoned = self._abandoned, remove_abandoned(self._work_root)
        for name in self._abandoned:
            if name in before:  # a program of another user has left files in it
                continue
            log.info("%s: its worker was killed; its files are removed", name)
            if attempt := attempt_of(name):
                self.dead.append(attempt)


def _must_leave(signals: Signals) -> bool:
    """Return True if this worker must not wait for the store any more."""
    return signals.is_late() or (signals.is_stopping and not artifacts.is_in_pod())
