"""A file store in a directory, and the choice between a directory and a URL."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from hpq.filestore.base import (
    ID_FILE,
    Files,
    UnreadableFile,
    checked_name,
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
    if "://" not in place:
        return _Directory(Path(place).expanduser(), creates)
    from hpq.filestore.remote import RemoteFiles  # noqa: PLC0415

    return RemoteFiles(place, creates)


_OWN_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe would block
_OWN_FOLDER = os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


class _Directory:
    """A directory, local or shared by all machines."""

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
        self.id = store_id_in(path.read_bytes(), str(path))

    def write(self, name: str) -> IO[bytes]:
        path = self._root / checked_name(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("wb")

    def read(self, name: str) -> IO[bytes]:
        """Open a file; refuse links and devices, by which who can write here reads elsewhere."""
        *folders, base = checked_name(name).split("/")
        here = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for folder in folders:
                above, here = here, os.open(folder, _OWN_FOLDER, dir_fd=here)
                os.close(above)
            file = os.open(base, _OWN_FILE, dir_fd=here)
        finally:
            os.close(here)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise UnreadableFile(f"{name} is not a regular file")
        return os.fdopen(file, "rb")

    def folders(self, folder: str) -> list[str]:
        with suppress(FileNotFoundError), os.scandir(self._root / checked_name(folder)) as found:
            return sorted(entry.name for entry in found if entry.is_dir(follow_symlinks=False))
        return []

    def names(self, folder: str) -> list[str]:
        root = self._root / checked_name(folder)
        return sorted(name for name, _ in regular(root))

    def remove(self, folder: str) -> None:
        path = self._root / checked_name(folder)
        while path.exists():
            with suppress(FileNotFoundError):  # another process removes it, too
                shutil.rmtree(path)
        with suppress(OSError):  # up to the first that is not empty
            os.removedirs(path.parent)


def regular(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the regular files below a local folder with their stat; links are not followed."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            with suppress(OSError):  # removed since it was listed
                stat = os.lstat(path)
                if os.path.isfile(path) and not os.path.islink(path):
                    yield os.path.relpath(path, root), stat
