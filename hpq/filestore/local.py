"""HPQ_STORE: where checkpoints and artifacts lie, a directory or any URL that fsspec knows.

Workers write and read there, `hpq get` reads, `hpq rm` removes. A store has an id of its own in
`.hpq-store`; what Redis holds of it is relative and carries that id, so that files of one store are
never looked for in another. Layout: PREFIX/SWEEP/NUMBER/ATTEMPT-XXXXXX/checkpoint-N/… and
…/artifacts/…, where XXXXXX is of the claim's nonce.

Everything that goes wrong is an OSError; names are checked before they touch anything.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol, TypeVar

from hpq.domain.trial import TrialId
from hpq.settings import Settings

ID_FILE = ".hpq-store"
_ID = re.compile(r"[a-z0-9]{4,64}\Z")
_CHUNK_BYTES = 1 << 20
_TOKEN = re.compile(r"(\d{1,9})(-[a-z0-9]+)?\Z")  # older workers name it by its attempt alone
GoOn = Callable[[], bool]
T = TypeVar("T")


class Gone(FileNotFoundError):
    """Raised where a store does not have a file."""


class Unreadable(OSError):
    """Raised where a file of a store cannot be read, although it is there."""


class Readable(Protocol):
    """A place from which files come under relative names such as `a/b/c`."""

    def read(self, name: str) -> IO[bytes]:
        """Open a file for reading."""


class Files(Readable, Protocol):
    """A place for files, under such names."""

    id: str

    def write(self, name: str) -> IO[bytes]:
        """Open a file for writing, its folders made."""

    def names(self, folder: str) -> list[str]:
        """All files below a folder, relative to it; none where it is not there."""

    def remove(self, folder: str) -> None:
        """Remove a folder with all in it; one that is not there is fine."""


def is_inert(name: str) -> bool:
    """True for a relative name that stays where it is joined to, and that a terminal can show."""
    parts = name.split("/")
    return (
        len(name.encode("utf-8", "replace")) <= 512
        and name.isprintable()
        and "\\" not in name
        and all(part not in ("", ".", "..") for part in parts)
    )


def folder_of(prefix: str, trial: TrialId, token: str = "") -> str:
    """Where the files of a trial lie, or of one claim of it."""
    folder = f"{prefix}/{trial.sweep}/{trial.number}"
    return f"{folder}/{token}" if token else folder


def attempt_of(token: str) -> int | None:
    """The attempt that the name of a claim's folder tells; None where it is no such name."""
    match = _TOKEN.match(token)
    return int(match[1]) if match else None


def location(settings: Settings) -> str:
    """The store that a command looks into: HPQ_STORE, else the one that `hpq run` keeps."""
    return settings.store or str(settings.home / "store")


def open_files(place: str) -> Files:
    """The store at a path or a URL, made with an id where it is new.

    Raises:
        OSError: it cannot be reached or written.
        SettingsError: it is a URL and fsspec, or what it needs, is not installed.
    """
    if "://" not in place:
        return _Directory(Path(place).expanduser())
    from hpq.filestore.remote import RemoteFiles  # noqa: PLC0415

    return RemoteFiles(place)


def copy_in(folder: Path, names: list[str], files: Files, to: str, go_on: GoOn) -> bool:
    """Copy files of a local folder into the store; False where `go_on` ended it, nothing is left.

    Raises:
        OSError: a file could not be read or written; nothing is left in the store.
    """
    if not answers(files):  # a directory where it was mounted is not the store
        raise OSError(f"store {files.id} is away: {ID_FILE} is not where it was")
    try:
        for name in names:
            with (folder / name).open("rb") as source, files.write(f"{to}/{name}") as target:
                if not _pour(source, target, go_on):
                    break
        else:
            return True
    except BaseException:
        with suppress(OSError):
            files.remove(to)
        raise
    files.remove(to)
    return False


def copy_out(files: Readable, name: str, path: Path, go_on: GoOn = lambda: True) -> bool:
    """Copy one file of the store to a path, whole or not at all; False where `go_on` ended it.

    Raises:
        Gone: it is not there (a FileNotFoundError).
        Unreadable: it is there.
        OSError: the path cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with _Source(files, name) as source, draft.open("wb") as target:
            if not _pour(source, target, go_on):
                return False
        draft.replace(path)
        return True
    finally:
        draft.unlink(missing_ok=True)


class _Source:
    """A file of a store, whose errors are told from those of the disk that it goes to."""

    def __init__(self, files: Readable, name: str) -> None:
        self._files, self._name = files, name

    def __enter__(self) -> _Source:
        self._file = self._told(lambda: self._files.read(self._name))
        return self

    def __exit__(self, *_: object) -> None:
        self._file.__exit__(None, None, None)

    def read(self, size: int) -> bytes:
        return self._told(lambda: self._file.read(size))

    def _told(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except FileNotFoundError as error:
            raise Gone(str(error)) from error
        except OSError as error:
            raise Unreadable(str(error)) from error


def answers(files: Files) -> bool:
    """True where the store is there now, under the id that it had."""
    try:
        with files.read(ID_FILE) as file:
            return id_in(file.read(100), ID_FILE) == files.id
    except OSError:
        return False


def _pour(source: IO[bytes] | _Source, target: IO[bytes], go_on: GoOn) -> bool:
    while data := source.read(_CHUNK_BYTES):
        if not go_on():
            return False
        target.write(data)
    if hasattr(target, "fileno"):  # a pointer must not outlive what it points to
        target.flush()
        os.fsync(target.fileno())
    return True


def checked(name: str) -> str:
    """The name, if it is inert (OSError where it is not)."""
    if not is_inert(name):
        raise OSError(f"{name[:80]!r} is no name in a store")
    return name


def new_id() -> str:
    """An id for a store."""
    return secrets.token_hex(6)


def id_in(data: bytes, where: str) -> str:
    """The id that the file of a store holds (OSError where it holds none)."""
    text = data.decode("ascii", "replace").strip()
    if not _ID.match(text):
        raise OSError(f"{where}: not the id of a store; remove the file if the store is new")
    return text


class _Directory:
    """A directory of this machine, or one that all machines see."""

    def __init__(self, root: Path) -> None:
        self._root = root
        path = root / ID_FILE
        if not path.exists():
            root.mkdir(parents=True, exist_ok=True)
            draft = root / f"{ID_FILE}.{secrets.token_hex(4)}"
            draft.write_text(new_id() + "\n", "ascii")
            with suppress(FileExistsError):  # somebody made it in the same moment
                os.link(draft, path)
            draft.unlink()
        self.id = id_in(path.read_bytes(), str(path))

    def write(self, name: str) -> IO[bytes]:
        path = self._root / checked(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("wb")

    def read(self, name: str) -> IO[bytes]:
        return (self._root / checked(name)).open("rb")

    def names(self, folder: str) -> list[str]:
        root = self._root / checked(folder)
        return sorted(name for name, _ in regular(root))

    def remove(self, folder: str) -> None:
        path = self._root / checked(folder)
        while path.exists():
            with suppress(FileNotFoundError):  # somebody else removes it, too
                shutil.rmtree(path)


def regular(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The regular files below a local folder with what stat says; links are not followed."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            with suppress(OSError):  # gone since the look
                stat = os.lstat(path)
                if os.path.isfile(path) and not os.path.islink(path):
                    yield os.path.relpath(path, root), stat
