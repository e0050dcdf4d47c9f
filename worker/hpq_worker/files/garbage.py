"""Where a worker's store of files is, and the thread that removes what nobody needs any more.

Removing is nobody's hurry: a trial never waits for it, and what is missed stays named in Redis
until somebody with that store has done it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from threading import Event, Thread

from redis.exceptions import RedisError

from hpq.connection.credentials import redact
from hpq.filestore.local import Files, open_files
from hpq.settings import Settings
from hpq.store.file_garbage import FileGarbage
from hpq_worker.files.workdir import clear_abandoned

log = logging.getLogger("hpq.files")
_PATIENCE_S = 5.0


class FileStoreHandle:
    """The store of files of a worker.

    Raises, when made: SettingsError where HPQ_STORE cannot be used here.
    """

    def __init__(self, settings: Settings) -> None:
        self._place, self.prefix = settings.store, settings.prefix
        self._files: Files | None = None
        try:
            self.open()  # a store that can never be used is said before anything is claimed
        except OSError as error:
            log.warning("%s; it is tried again at each trial", error)

    def open(self) -> Files | None:
        """The store, or None where HPQ_STORE is not set.

        Raises:
            OSError: it cannot be reached now.
            SettingsError: HPQ_STORE cannot be used here.
        """
        if self._files is None and self._place:
            try:
                self._files = open_files(self._place)
            except OSError as error:
                raise OSError(f"HPQ_STORE={redact(self._place)}: {error}") from error
        return self._files

    @property
    def id(self) -> str:
        """The id of the store; empty where there is none, or it could not be reached yet."""
        return self._files.id if self._files else ""

    def say_if_another(self, known: Collection[str]) -> None:
        """Warn where the sweeps have files in other stores only: perhaps this is no mount."""
        if self.id and known and self.id not in known:
            log.warning(
                "HPQ_STORE=%s is store %s, and the files of the sweeps here are in %s: is that a"
                " mount? Trials with checkpoints there wait for a live worker that has them; else"
                " they start again",
                redact(self._place),
                self.id,
                ", ".join(sorted(known)[:5]),
            )


class GarbageCollector:
    """The thread that removes: garbage of a file store, work directories of the dead.

    It looks when it is told to, and now and then: others may have left something.
    """

    def __init__(self, settings: Settings, shelf: FileStoreHandle, garbage: FileGarbage) -> None:
        self._home, self._every_s = settings.home, 2 * settings.lease_s
        self._shelf, self._garbage = shelf, garbage
        self._wake, self._is_over, self._complaint = Event(), False, ""
        self._thread = Thread(target=self._loop, name="tidy", daemon=True)

    def start(self) -> None:
        """Clear at once what killed workers have left of this machine's disk; then go on."""
        self._clear_disk()
        self.soon()
        self._thread.start()

    def soon(self) -> None:
        """There may be something to remove."""
        self._wake.set()

    def close(self, is_late: Callable[[], bool]) -> None:
        """Finish what was asked for, for a few seconds at most."""
        self._is_over = True
        self._wake.set()
        until = time.monotonic() + _PATIENCE_S
        while self._thread.is_alive() and time.monotonic() < until and not is_late():
            self._thread.join(0.05)

    def _loop(self) -> None:
        is_over = False
        while not is_over:
            self._wake.wait(self._every_s)
            self._wake.clear()
            is_over = self._is_over  # asked first: what was told before that is still done
            self._clear_disk()
            try:
                files = self._shelf.open()
                if files is not None:
                    self._garbage.remove_from(files)
                self._complaint = ""
            except (OSError, RedisError) as error:
                if str(error) != self._complaint:  # it is tried again and again
                    self._complaint = str(error)
                    log.warning("files that nobody needs stay for now: %s", error)

    def _clear_disk(self) -> None:
        for name in clear_abandoned(self._home):
            log.info("what a killed worker left of %s on this disk is removed", name)
