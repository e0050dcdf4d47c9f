"""Detect files that one trial after another writes in the directory where they run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from hpq_worker.files.workdir import attempts_here

_MOST = 2_000  # entries that are looked at
_DEPTH = 2  # below the directory


class _Write(NamedTuple):
    trial: int
    size: int
    beside: frozenset[str]  # attempts that ran when this one ended


class Overwrites:
    """The files that trials of one sweep wrote in a directory, as one worker saw them.

    Two windows of time show two writers if no attempt ran from the end of the first to the start of
    the second. A file that grew may be a log that all trials append to.
    """

    def __init__(self, home: Path) -> None:
        self._home, self._sweep = home, ""
        self._seen: dict[str, _Write] = {}

    def begin(self, sweep: str) -> None:
        """Note that a trial starts."""
        if sweep != self._sweep:
            self._sweep, self._seen = sweep, {}
        self._beside, self._since_ns = attempts_here(self._home), time.time_ns()

    def end(self, trial: int, folder: str) -> dict[str, int]:
        """Return the files that this trial, and an earlier one, wrote: path → earlier trial."""
        beside, found = attempts_here(self._home), {}
        for path, stat in islice(_files(folder, _DEPTH, self._home), _MOST):
            if stat.st_mtime_ns > self._since_ns:
                was = self._seen.setdefault(path, _Write(trial, stat.st_size, beside))
                is_other = was.trial != trial and not was.beside & self._beside
                if is_other and stat.st_size <= was.size:
                    found[path] = was.trial
        return found


def _files(folder: str, depth: int, but: Path) -> Iterator[tuple[str, os.stat_result]]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith((".", "_")):
                continue
            if entry.is_file(follow_symlinks=False):
                yield entry.path, entry.stat(follow_symlinks=False)
            elif depth and entry.is_dir(follow_symlinks=False) and Path(entry.path) != but:
                yield from _files(entry.path, depth - 1, but)
