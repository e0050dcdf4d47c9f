"""Directories and files under HPQ_HOME that only their owner can read."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path


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


def replace_private(path: Path, data: bytes | memoryview) -> None:
    """Write a file under HPQ_HOME that only its owner can read: whole, or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    make_private(path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(draft, "wb", opener=private_file) as file:
            file.write(data)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def create_secret(path: Path) -> None:
    """Create a file of 64 random digits that only its owner can read, unless the file exists.

    Raises:
        OSError: the file cannot be written.
    """
    if path.exists():
        return
    make_private(path.parent)
    # Written whole under another name first: a reader never sees half a secret.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "w") as file:
            file.write(secrets.token_hex(32))
        with suppress(FileExistsError):  # another process was first
            os.link(draft, path)
    finally:
        draft.unlink()


def is_exposed(fd: int) -> bool:
    """Return whether an open file is a regular one that other users can read."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISREG(mode) and bool(mode & 0o077)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, if its file system can do that."""
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
