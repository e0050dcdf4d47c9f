"""Where a worker's store of files is, and the thread that removes what nobody needs any more.

Removing is nobody's hurry: a trial never waits for it, and what is missed is named again by the
next commit of the sweep, or goes with `hpq rm`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from queue import SimpleQueue
from threading import Thread

from redis.exceptions import RedisError

from hpq.files import Files, folder_of, open_files
from hpq.outcome import Doomed
from hpq.settings import Settings
from hpq.store import Store

log = logging.getLogger("hpq.files")
_PATIENCE_S = 5.0


class Shelf:
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
                raise OSError(f"HPQ_STORE={self._place}: {error}") from error
        return self._files


class Tidy:
    """Removes files of ended trials, one after another, in a thread."""

    def __init__(self, shelf: Shelf, store: Store) -> None:
        self._shelf, self._store = shelf, store
        self._queue: SimpleQueue[Doomed | None] = SimpleQueue()
        self._thread = Thread(target=self._loop, name="tidy", daemon=True)
        self._thread.start()

    def later(self, doomed: Sequence[Doomed]) -> None:
        """Remove these when there is time."""
        for one in doomed:
            self._queue.put(one)

    def close(self) -> None:
        """Finish what was asked for, for a few seconds."""
        self._queue.put(None)
        self._thread.join(_PATIENCE_S)

    def _loop(self) -> None:
        while (one := self._queue.get()) is not None:
            try:
                self._remove(one)
            except (OSError, RedisError) as error:
                log.warning("files of %s stay for now: %s", one.trial, error)

    def _remove(self, doomed: Doomed) -> None:
        files = self._shelf.open()
        if files is None:
            return
        base = folder_of(self._shelf.prefix, doomed.trial)
        for folder in {"/".join(name.split("/")[:2]) for name in files.names(base)}:
            attempt, _, what = folder.partition("/")
            is_latest = attempt == str(doomed.attempt)
            stays = is_latest and what == "artifacts" and not doomed.artifacts
            if attempt.isdigit() and int(attempt) <= doomed.attempt and not stays:
                files.remove(f"{base}/{folder}")
        self._store.forget_files(doomed)
