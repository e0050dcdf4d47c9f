"""Whose work directory is whose: an attempt holds a lock beside it, which a killed owner loses.

HPQ_HOME/work/NAME belongs to whoever holds the lock on NAME.lock, which names the attempt's
directory for its socket, too, and the machine: a shared file system may keep locks to itself. What
has no such file (results that a person is told of) is nobody's to remove, and where a file system
has no locks nothing is.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

_LOCK = re.compile(r"[a-z0-9-]+\.\d+\.\d+(-[a-z0-9]+)?\.lock\Z")
_LONGEST_BYTES = 4_096 + 512  # of the path in it and the machine
_PATIENCE_S, _LOOK_S = 5.0, 0.05
SOCKET = "report"


class Owned:
    """The lock on a work directory; whoever makes one waits a little while another holds it.

    Raises, when made: OSError where the file cannot be written, or another process holds it.
    """

    def __init__(self, work: Path) -> None:
        self._path = _lock_of(work)
        self._fd = -1
        until = time.monotonic() + _PATIENCE_S
        try:
            while not _is_at(self._fd, self._path):  # one that was removed protects nothing
                self._close()
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                self._lock(until)
        except OSError:
            self._close()
            raise
        try:
            self.note("")
        except OSError:
            self.release()
            raise

    def _lock(self, until: float) -> None:
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > until:
                    raise OSError(f"{self._path}: another process holds it") from None
                time.sleep(_LOOK_S)
            except OSError:  # a file system without locks: nobody can sweep there, either
                return

    def note(self, short: str) -> None:
        """Name the directory of the attempt's socket, so that it goes with the work directory.

        Raises:
            OSError: the disk does not take it.
        """
        text = os.fsencode("\n".join((short, *here())))
        os.pwrite(self._fd, text, 0)  # over what is there: at no time is it empty
        os.ftruncate(self._fd, len(text))

    def release(self) -> None:
        """Give the directory up; what is left in it now stays."""
        self._path.unlink(missing_ok=True)
        self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


@cache
def here() -> tuple[str, str]:
    """This machine's name, and what names its kernel since that started ("" where nothing does)."""
    boot = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return socket.gethostname(), boot


def _may_judge(host: str, boot: str) -> bool:
    """True where a lock of that machine shows here: it is this kernel's, or this machine's."""
    own_host, own_boot = here()
    return host == own_host or (boot != "" and boot == own_boot)


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
        short, *of = os.fsdecode(os.pread(fd, _LONGEST_BYTES, 0)).split("\n")
        is_ours = _may_judge(*of) if len(of) == 2 else bool(short)  # an older worker tells no more
        if not is_ours or not _is_at(fd, lock):
            return False
        _remove_short(Path(short))
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
