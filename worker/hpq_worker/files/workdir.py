"""The work directory of an attempt, and the lock beside it that a killed owner loses.

HPQ_HOME/work/NAME (or HPQ_SCRATCH/work/NAME) belongs to the process that holds the lock on
NAME.lock. The lock file also names the directory of the attempt's socket, and the machine: a shared
file system may keep locks to each machine. A directory without a lock file holds results that the
log has named: no process removes it. On a file system without locks no process removes anything.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import shutil
import socket
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import hpq
from hpq.domain.trial import Claim, TrialId
from hpq.errors import SettingsError
from hpq.filestore.stores import free_bytes
from hpq.private_files import make_private, why_not_private

_HPQ = Path(hpq.__file__).parent
# Of a copy of code, or of an attempt: its sweep, its number, its token.
_LOCK = re.compile(
    r"(?:code-[0-9a-f]+\.\d+\.[0-9a-f]+|([a-z0-9-]+)\.(\d+)\.(\d+-[a-z0-9]+))\.lock\Z"
)
_LONGEST_BYTES = 4_096 + 512  # of the path in it and the machine
_PATIENCE_S, _LOOK_S = 5.0, 0.05
SOCKET = "report"
_LEAST_BYTES = 16_384  # a disk with less free space is full
_COUNT_S = 3.0  # to count the files of a volume


def check_scratch(folder: Path | None) -> None:
    """Refuse an HPQ_SCRATCH that other users can enter: they could exchange the code in it.

    Raises:
        SettingsError: it is another user's, or cannot be used.
    """
    if folder is not None and (why := why_not_private(folder)):
        text = f"HPQ_SCRATCH: {folder}: {why}; remove it, or name another directory"
        raise SettingsError(text, code="home-unusable")


class DirectoryLock:
    """The lock on a work directory; creating one waits a few seconds for another holder.

    Raises, when created: OSError if the file cannot be written, or another process holds the lock.
    """

    def __init__(self, work: Path) -> None:
        self._work, self._path = work, _lock_path(work)
        self._fd = -1
        until = time.monotonic() + _PATIENCE_S
        try:
            while not _is_same_file(self._fd, self._path):  # a removed lock file protects nothing
                self._close()
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                self._lock(until)
        except OSError:
            self._close()
            raise
        try:
            self.record_socket_dir("")
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
                    raise OSError(f"{self._path}: another process holds the lock") from None
                time.sleep(_LOOK_S)
            except OSError:  # a file system without locks: no process removes directories there
                return

    def record_socket_dir(self, socket_dir: str) -> None:
        """Write the directory of the attempt's socket into the lock file, for `remove_abandoned`.

        Raises:
            OSError: the file cannot be written.
        """
        text = os.fsencode("\n".join((socket_dir, *machine())))
        os.pwrite(self._fd, text, 0)  # overwrites in place: the file is at no time empty
        os.ftruncate(self._fd, len(text))

    def clear(self) -> None:
        """Remove the directory, if it can be removed."""
        _remove_folder(self._work)

    def remove(self) -> None:
        """Remove the directory and release it; never fails.

        What cannot be removed yet, a living worker removes later.
        """
        self.clear()
        if os.path.lexists(self._work):
            self._close()
        else:
            with suppress(OSError):
                self.release()

    def release(self) -> None:
        """Release the directory; files that are left in it stay."""
        self._path.unlink(missing_ok=True)
        self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPaths:
    """The directories of one attempt. The socket's path is short: the kernel allows 108 bytes."""

    work: Path
    out: Path
    checkpoint: Path
    params: Path
    python_path: Path
    socket: str  # "" if `make` is false
    lock: DirectoryLock

    @classmethod
    def create(
        cls, home: Path, claim: Claim, checkpoint: Path | None = None, *, make: bool = True
    ) -> AttemptPaths:
        """Lock the directories and create them empty; `checkpoint` is an existing one, which stays.

        Without `make` only the lock exists: the trial of a trainer makes what it uses. On ext4,
        removing one directory takes longer than all else that hpq does for a short trial.

        Raises:
            OSError: the disk cannot take them, or another process holds the lock.
        """
        work, socket_dir = work_folder(home, claim), ""
        make_private(work.parent)
        lock = DirectoryLock(work)
        try:
            lock.clear()
            if make:
                make_private(work / "out")
                (work / "checkpoint").mkdir()
                (work / "path").mkdir()
                # The package alone: its site-packages would shadow those of the program's Python.
                (work / "path" / "hpq").symlink_to(_HPQ)
                (work / "params.json").write_text(json.dumps(dict(claim.params)), "utf-8")
                socket_dir = tempfile.mkdtemp(prefix="hpq-")
                lock.record_socket_dir(socket_dir)
        except OSError:
            _remove_socket_dir(Path(socket_dir))
            lock.remove()
            raise
        return cls(
            work=work,
            out=work / "out",
            checkpoint=checkpoint or work / "checkpoint",
            params=work / "params.json",
            python_path=work / "path",
            socket=socket_dir and f"{socket_dir}/{SOCKET}",
            lock=lock,
        )

    def removed(self, *others: Path) -> str:
        """Return a path of the attempt, or of `others`, that is gone; "" if none is."""
        own = [_lock_path(self.work)]
        if self.socket:
            own += [self.work, self.python_path, Path(self.socket).parent]
        return next((str(path) for path in (*own, *others) if not path.exists()), "")

    def remove(self, *, keep_out: bool) -> None:
        """Remove the directories, except (`keep_out`) files left in HPQ_OUT; never fails."""
        if self.socket:
            shutil.rmtree(os.path.dirname(self.socket), ignore_errors=True)
        with suppress(OSError):
            if not (keep_out and self.out.exists() and any(self.out.iterdir())):
                self.lock.remove()
                return
            for name in ("checkpoint", "frozen", "path", "ranks"):
                _remove_folder(self.work / name)
            self.lock.release()


def work_folder(home: Path, claim: Claim) -> Path:
    """Return the work directory of an attempt."""
    # One flat name: workers of a machine share the folder, and none removes another's parent.
    return home / "work" / f"{claim.trial.sweep}.{claim.trial.number}.{claim.token}"


@cache
def machine() -> tuple[str, str]:
    """Return the host name, and the id of this boot of its kernel ("" if the system has none)."""
    boot = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return socket.gethostname(), boot


def _sees_locks_of(host: str, boot: str) -> bool:
    """Return whether locks of that machine are visible here: same host, or same kernel."""
    own_host, own_boot = machine()
    return host == own_host or (boot != "" and boot == own_boot)


def full_disk(*folders: Path) -> str:
    """Return an error that names a folder whose disk is full; "" if none is."""
    for folder in folders:
        with suppress(OSError):
            if free_bytes(folder) < _LEAST_BYTES:
                return f"No space left on device: {folder}"
    return ""


def overfilled(home: Path, work: Path, most: int) -> str:
    """Return how full the volume of `home` is, if it holds more than `most` bytes; else "".

    "" as well if another attempt of the pod has more files than the one in `work`. 0: no limit is
    known. Counting ends after a few seconds: the pod's grace is short.
    """
    if not most:
        return ""
    volume = home.absolute()
    while not volume.is_mount():
        volume = volume.parent
    until = time.monotonic() + _COUNT_S
    if _used(volume, most, until) <= most:
        return ""
    own = _used(work, math.inf, until)
    for name in attempts_here(work.parent.parent):
        other = work.with_name(name.removesuffix(".lock"))
        if other != work and _used(other, own, until) > own:
            return ""
    return f"{volume} holds more than the {most / 2**30:.3g} GiB that a pod may have there"


def _used(folder: Path, enough: float, until: float) -> int:
    """Return the bytes that a directory holds on the disk: a lower bound if they are enough."""
    used, folders = 0, [folder]
    while folders and used <= enough and time.monotonic() < until:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    used += 512 * entry.stat(follow_symlinks=False).st_blocks
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
    return used


def attempts_here(home: Path) -> frozenset[str]:
    """Return the names of the locks of attempts on this machine, also of killed ones."""
    with suppress(OSError):
        found = map(_LOCK.match, os.listdir(home / "work"))
        return frozenset(lock[0] for lock in found if lock and lock[1])  # not of copies of code
    return frozenset()


def attempt_of(name: str) -> tuple[TrialId, str] | None:
    """Return the trial and the token of a work directory; None for a copy of code."""
    lock = _LOCK.match(f"{name}.lock")
    return (TrialId(sweep=lock[1], number=int(lock[2])), lock[3]) if lock and lock[1] else None


def remove_abandoned(home: Path) -> list[str]:
    """Remove the work directories whose owners are dead; return their names.

    A dying runner may still write: then the next call removes its directory, and returns it again.
    """
    folder, abandoned = home / "work", []
    with suppress(OSError):
        for entry in os.listdir(folder):
            if _LOCK.match(entry) and _remove_if_abandoned(folder / entry):
                abandoned.append(entry.removesuffix(".lock"))
    return abandoned


def _remove_if_abandoned(lock: Path) -> bool:
    try:
        fd = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # gone, or another user's
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        socket_dir, *of = os.fsdecode(os.pread(fd, _LONGEST_BYTES, 0)).split("\n")
        is_visible = len(of) == 2 and _sees_locks_of(*of)
        if not is_visible or not _is_same_file(fd, lock):
            return False
        _remove_socket_dir(Path(socket_dir))
        work = lock.with_name(lock.name.removesuffix(".lock"))
        _remove_folder(work)
        if not os.path.lexists(work):
            lock.unlink(missing_ok=True)
        return True
    except OSError:  # held, or a file system without locks
        return False
    finally:
        os.close(fd)


def _remove_folder(folder: Path) -> None:
    """Remove a directory, also if a program made directories in it read-only; never fails."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        if not os.path.lexists(folder):
            return
        if folder.is_symlink() or not folder.is_dir():
            folder.unlink()
            return
        folder.chmod(0o700)
        for place, folders, _ in os.walk(folder):
            for path in (Path(place, name) for name in folders):
                if not path.is_symlink():
                    path.chmod(0o700)
        shutil.rmtree(folder, ignore_errors=True)


def _remove_socket_dir(socket_dir: Path) -> None:
    """Remove the directory that a lock file names if it holds at most a socket."""
    if socket_dir.is_absolute() and socket_dir.name.startswith("hpq-"):
        with suppress(OSError):
            (socket_dir / SOCKET).unlink(missing_ok=True)
            socket_dir.rmdir()  # fails on a folder with other files


def _lock_path(work: Path) -> Path:
    return work.with_name(f"{work.name}.lock")


def _is_same_file(fd: int, path: Path) -> bool:
    if fd < 0:
        return False
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), os.stat(path))
    return False
