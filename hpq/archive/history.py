"""Move sweeps that ended long ago into a file store as archives; Redis keeps one line of each.

The archive is copied and read back first. One script call then writes the line and makes the sweep
invisible; its keys are deleted last. Keys that a crash leaves are deleted by the next look. A copy
that a crash leaves stays until `hpq rm`: another server of this store may have a line that names
it. An archive is in PREFIX/SWEEP/archive-XXXXXX/SWEEP.hpq, beside the files of the sweep's trials,
and each mover writes its own: no mover can damage the archive of another.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from hpq.archive.write import write
from hpq.code.signing import sign_archive, verifying_key
from hpq.domain.sweep import SweepView
from hpq.errors import HpqError
from hpq.filestore.base import Files, GoOn, copy_in, is_reachable
from hpq.settings import Settings
from hpq.store.archive import due_sweeps, line_of
from hpq.store.control import SweepControl
from hpq.store.scripts import StoreContext

log = logging.getLogger("hpq.history")
_DAY_MS = 86_400_000


class History:
    """The sweeps of one prefix that are due to leave Redis."""

    def __init__(self, settings: Settings, context: StoreContext) -> None:
        self._settings, self._context = settings, context
        self._control = SweepControl(context)

    def move(self, files: Files, go_on: GoOn = lambda: True) -> None:
        """Move the sweeps that ended HPQ_KEEP_DAYS ago; finish what a crash has left.

        Raises:
            OSError: the file store failed.
            redis.RedisError: Redis cannot be reached.
        """
        self._control.finish_removals()
        if not self._settings.keep_days:
            return
        for sweep, last_event in due_sweeps(self._context, self._settings.keep_days * _DAY_MS):
            if not go_on():
                return
            try:
                self._move(files, sweep, last_event)
            except (HpqError, OSError) as error:  # this sweep stays, the others can go
                if not is_reachable(files):
                    raise
                log.warning("cannot move sweep %s to the file store: %s", sweep.id, error)

    def _move(self, files: Files, sweep: SweepView, last_event: str) -> None:
        """Copy, keep a line, delete."""
        prefix, name = self._settings.prefix, f"{sweep.id}.hpq"
        folder, own = f"{prefix}/{sweep.id}", f"archive-{secrets.token_hex(3)}"
        self._settings.cache.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".moving-", dir=self._settings.cache) as here:
            file = Path(here) / name
            write(self._context, sweep.id, file)
            size = file.stat().st_size
            with file.open("rb") as written:
                sha256 = checksum(written)
            copy_in(Path(here), [name], files, f"{folder}/{own}", lambda: True)
        path = f"{folder}/{own}/{name}"
        with files.read(path) as copy:
            found = checksum(copy)
        if found != sha256:
            files.remove(f"{folder}/{own}")
            raise OSError(f"{path}: the store returns other bytes than were written")
        line = line_of(
            self._context,
            sweep,
            store=files.id,
            path=path,
            size=size,
            sha256=sha256,
            signature=sign_archive(verifying_key(self._settings), prefix, sweep.id, sha256),
        )
        if not self._control.move(sweep.id, last_event, line):
            return files.remove(f"{folder}/{own}")
        log.info("%s: moved to store %s, %s", sweep.id, files.id, path)


def checksum(file: IO[bytes]) -> str:
    """Return the SHA-256 of an open file, as hex."""
    digest = hashlib.sha256()
    while data := file.read(1 << 20):
        digest.update(data)
    return digest.hexdigest()
