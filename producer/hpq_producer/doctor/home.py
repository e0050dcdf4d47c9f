"""Find unneeded files in HPQ_HOME: old code snapshots, logs of runs, and caches."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from hpq_producer.terminal.text import size

UNUSED_S = 7 * 86_400.0
_BOUNDED = ("snapshots", "logs", "cache/*")  # reproducible, or of ended sweeps


def unused(home: Path, needed: Collection[str] = ()) -> Iterator[Path]:
    """Yield files not modified for a week, except those named after `needed` sweeps or code."""
    before = time.time() - UNUSED_S
    for pattern in _BOUNDED:
        for path in sorted(home.glob(f"{pattern}/*")):
            with suppress(OSError):
                if path.name.split(".")[0] not in needed and path.stat().st_mtime < before:
                    yield path


def bytes_of(path: Path) -> int:
    """Return the size of a file, or of all files below a directory, in bytes."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    with suppress(OSError):
        total += path.stat().st_size if path.is_file() else 0
    return total


def describe_size(home: Path) -> str:
    """Return the size of HPQ_HOME, and the size that `hpq gc` may remove."""
    spare = sum(map(bytes_of, unused(home)))
    return f"{size(bytes_of(home))}; hpq gc removes at most {size(spare)} of it"


def remove(path: Path) -> int:
    """Remove a file or a directory; return the freed bytes."""
    before = bytes_of(path)
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    return before - bytes_of(path)
