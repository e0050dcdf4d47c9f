"""The code that comes with a sweep: fetched once, compared with the signed digest, unpacked.

Another user may have written the bundle in Redis or on this disk: a worker unpacks it only if the
digest of all its files equals the one in the launch record.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hpq.code import bundle as packing
from hpq.domain.sweep import Launch
from hpq.notice import Notice
from hpq_worker.files.workdir import DirectoryLock

Files = dict[str, tuple[bytes, int]]
_KEPT = 20  # bundles on a disk; each is at most 10 MiB
_NUMBERS = itertools.count(1)


class CodeBundles:
    """The code bundles on this disk, under HPQ_HOME/bundles; `fetch` reads one from Redis."""

    def __init__(self, home: Path, fetch: Callable[[str], bytes | None]) -> None:
        self._folder, self._work, self._fetch = home / "bundles", home / "work", fetch

    def refusal(self, launch: Launch) -> Notice | None:
        """Return why the code of a launch cannot run, with the remedy; None if it can.

        Raises:
            RedisError: the bundle is not on this disk, and Redis is away.
        """
        try:
            self._files(launch.code)
        except ValueError as error:
            text = f"its code in Redis is not what was signed ({error}); enqueue it again"
            return Notice("code-altered", text)
        return None

    def copy(self, launch: Launch, folder: Path) -> None:
        """Unpack the code of a launch into a new folder.

        Raises:
            OSError: the disk cannot take it, or the bundle was removed.
        """
        try:
            files = self._files(launch.code)
        except ValueError as error:
            raise OSError(f"the code of the sweep: {error}") from None
        folder.mkdir()
        packing.write(files, folder)

    def own_copy(self, launch: Launch) -> CodeCopy:
        """Unpack the code of a launch for a runner that outlives attempts.

        Raises:
            OSError: as `copy`.
        """
        work = self._work / f"code-{launch.code[:12]}.{os.getpid()}.{next(_NUMBERS)}"
        work.parent.mkdir(parents=True, exist_ok=True)
        copy = CodeCopy(work)
        try:
            self.copy(launch, work)
        except OSError:
            copy.remove()
            raise
        return copy

    def _files(self, digest: str) -> Files:
        path = self._folder / f"{digest}.tar.gz"
        with suppress(OSError, ValueError):  # removed or damaged: Redis has it
            files = packing.opened(path.read_bytes(), digest)
            os.utime(path)
            return files
        data = self._fetch(digest)
        if data is None:
            raise ValueError("it is gone from there")
        files = packing.opened(data, digest)
        with suppress(OSError):  # the next attempt fetches it again
            self._keep(path, data)
        return files

    def _keep(self, path: Path, data: bytes) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_bytes(data)
        draft.rename(path)
        kept = sorted(self._folder.glob("*.tar.gz"), key=lambda p: p.stat().st_mtime)
        for old in kept[:-_KEPT]:
            old.unlink(missing_ok=True)


class CodeCopy:
    """A directory of code under HPQ_HOME/work; the next worker removes a killed owner's."""

    def __init__(self, path: Path) -> None:
        self.path, self._lock = path, DirectoryLock(path)
        shutil.rmtree(path, ignore_errors=True)

    def remove(self) -> None:
        """Remove it; never fails."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            self._lock.release()
