"""File stores: in a directory, or behind a URL (s3://, gs://, …); and the choice between them.

fsspec, which opens URLs, is imported on first use.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, cast

from hpq.errors import SettingsError
from hpq.extras import install_command
from hpq.filestore.base import (
    ID_FILE,
    Files,
    UnreadableFile,
    checked_name,
    is_safe_name,
    new_id,
    store_id_in,
)
from hpq.redis import credentials
from hpq.settings import Settings

LOW_BYTES = 2**30  # a checkpoint of a large model needs more


def location(settings: Settings) -> str:
    """Return the store that commands use: HPQ_STORE, else the store of `hpq run`."""
    return settings.store or str(settings.home / "store")


def open_files(place: str, *, creates: bool = True) -> Files:
    """Open the store at a path or a URL; `creates`: make it if it is new, and give it an id.

    Raises:
        OSError: the store cannot be reached or written.
        SettingsError: the URL needs fsspec, or a package of it, which is not installed.
    """
    path = place.removeprefix("file://").removeprefix("local://")  # fsspec would follow links
    if "://" not in path:
        return _Directory(Path(path).expanduser(), creates)
    return RemoteFiles(place, creates)


_OWN_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe would block
_OWN_FOLDER = os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_REMOVED = (errno.ENOENT, errno.ESTALE)  # what a call below a removed folder fails with


class _Directory:
    """A directory, local or shared by all machines.

    No name leads out of it, although other users may write there: each folder is opened from the
    one above, and no link is followed. The directory itself may be a link.
    """

    def __init__(self, root: Path, creates: bool) -> None:
        self._root = root
        path = root / ID_FILE
        if creates and not path.exists():
            root.mkdir(parents=True, exist_ok=True)
            draft = root / f"{ID_FILE}.{secrets.token_hex(4)}"
            draft.write_text(new_id() + "\n", "ascii")
            with suppress(FileExistsError):  # another process created it meanwhile
                os.link(draft, path)
            draft.unlink()
        with self.read(ID_FILE) as file:
            self.id = store_id_in(file.read(100), str(path))

    def write(self, name: str) -> IO[bytes]:
        with self._opened(name) as root:
            return os.fdopen(_create(name, root), "wb")

    def read(self, name: str) -> IO[bytes]:
        folder, _, base = name.rpartition("/")
        with self._opened(name, folder) as here:
            file = os.open(base, _OWN_FILE, dir_fd=here)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise UnreadableFile(f"{name} is not a regular file")
        return os.fdopen(file, "rb")

    def folders(self, folder: str) -> list[str]:
        found: list[str] = []
        with (
            suppress(FileNotFoundError),
            self._opened(folder, folder) as here,
            os.scandir(here) as all_,
        ):
            found = [entry.name for entry in all_ if entry.is_dir(follow_symlinks=False)]
        return sorted(name for name in found if is_safe_name(f"{folder}/{name}"))

    def names(self, folder: str) -> list[str]:
        found: list[str] = []
        with suppress(FileNotFoundError), self._opened(folder, folder) as top:
            for below, folders, names, here in os.fwalk(".", dir_fd=top):
                start = f"{below}/"[2:]
                folders[:] = [name for name in folders if is_safe_name(f"{folder}/{start}{name}")]
                safe = (name for name in names if is_safe_name(f"{folder}/{start}{name}"))
                found += (f"{start}{name}" for name in safe if _is_file(name, here))
        return sorted(found)

    def remove(self, folder: str) -> None:
        with self._opened(folder) as root:
            _remove(folder, root)

    @contextmanager
    def _opened(self, name: str, folder: str = "") -> Iterator[int]:
        """Open a folder of the store, "" for its root; errors of the block name `name`.

        Raises:
            OSError: the name is not safe; the folder cannot be opened, or a link leads to it.
        """
        checked_name(name)
        here = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for part in filter(None, folder.split("/")):
                above = here
                here = _open_folder(part, above)
                os.close(above)
            yield here
        except UnreadableFile as error:
            raise UnreadableFile(f"{self._root / name}: {error}") from None
        except OSError as error:
            error.filename = str(self._root / name)  # not what it is called in its folder
            raise
        finally:
            os.close(here)


def _open_folder(name: str, above: int) -> int:
    """Open a folder in an open one.

    Raises:
        UnreadableFile: it is a link, or a file.
        OSError: it cannot be opened.
    """
    try:
        return os.open(name, _OWN_FOLDER, dir_fd=above)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        text = f"{name!r} is a link or a file in place of a folder; links in a store are ignored"
        raise UnreadableFile(text) from None


def _create(name: str, above: int) -> int:
    """Create a file below an open folder, and the folders that lead to it.

    Another process may remove these folders while they are empty: each one that was removed before
    it got an entry is made again. A file or a link that has the name is replaced.
    """
    first, _, rest = name.partition("/")
    if not rest:
        with suppress(FileExistsError):
            return os.open(first, _NEW_FILE, 0o666, dir_fd=above)
        os.unlink(first, dir_fd=above)
        return os.open(first, _NEW_FILE, 0o666, dir_fd=above)
    while True:
        with suppress(FileExistsError):
            os.mkdir(first, dir_fd=above)
        try:
            here = _open_folder(first, above)
        except FileNotFoundError:
            continue
        try:
            return _create(rest, here)
        except OSError as error:
            if error.errno not in _REMOVED or _is_at(here, first, above):
                raise
        finally:
            os.close(here)


def _is_at(folder: int, name: str, above: int) -> bool:
    """Return True if an open folder has this name in the folder above."""
    with suppress(OSError):
        here = os.fstat(folder)
        there = os.stat(name, dir_fd=above, follow_symlinks=False)
        # The name of a folder that is being removed stays for a moment after its last link.
        return here.st_nlink > 0 and os.path.samestat(here, there)
    return False


def _remove(name: str, above: int) -> None:
    """Remove a folder below an open one, and the folders on the way that this leaves empty."""
    first, _, rest = name.partition("/")
    if not rest:
        return _remove_tree(first, above)
    with suppress(FileNotFoundError):
        here = _open_folder(first, above)
        try:
            _remove(rest, here)
        finally:
            os.close(here)
    with suppress(OSError):  # it is not empty
        os.rmdir(first, dir_fd=above)


def _remove_tree(name: str, above: int) -> None:
    """Remove a folder of an open one with all its files; of a link, the link alone."""
    while (found := _stat(name, above)) is not None:
        with suppress(FileNotFoundError):  # another process removes it, too
            if not stat.S_ISDIR(found.st_mode):
                os.unlink(name, dir_fd=above)
                continue
            try:
                shutil.rmtree(name, dir_fd=above)
            except RecursionError:
                raise OSError(errno.ELOOP, "too many folders in each other", name) from None


def _is_file(name: str, above: int) -> bool:
    with suppress(OSError):  # removed since it was listed, or another user's
        return stat.S_ISREG(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)
    return False


def _stat(name: str, above: int) -> os.stat_result | None:
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=above, follow_symlinks=False)
    return None


def regular(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the regular files below a local folder with their stat; links are not followed."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            with suppress(OSError):  # removed since it was listed
                stat = os.lstat(path)
                if os.path.isfile(path) and not os.path.islink(path):
                    yield os.path.relpath(path, root), stat


def free_bytes(folder: Path) -> int:
    """Return the space that this user may still write to the disk of a folder.

    Raises:
        OSError: there is no such folder.
    """
    disk = os.statvfs(folder)
    return (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail) * disk.f_frsize


def low_disk(folder: Path) -> str:
    """Return a folder and the space left if its disk has less than 1 GiB, else ""."""
    with suppress(OSError):
        if (free := free_bytes(folder)) < LOW_BYTES:
            return f"{folder} has {free / 2**20:,.0f} MiB of free space"
    return ""


# The types that callers distinguish, the narrower first.
_KINDS = (FileNotFoundError, FileExistsError, PermissionError, OSError)
_MOST_RACES = 100  # with a process that removes a folder while it is empty


class RemoteFiles:
    """A store that fsspec opens; errors of its libraries become OSError."""

    def __init__(self, url: str, creates: bool) -> None:
        self._secrets = credentials.carried(url)
        where = f"HPQ_STORE: {credentials.redact(url)}"
        try:
            connect = import_module("fsspec.core").url_to_fs
            self._fs, root = self.attempt(connect, url, passing=(ImportError, ValueError))
        except ModuleNotFoundError:
            text = f"{where} needs fsspec; run: {install_command('fsspec')}, or name a directory"
            raise SettingsError(text, code="extra-missing") from None
        except ImportError as error:
            raise SettingsError(f"{where}: {self._hide(error)}", code="store-unusable") from None
        except ValueError as error:
            why = self._hide(error)
            text = f"{where}: {why}; name a directory or a URL"
            raise SettingsError(text, code="store-unusable") from None
        self._root: str = root.rstrip("/")
        path = f"{self._root}/{ID_FILE}"
        if creates and not self.attempt(self._fs.exists, path):
            self.attempt(self._fs.makedirs, self._root, exist_ok=True)
            with suppress(FileExistsError):
                self.attempt(self._fs.pipe_file, path, new_id().encode(), mode="create")
        # Read back: of two processes that write an id at once, both use the id that stayed.
        self.id = store_id_in(self.attempt(self._fs.cat_file, path), self._hide(path))

    def attempt(
        self,
        call: Callable[..., Any],
        *args: Any,
        passing: tuple[type[Exception], ...] = (),
        **more: Any,
    ) -> Any:
        """Call fsspec; raise OSError for any error that is not of the types `passing`.

        If the URL carries a secret, only the text of the error is kept, without the secret, since a
        traceback shows the errors that caused an error.
        """
        try:
            return call(*args, **more)
        except passing:
            raise
        except OSError as error:
            if not self._secrets:
                raise
            kind = next(kind for kind in _KINDS if isinstance(error, kind))
            raise kind(self._hide(error)) from None
        except Exception as error:  # botocore's, gcsfs's, … have no common base
            text = self._hide(f"{type(error).__name__}: {error}")
            raise OSError(text) from (None if self._secrets else error)

    def _hide(self, text: object) -> str:
        return credentials.hide(str(text), self._secrets)

    def _full(self, name: str) -> str:
        return f"{self._root}/{checked_name(name)}"

    def write(self, name: str) -> IO[bytes]:
        for _ in range(_MOST_RACES):
            with suppress(FileNotFoundError):
                return self._write(name)
        return self._write(name)

    def _write(self, name: str) -> IO[bytes]:
        path = self._full(name)
        self.attempt(self._fs.makedirs, path.rpartition("/")[0], exist_ok=True)
        return cast(IO[bytes], _Wrapped(self, self.attempt(self._fs.open, path, "wb")))

    def read(self, name: str) -> IO[bytes]:
        return cast(IO[bytes], _Wrapped(self, self.attempt(self._fs.open, self._full(name), "rb")))

    def folders(self, folder: str) -> list[str]:
        root, found = self._full(folder), []
        self.attempt(self._fs.invalidate_cache)
        with suppress(FileNotFoundError):
            found = self.attempt(self._fs.ls, root, detail=True)
        paths = (entry["name"] for entry in found if entry["type"] == "directory")
        names = (path.rstrip("/").rpartition("/")[2] for path in paths)
        return sorted(name for name in names if is_safe_name(f"{folder}/{name}"))

    def names(self, folder: str) -> list[str]:
        root = self._full(folder)
        self.attempt(self._fs.invalidate_cache)
        found = self.attempt(self._fs.find, root) if self.attempt(self._fs.exists, root) else []
        start = len(self._fs._strip_protocol(root).rstrip("/")) + 1
        names = (self._fs._strip_protocol(path)[start:] for path in found)
        return sorted(name for name in names if is_safe_name(f"{folder}/{name}"))

    def remove(self, folder: str) -> None:
        with suppress(FileNotFoundError):
            self.attempt(self._fs.rm, self._full(folder), recursive=True)
        self.attempt(self._fs.invalidate_cache)
        with suppress(OSError):  # object stores have no empty folders
            # Up to the first that is not empty: rmdir of hdfs:// would remove its files, too.
            while (folder := folder.rpartition("/")[0]) and not self._has_entries(folder):
                self.attempt(self._fs.rmdir, self._full(folder))

    def _has_entries(self, folder: str) -> bool:
        return bool(self.attempt(self._fs.ls, self._full(folder), detail=False))


class _Wrapped:
    """An fsspec file whose errors are OSError."""

    def __init__(self, remote: RemoteFiles, file: Any) -> None:
        self._remote, self._file = remote, file

    def __enter__(self) -> _Wrapped:
        return self

    def __exit__(self, *_: object) -> None:
        self._remote.attempt(self._file.close)

    def read(self, size: int) -> bytes:
        return bytes(self._remote.attempt(self._file.read, size))

    def write(self, data: bytes) -> None:
        self._remote.attempt(self._file.write, data)
