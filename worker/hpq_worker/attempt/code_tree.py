"""The directory in which one attempt runs the code of a sweep.

Each attempt gets a new copy from the verified files in the worker's memory. What an attempt writes
there, also into `__pycache__`, reaches no other attempt.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from hpq.code import bundle as packing
from hpq.code.editable import EditableInstalls
from hpq.code.snapshot import Files, changed, manifest
from hpq.domain.sweep import Launch
from hpq.private_files import make_private
from hpq_worker.files.workdir import DirectoryLock

_BYTECODE = "__pycache__"
_INSTALLED = ".hpq-editable"  # links to packages, at the top
_OWN = (_BYTECODE, _INSTALLED)


class CodeTree:
    """A copy of a snapshot's files; on the machine that enqueued, with links to the other files.

    There each directory of the copy has one link for each other entry of the user's directory, so
    that a program finds data beside its code and at the top of its repository.

    A *name* is the path of a file of the snapshot, relative to the root of the code: "src/t.py".
    """

    def __init__(self, path: Path, files: Files, launch: Launch, *, is_linked: bool) -> None:
        """Make the copy; the files keep the time packing.WRITTEN_S.

        Raises:
            OSError: the disk cannot take it, or another process holds the lock on `path`.
        """
        self.path = path
        self._files = files
        self.launch = launch
        self.is_linked = is_linked
        root = _normal(launch.root)
        code_dir = _normal(launch.code_dir) or root
        # A working directory above the root of the code is in the copy, too.
        self._base = os.path.commonpath([root, code_dir]) if root else ""
        self.top = self._copy_of(root)  # the root of the code
        self.code_dir = self._copy_of(code_dir)  # where the sweep's code is started
        make_private(path.parent)
        self._lock = DirectoryLock(path)
        try:
            self._lock.clear()
            path.mkdir(mode=0o700)
            os.makedirs(self.code_dir, exist_ok=True)
            packing.write(files, Path(self.top))
            if is_linked:
                self._link()
        except OSError:
            self.remove()
            raise

    def _copy_of(self, folder: str) -> str:
        """Return the directory of the copy for one of the user's."""
        below = os.path.relpath(folder, self._base) if self._base else ""
        return os.path.normpath(f"{self.path}/{below}")

    def _link(self) -> None:
        """Link the user's other entries into the directories that lead to code."""
        for folder in self._folders():
            here = self._copy_of(folder)
            for name, target in list(_others(folder, set(os.listdir(here)))):
                os.symlink(target, f"{here}/{name}")

    def _folders(self) -> set[str]:
        """Return the user's directories that hold code, and those above them up to the root."""
        root, found = self.launch.root.rstrip("/"), set[str]()
        holding = {os.path.dirname(f"{root}/{name}") for name in self._files}
        for folder in (self.launch.root, self.launch.code_dir, *holding):
            while folder not in found:
                found.add(folder)
                folder = os.path.dirname(folder) if folder.startswith(f"{root}/") else folder
        return found

    def word(self, word: str) -> str:
        """Return a word of the command; for a file of the snapshot, the path of its copy."""
        return self._mapped(word) if self._name(word) in self._files else word

    def python_path(self, value: str) -> list[str]:
        """Return the entries of PYTHONPATH, with paths in the user's code moved to this tree."""
        return [self._mapped(entry) for entry in value.split(os.pathsep) if entry]

    def installs(self, editable: EditableInstalls) -> list[str]:
        """Return the paths in this tree of editable installs from the code's directory."""
        paths = [self._mapped(p) for p in editable.paths if self._name(p) is not None]
        inside = {n: p for n, p in editable.packages.items() if self._name(p) is not None}
        folder = f"{self.path}/{_INSTALLED}"
        for name, path in inside.items():
            os.makedirs(folder, exist_ok=True)
            with suppress(FileExistsError):  # of a runner's start
                os.symlink(self._mapped(path), f"{folder}/{name}")
        return [*paths, folder] if inside else paths

    def _mapped(self, path: str) -> str:
        name = self._name(path)
        return path if name is None else os.path.normpath(f"{self.top}/{name}")

    def _name(self, path: str) -> str | None:
        """Return a path relative to the root of the code; None for a path outside it."""
        if "\0" in path:
            return None
        root = self.launch.root or "/code"  # code that was sent has no place of its own
        whole = os.path.normpath(os.path.join(self.launch.code_dir or root, path))
        name = os.path.relpath(whole, root)
        return None if name.startswith("..") else name

    def edited_settings(self) -> list[str]:
        """Return the files, except modules, that the user has edited since the snapshot."""
        files = {name: file for name, file in self._files.items() if not name.endswith(".py")}
        return changed(Path(self.launch.root), manifest(files))

    def collect(self, out: Path) -> None:
        """Move the files that a program wrote into the copy to HPQ_OUT; no file is replaced.

        Raises:
            OSError: a file cannot be moved.
        """
        for path in list(self._written()):
            name = os.path.relpath(path, self.top)
            name = os.path.relpath(path, self.path) if name.startswith("..") else name
            make_private(out)
            is_free = not os.path.lexists(out / name)
            _move(path, out / name if is_free else out / "code" / name)

    def _written(self) -> Iterator[str]:
        """Yield the files in the copy that a program changed or created."""
        if self.path.is_symlink():  # a program made it in place of the copy
            return
        for folder, folders, names in os.walk(self.path):
            folders[:] = [name for name in folders if name not in _OWN]
            for path in (f"{folder}/{name}" for name in names):
                is_file = os.path.isfile(path) and not os.path.islink(path)
                if is_file and not self._is_as_written(path):
                    yield path

    def _is_as_written(self, path: str) -> bool:
        file = self._files.get(os.path.relpath(path, self.top))
        found = os.lstat(path)
        is_same_size = file is not None and found.st_size == len(file[0])
        return is_same_size and found.st_mtime == packing.WRITTEN_S

    def remove(self) -> None:
        """Remove the copy; never fails."""
        self._lock.remove()


def _normal(folder: str) -> str:
    """Return a directory without `..`, which would lead out of the copy; "" for none."""
    return os.path.normpath(folder) if folder else ""


def _others(folder: str, present: set[str]) -> Iterator[tuple[str, str]]:
    """Yield name and path of the entries of a user's directory that its copy lacks.

    A package that was made from a module since the snapshot stays out: Python would prefer it.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            is_own = entry.name in present or entry.name in _OWN
            has_module = f"{entry.name}.py" in present
            if not is_own and not (has_module and os.path.exists(f"{entry.path}/__init__.py")):
                yield entry.name, entry.path


def _move(source: str, target: Path) -> None:
    """Move a file to a new path: whole, or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.move(source, target)
    except OSError:
        target.unlink(missing_ok=True)  # on another disk, which is full
        raise
