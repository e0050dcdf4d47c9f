"""Whose work directory is whose: an attempt holds a lock beside it, which a killed owner loses.

HPQ_HOME/work/NAME belongs to whoever holds the lock on NAME.lock, which names the attempt's
directory for its socket, too. What has no such file (results that a person is told of) is nobody's
to remove, and where a file system has no locks nothing is.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

_LOCK = re.compile(r"[a-z0-9-]+\.\d+\.\d+\.lock\Z")
_LONGEST_BYTES = 4_096  # of the path in it
SOCKET = "report"


class Owned:
    """The lock on a work directory; whoever makes one waits until nobody else holds it.

    Raises, when made: OSError where the file cannot be written.
    """

    def __init__(self, work: Path) -> None:
        self._path = _lock_of(work)
        self._fd = -1
        while not _is_at(self._fd, self._path):  # one that was removed meanwhile protects nothing
            self._close()
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with suppress(OSError):  # a file system without locks: nobody can sweep there, either
                fcntl.flock(self._fd, fcntl.LOCK_EX)

    def note(self, short: str) -> None:
        """Name the directory of the attempt's socket, so that it goes with the work directory.

        Raises:
            OSError: the disk does not take it.
        """
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, os.fsencode(short), 0)

    def release(self) -> None:
        """Give the directory up; what is left in it now stays."""
        self._path.unlink(missing_ok=True)
        self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def clear_abandoned(home: Path) -> list[str]:
    """Remove the work directories whose owners are dead; answers their names."""
    folder, cleared = home / "work", []
    with suppress(OSError):
        for entry in os.listdir(folder):
            if _LOCK.match(entry) and _clear(folder / entry):
                cleared.append(entry.removesuffix(".lock"))
    return cleared


def _clear(lock: Path) -> bool:
    try:
        fd = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # gone, or somebody else's
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_at(fd, lock):
            return False
        _remove_short(Path(os.fsdecode(os.pread(fd, _LONGEST_BYTES, 0))))
        work = lock.with_name(lock.name.removesuffix(".lock"))
        shutil.rmtree(work, ignore_errors=True)
        if work.exists():  # a runner that is just dying still writes
            return False
        lock.unlink(missing_ok=True)
        return True
    except OSError:  # held, or a file system without locks
        return False
    finally:
        os.close(fd)


def _remove_short(short: Path) -> None:
    """What a note says: taken for no more than it can be, the directory of a socket."""
    if short.is_absolute() and short.name.startswith("hpq-"):
        with suppress(OSError):
            (short / SOCKET).unlink(missing_ok=True)
            short.rmdir()  # of a folder that holds anything else, nothing goes


def _lock_of(work: Path) -> Path:
    return work.with_name(f"{work.name}.lock")


def _is_at(fd: int, path: Path) -> bool:
    if fd < 0:
        return False
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), os.stat(path))
    return False
