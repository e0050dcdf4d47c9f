"""Start a process of hpq: open its streams, hide its secrets from /proc.

/proc/PID/environ shows a process's first environment to root and to the same user, thus also to
training code, until the process ends. `overwrite` blanks the secrets in place.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import stat
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from hpq.redis import credentials


def open_streams() -> None:
    """Open /dev/null as each standard stream that is closed, as some daemons start programs.

    Otherwise the next file or socket gets its number, and what a child prints goes there. A stream
    that is open for the other direction counts as closed.
    """
    streams = (
        ("stdin", "r", os.O_RDONLY),
        ("stdout", "w", os.O_WRONLY),
        ("stderr", "w", os.O_WRONLY),
    )
    for number, (name, mode, direction) in enumerate(streams):
        if not _is_open(number, direction):
            null = os.open(os.devnull, os.O_RDWR)  # most often it gets the number itself
            os.dup2(null, number)
            if null != number:
                os.close(null)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115


def _is_open(number: int, direction: int) -> bool:
    try:
        return fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE in (direction, os.O_RDWR)
    except OSError:
        return False


def ours(environ: Mapping[str, str]) -> frozenset[str]:
    """Return hpq's variables that hold a secret; HPQ_STORE if its URL carries one."""
    store = {"HPQ_STORE"} if credentials.carried(environ.get("HPQ_STORE", "")) else set()
    return credentials.SECRETS | store


def overwrite(names: Collection[str] | None = None) -> None:
    """Blank these variables (`ours`) where /proc shows them (Linux); `os.environ` keeps them."""
    if sys.platform != "linux":
        return
    wanted = {os.fsencode(name) for name in (ours(os.environ) if names is None else names)}
    entries = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
    i = 0
    while (at := entries[i]) is not None:
        text = ctypes.string_at(at)
        if text.partition(b"=")[0] in wanted:
            ctypes.memset(at, 0, len(text))
        i += 1


def make_private(folder: Path) -> None:
    """Create a directory under HPQ_HOME that only its owner can read, and the parents it lacks.

    An existing directory stays as it is, even if others can enter it (`why_not_private`).

    Raises:
        OSError: a directory cannot be created.
    """
    if folder != folder.parent and not folder.is_dir():
        make_private(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)


def why_not_private(folder: Path) -> str:
    """Return why a directory is not one that only this user can enter; "" if it is.

    It is created if it is missing. In /tmp, another user may have created it before.
    """
    with suppress(OSError):  # the look below finds why
        folder.mkdir(mode=0o700)
    try:
        found = folder.lstat()
    except OSError as error:
        return error.strerror or "cannot be read"
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a directory"
    if found.st_uid != os.geteuid():
        return f"it belongs to user {found.st_uid}"
    mode = stat.S_IMODE(found.st_mode)
    return f"other users may enter it (mode {mode:o})" if mode & 0o077 else ""


def private_file(path: str, flags: int) -> int:
    """Open a file under HPQ_HOME (an `opener`): only its owner can read it."""
    return os.open(path, flags, 0o600)


def replace_private(path: Path, data: bytes) -> None:
    """Write a file under HPQ_HOME that only its owner can read: whole, or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    make_private(path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(draft, "wb", opener=private_file) as file:
        file.write(data)
    draft.replace(path)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, if its file system can do that."""
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
