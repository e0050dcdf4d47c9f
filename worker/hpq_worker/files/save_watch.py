"""Look at a checkpoint directory, decide when a save in it has ended, and freeze its files.

Training code writes at any time. No trainer says that a save has ended. Hugging Face's Trainer,
Keras's BackupAndRestore and sharded saves write the files of a checkpoint one after another, under
their final names, and seconds may pass between two. So a state of the directory is whole in one of
three cases:

- Nothing has changed for long enough.
- It is one file, and training code has saved that file alone before.
- The trial saves too often for that, and this pause is nearly as long as the longest of the last
  eight but one. Only pauses with a report count: a trainer reports between two saves, not during
  one.
"""

from __future__ import annotations

import math
import os
import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hpq.filestore.base import is_safe_name
from hpq.filestore.stores import regular
from hpq_worker.process.process_tree import descendants

Signature = tuple[tuple[str, int, int], ...]  # name, bytes and mtime in ns of each file
_NO_DRAFT = ".metadata"  # torch.distributed.checkpoint writes this file of a checkpoint last
_LONGEST = 6  # times the quiet time: what a slow save is waited for
_RESTLESS = 12  # times the quiet time: no checkpoint was whole for so long
_PAUSES = 8
_NEARLY = 0.9


class Entry(NamedTuple):
    """A file of a checkpoint directory."""

    name: str
    size: int
    mtime_ns: int
    inode: int

    @property
    def is_draft(self) -> bool:
        """True if its name says that it is not finished."""
        return _is_draft(os.path.basename(self.name))


def look(folder: Path) -> tuple[Entry, ...]:
    """Return the files of a folder, drafts included, but nothing below a folder that is a draft."""
    found = (
        Entry(name, stat.st_size, stat.st_mtime_ns, stat.st_ino)
        for name, stat in regular(folder)
        if is_safe_name(name) and not any(map(_is_draft, name.split("/")[:-1]))
    )
    return tuple(sorted(found))


def finished(entries: Iterable[Entry]) -> Signature:
    """Return the files that are no drafts."""
    return tuple((one.name, one.size, one.mtime_ns) for one in entries if not one.is_draft)


def scan(folder: Path) -> Signature:
    """Return the files of a folder, without drafts and unstorable names."""
    return finished(look(folder))


def changed_s(folder: Path, names: Iterable[str]) -> float:
    """Return when the newest of these files was written or renamed, in seconds since 1970.

    The change time: a copy or an archive may keep an old modification time. 0 without a file.
    """
    newest = 0.0
    for name in names:
        with suppress(OSError):
            newest = max(newest, os.stat(folder / name).st_ctime)
    return newest


def _is_draft(name: str) -> bool:
    """Return True for the name of a draft: `.name` or `name.tmp`, of a file or a folder."""
    return name.endswith(".tmp") or (name.startswith(".") and name != _NO_DRAFT)


def freeze(folder: Path, found: Signature, to: Path) -> None:
    """Link the files that were found into `to`: a file that is replaced later stays as it was."""
    shutil.rmtree(to, ignore_errors=True)
    for name, *_ in found:
        path = to / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            try:
                os.link(folder / name, path)
            except PermissionError:  # a file system without links
                shutil.copy2(folder / name, path)


def is_being_written(folder: Path, names: Iterable[str]) -> bool:
    """True if a descendant of this process has one of these files open for writing (Linux)."""
    files = set()
    for name in names:
        with suppress(OSError):
            stat = os.stat(folder / name)
            files.add((stat.st_dev, stat.st_ino))
    return any(inode in files for inode in _written())


def _written() -> Iterator[tuple[int, int]]:
    for pid in descendants(os.getpid()):
        fds: list[str] = []
        with suppress(OSError):  # it has ended
            fds = os.listdir(f"/proc/{pid}/fd")
        for fd in fds:
            with suppress(OSError, ValueError, IndexError):
                stat = os.stat(f"/proc/{pid}/fd/{fd}")
                lines = Path(f"/proc/{pid}/fdinfo/{fd}").read_text("ascii").split()
                if int(lines[lines.index("flags:") + 1], 8) & os.O_ACCMODE != os.O_RDONLY:
                    yield stat.st_dev, stat.st_ino


class SaveWatch:
    """Follows a checkpoint directory; times are seconds of one clock.

    `quiet_s` is the time without a change after which a save has ended. A save that takes longer
    is waited for as long as it took.
    """

    def __init__(self, quiet_s: float, present: Sequence[Entry] = ()) -> None:
        """`present` are the files of a whole checkpoint."""
        self._quiet_s = quiet_s
        self._seen = present
        self._began = self._changed = -math.inf  # the save: its first and its last change
        self._reports = 0
        self._is_stable = True
        self._alone = ""  # the file that is a checkpoint by itself
        self._pauses = deque[float](maxlen=_PAUSES)

    def differs(self, seen: Sequence[Entry]) -> bool:
        """Return True if the files are not those of the last look."""
        return seen != self._seen

    def add(self, seen: Sequence[Entry], reports: int, now: float) -> None:
        """Add a look at the files; `reports` is the number of values that the trial reported."""
        was = self._seen
        self._seen = seen
        if seen == was:
            self._is_stable = True
            return
        before = _only(was)
        after = _only(seen)
        if self._is_quiet(now):
            self._began = now
            self._alone = before.name if before else ""
        elif before and after and self._is_saved_again(before, after):
            self._alone = after.name
        if reports != self._reports and math.isfinite(self._changed):
            self._pauses.append(now - self._changed)
        self._reports = reports
        self._changed = now
        self._is_stable = False

    def _is_saved_again(self, before: Entry, after: Entry) -> bool:
        """Return True if a file was replaced or rewritten, and is not being written at length."""
        if before.name != after.name or before == after:
            return False
        return before.inode != after.inode or (self._is_stable and after.size <= before.size)

    @property
    def is_alone(self) -> bool:
        """True if the directory has one file, which is a checkpoint by itself."""
        file = _only(self._seen)
        return file is not None and file.name == self._alone

    def is_whole(self, now: float) -> bool:
        """Return True if no save is under way; the caller has looked twice and saw no change."""
        return self.is_alone or self._is_quiet(now)

    @property
    def is_restless(self) -> bool:
        """True if saves have followed one another too closely for a long time."""
        return self._changed - self._began > _RESTLESS * self._quiet_s

    def quiet_s(self, now: float) -> float:
        """Return how long nothing has changed."""
        return now - self._changed

    def _is_quiet(self, now: float) -> bool:
        took_s = self._changed - self._began if math.isfinite(self._began) else 0.0
        needed_s = max(self._quiet_s, min(took_s, _LONGEST * self._quiet_s))
        if len(self._pauses) == _PAUSES:
            needed_s = min(needed_s, _NEARLY * sorted(self._pauses)[-2])
        return self.quiet_s(now) >= needed_s


def _only(entries: Sequence[Entry]) -> Entry | None:
    """Return the one file that is no draft; None if there are none or several."""
    files = [one for one in entries if not one.is_draft]
    return files[0] if len(files) == 1 else None
