"""The file store (HPQ_STORE) of checkpoints and artifacts: a directory, or a URL for fsspec.

Workers write and read it, `hpq get` reads, `hpq rm` removes. A file store has an id, in its file
`.hpq-store`. Pointers in Redis are relative and carry that id, so that no process looks for files
in another store. Layout: PREFIX/SWEEP/NUMBER/ATTEMPT-XXXXXX/checkpoint-N/… and …/artifacts/…, where
XXXXXX is taken from the claim's nonce; …/artifacts-late/… if the store did not take them at once.

Every failure is an OSError. Names are checked before any file is touched.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import IO, Protocol

from hpq.domain.trial import Artifacts, Checkpoint, TrialId

ID_FILE = ".hpq-store"
LATE_ARTIFACTS = "artifacts-late"
_ID = re.compile(r"[a-z0-9]{4,64}\Z")
_CHUNK_BYTES = 1 << 20
_TOKEN = r"([0-9]{1,9})(-[a-z0-9]+)?"  # ATTEMPT, or ATTEMPT-XXXXXX
GoOn = Callable[[], bool]


class Gone(FileNotFoundError):
    """Raised if a store does not have a file."""


class UnreadableFile(OSError):
    """Raised if a file of a store exists but cannot be read."""


class Readable(Protocol):
    """A source of files with relative names such as `a/b/c`."""

    def read(self, name: str) -> IO[bytes]:
        """Open a file for reading."""


class Files(Readable, Protocol):
    """A file store."""

    id: str

    def write(self, name: str) -> IO[bytes]:
        """Open a new file for writing; make its folders, which others may remove while empty."""

    def folders(self, folder: str) -> list[str]:
        """List the safe names of the folders in a folder; a missing folder has none."""

    def names(self, folder: str) -> list[str]:
        """List the files with safe names below a folder, relative to it; a missing one has none."""

    def remove(self, folder: str) -> None:
        """Remove a folder and its files, and the folders that this leaves empty above it.

        A missing folder is no error.
        """


def is_safe_name(name: str) -> bool:
    """Return True for a printable relative name that cannot leave the folder it is joined to."""
    parts = name.split("/")
    return (
        len(name.encode("utf-8", "replace")) <= 512
        and name.isprintable()
        and "\\" not in name
        and all(part not in ("", ".", "..") for part in parts)
    )


def folder_of(prefix: str, trial: TrialId, token: str = "") -> str:
    """Return the folder of a trial's files, or of one claim of it."""
    folder = f"{prefix}/{trial.sweep}/{trial.number}"
    return f"{folder}/{token}" if token else folder


def attempt_of(token: str) -> int | None:
    """Return the attempt in the name of a claim's folder; None for any other name."""
    match = re.fullmatch(_TOKEN, token)
    return int(match[1]) if match else None


def is_own(pointer: Checkpoint | Artifacts, prefix: str, trial: TrialId) -> bool:
    """Return True if a pointer names a folder that attempts of the trial write.

    Any client of Redis can write a pointer. What follows it reads a folder that another trial, or
    training code, has filled unless this returns True.
    """
    what = "checkpoint-[0-9]{1,9}" if isinstance(pointer, Checkpoint) else "artifacts(-late)?"
    own = f"{re.escape(folder_of(prefix, trial))}/{_TOKEN}/{what}"
    return re.fullmatch(own, pointer.path) is not None


def copy_in(folder: Path, names: list[str], files: Files, to: str, go_on: GoOn) -> bool:
    """Copy files of a local folder into the store: all of them, or none.

    Returns:
        False if `go_on` returned False during the copy.

    Raises:
        OSError: a file could not be read or written.
    """
    if not is_reachable(files):  # an empty mount point is not the store
        raise OSError(f"store {files.id} is away: its file {ID_FILE} is missing")
    try:
        for name in names:
            with (folder / name).open("rb") as source, files.write(f"{to}/{name}") as target:
                pieces = iter(partial(source.read, _CHUNK_BYTES), b"")
                if not (_copy_range(source, target, go_on) and _pour(pieces, target, go_on)):
                    break
        else:
            return True
    except BaseException:
        with suppress(OSError):
            files.remove(to)
        raise
    files.remove(to)
    return False


def _copy_range(source: IO[bytes], target: IO[bytes], go_on: GoOn) -> bool:
    """Copy in the kernel what it can copy; the caller copies the rest."""
    # Not on macOS, not into a URL, and between two file systems only if the kernel knows how.
    with suppress(AttributeError, OSError):
        while os.copy_file_range(source.fileno(), target.fileno(), _CHUNK_BYTES):
            if not go_on():
                return False
    return True


def copy_out(files: Readable, name: str, path: Path, go_on: GoOn = lambda: True) -> bool:
    """Copy one file of the store to a path, whole or not at all.

    Returns:
        False if `go_on` returned False during the copy.

    Raises:
        Gone: the store does not have the file (a FileNotFoundError).
        UnreadableFile: the file exists and cannot be read.
        OSError: the path cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with closing(_pieces(files, name)) as source, draft.open("xb") as target:
            if not _pour(source, target, go_on):
                return False
        draft.replace(path)
        return True
    finally:
        draft.unlink(missing_ok=True)


def _pieces(files: Readable, name: str) -> Generator[bytes]:
    """Yield a file of a store; its errors differ in type from those of the disk it is copied to."""
    try:
        with files.read(name) as source:
            while data := source.read(_CHUNK_BYTES):
                yield data
    except FileNotFoundError as error:
        raise Gone(str(error)) from error
    except OSError as error:
        raise UnreadableFile(str(error)) from error


def is_reachable(files: Files) -> bool:
    """Return True if the store can be read now and still has its id."""
    try:
        with files.read(ID_FILE) as file:
            return store_id_in(file.read(100), ID_FILE) == files.id
    except OSError:
        return False


def _pour(source: Iterable[bytes], target: IO[bytes], go_on: GoOn) -> bool:
    for data in source:
        if not go_on():
            return False
        target.write(data)
    if hasattr(target, "fileno"):  # no pointer may be published before its file is on disk
        target.flush()
        os.fsync(target.fileno())
    return True


def checked_name(name: str) -> str:
    """Return the name.

    Raises:
        OSError: the name is not safe (`is_safe_name`).
    """
    if not is_safe_name(name):
        raise OSError(f"{name[:80]!r} is not a valid name in a store")
    return name


def new_id() -> str:
    """Generate an id for a store."""
    return secrets.token_hex(6)


def store_id_in(data: bytes, where: str) -> str:
    """Parse the id file of a store.

    Raises:
        OSError: the data is not an id.
    """
    text = data.decode("ascii", "replace").strip()
    if not _ID.match(text):
        raise OSError(f"{where}: not the id of a store; remove the file if the store is new")
    return text
