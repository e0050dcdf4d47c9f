"""Remove unneeded files from HPQ_HOME: old code snapshots, logs of runs, and caches."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from hpq.domain.sweep import SweepView
from hpq.store.reader import StoreReader

UNUSED_S = 30 * 86_400.0
_BOUNDED = ("snapshots", "logs", "cache/*")  # reproducible, or of ended sweeps


def remove_unused(home: Path, reader: StoreReader) -> None:
    """Remove what was not used for 30 days, except for files of sweeps that have not ended.

    Files that trials wrote, under work/, are kept.

    Raises:
        redis.RedisError: Redis does not answer; no file is removed.
    """
    if unused := list(_unused(home)):
        sweeps = reader.sweeps.get_each(reader.sweeps.ids())
        live = [s for s in sweeps if isinstance(s, SweepView) and not s.state.is_over]
        needed = {name for s in live for name in (s.id, s.launch.code)}
        for path in unused:
            if path.name.split(".")[0] not in needed:
                _remove(path)


def _unused(home: Path) -> Iterator[Path]:
    before = time.time() - UNUSED_S
    for pattern in _BOUNDED:
        for path in sorted(home.glob(f"{pattern}/*")):
            with suppress(OSError):
                stat = path.stat()
                # A directory's access time is that of the last listing, which is no use of it.
                used_at = stat.st_mtime if path.is_dir() else max(stat.st_mtime, stat.st_atime)
                if used_at < before:
                    yield path


def _remove(path: Path) -> None:
    with suppress(OSError):  # another user's file, or removed meanwhile
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def bytes_of(path: Path) -> int:
    """Return the size of all files below a directory, in bytes."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total
