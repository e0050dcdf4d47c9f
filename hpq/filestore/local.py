"""A file store in a directory, and the choice between a directory and a URL."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from hpq.filestore.base import (
    ID_FILE,
    Files,
    UnreadableFile,
    checked_name,
    is_safe_name,
    new_id,
    store_id_in,
)
from hpq.settings import Settings


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
    from hpq.filestore.remote import RemoteFiles  # noqa: PLC0415

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
