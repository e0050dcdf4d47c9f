"""Consistent copies of a checkpoint directory, which training code writes at any time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hpq.filestore.base import is_safe_name
from hpq.filestore.local import regular
from hpq_worker.process.process_tree import descendants

Signature = tuple[tuple[str, int, int], ...]  # name, bytes and mtime in ns of each file
_NO_DRAFT = ".metadata"  # torch.distributed.checkpoint writes this file of a checkpoint last


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
