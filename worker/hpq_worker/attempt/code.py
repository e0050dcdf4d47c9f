"""The code that comes with a sweep: fetched once, compared with the signed digest, copied out.

What lies in Redis, and what this disk has kept of it, may be anybody's bytes: a bundle is unpacked
only where the digest of all its files is the one that the launch record carries.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hpq.code import bundle as packing
from hpq.codes import Notice
from hpq.domain.sweep import Launch
from hpq_worker.files.workdir import Owned

Files = dict[str, tuple[bytes, int]]
_KEPT = 20  # bundles on a disk; each is at most 10 MiB
_NUMBERS = itertools.count(1)


class Bundles:
    """The bundles that this worker has seen, under HPQ_HOME/bundles."""

    def __init__(self, home: Path, fetch: Callable[[str], bytes | None]) -> None:
        self._folder, self._work, self._fetch = home / "bundles", home / "work", fetch

    def refusal(self, launch: Launch) -> Notice | None:
        """Why the code of a launch cannot run, with the remedy; None where it is here and right.

        Raises:
            RedisError: it is not here yet, and the server is away.
        """
        try:
            self._files(launch.code)
        except ValueError as error:
            text = f"its code in Redis is not what was signed ({error}); enqueue it again"
            return Notice("code-altered", text)
        return None

    def copy(self, launch: Launch, folder: Path) -> None:
        """The code of a launch into a folder that is not there yet.

        Raises:
            OSError: the disk does not take it, or the code is gone.
        """
        try:
            files = self._files(launch.code)
        except ValueError as error:
            raise OSError(f"the code of the sweep: {error}") from None
        folder.mkdir()
        packing.write(files, folder)

    def own_copy(self, launch: Launch) -> Copy:
        """A copy for a runner that outlives attempts.

        Raises:
            OSError: as `copy`.
        """
        work = self._work / f"code-{launch.code[:12]}.{os.getpid()}.{next(_NUMBERS)}"
        work.parent.mkdir(parents=True, exist_ok=True)
        copy = Copy(work)
        try:
            self.copy(launch, work)
        except OSError:
            copy.remove()
            raise
        return copy

    def _files(self, digest: str) -> Files:
        path = self._folder / f"{digest}.tar.gz"
        with suppress(OSError, ValueError):  # gone, or damaged: Redis has it
            files = packing.opened(path.read_bytes(), digest)
            os.utime(path)
            return files
        data = self._fetch(digest)
        if data is None:
            raise ValueError("it is gone from there")
        files = packing.opened(data, digest)
        with suppress(OSError):  # then it is fetched again
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


class Copy:
    """A directory of code under HPQ_HOME/work; a killed owner's is cleared by the next worker."""

    def __init__(self, path: Path) -> None:
        self.path, self._owned = path, Owned(path)
        shutil.rmtree(path, ignore_errors=True)

    def remove(self) -> None:
        """Remove it; never fails."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            self._owned.release()
