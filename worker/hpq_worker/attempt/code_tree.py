"""The directory in which a worker runs the code of a sweep, attempt after attempt.

A program may write anywhere in it. Before each attempt, hpq restores what differs from the
snapshot: inode and change time of a file or directory show that, and no program can set them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hpq.code import bundle as packing
from hpq.code.editable import EditableInstalls
from hpq.code.manifest import SKIPPED, Files, changed, manifest
from hpq.domain.sweep import Launch
from hpq.process import make_private
from hpq_worker.files.workdir import DirectoryLock

_MOST_LINKS = 20_000  # in directories without code; each takes an inode, and a long one a block
_MOST_BESIDE = 200  # entries of a directory above the code's root, such as /tmp
_BYTECODE = "__pycache__"
_INSTALLED = ".hpq-editable"  # links to packages, at the top
_OWN = (_BYTECODE, _INSTALLED)

Stamp = tuple[int, int]  # inode and change time of an entry; zeros if it is missing
_COPY, _FOLDER, _LINK = "copy of a file", "directory of its own", "link to the user's entry"


class _Folder(NamedTuple):
    """A directory of the tree as it was restored, and the user's directory as it was then."""

    stamp: Stamp
    users: Stamp
    folders: tuple[str, ...]


class CodeTree:
    """Copies of a snapshot's files; on the machine that enqueued, amid the user's other files.

    There the tree repeats absolute paths of the user: `tree/home/me/project` has the directories of
    the project as directories and its other files as links, so that programs find data beside
    their code, and scan, rename and remove it. `../data` is a link, too.

    A *path* below is that of an entry in the tree, without the tree's own: "/home/me/project/t.py".
    A *name* is that of a file of the snapshot: "t.py".
    """

    def __init__(self, path: Path, files: Files, launch: Launch, *, is_linked: bool) -> None:
        """Plan the tree; `restore` makes it."""
        self.path, self._files, self.launch, self.is_linked = path, files, launch, is_linked
        self._root = launch.root.rstrip("/") if is_linked else ""
        self.top = f"{path}{self._root}"
        self._lock = DirectoryLock(path)
        start = self._root if is_linked or not launch.below else f"/{launch.below}"
        # {folder: {entry: the name of its file, "" for a folder}}: what holds code
        self._planned = _plan([start], {f"{self._root}/{name}": name for name in files})
        self._copies: dict[str, Stamp] = {}  # by path, as they were written
        self._known: dict[str, _Folder] = {}  # all directories, as they were restored
        self._links: dict[str, int] = {}  # directory without code → number of its entries
        self._total = 0  # of these
        self._large = set[str]()  # directories without code that are one link

    @property
    def code_dir(self) -> str:
        """The directory in the tree that the sweep's code is started from."""
        if self.is_linked:
            return f"{self.path}{self.launch.code_dir}"
        return os.path.join(self.path, self.launch.below).rstrip("/")

    def restore(self) -> None:
        """Make the tree, or undo what a program did to it; follow the user's directory.

        Raises:
            OSError: the disk cannot take it.
        """
        make_private(self.path)
        known, self._known = self._known, {}
        todo = [""]
        while todo:
            folder = todo.pop()
            was, users = known.get(folder), (0, 0)
            if self.is_linked and self._is_inside(folder):
                users = _stamp(folder)
            is_same = was and (was.stamp, was.users) == (_stamp(f"{self.path}{folder}"), users)
            if was is None or not is_same or self._has_changed(folder):
                was = self._sync(folder, users)
            self._known[folder] = was
            todo += (f"{folder}/{name}" for name in was.folders)

    def _is_inside(self, folder: str) -> bool:
        return f"{folder}/".startswith(f"{self._root}/")

    def _has_changed(self, folder: str) -> bool:
        paths = (f"{folder}/{e}" for e, name in self._planned.get(folder, {}).items() if name)
        return any(_stamp(f"{self.path}{p}") != self._copies.get(p) for p in paths)

    def _sync(self, folder: str, users: Stamp) -> _Folder:
        """Give a directory exactly the entries that it should have."""
        here, wanted = f"{self.path}{folder}", self._wanted(folder)
        with os.scandir(here) as entries:
            found = [e for e in entries if e.name not in _OWN]
        present = set[str]()
        for entry in found:
            path = f"{folder}/{entry.name}"
            if self._is_right(path, entry, wanted.get(entry.name)):
                present.add(entry.name)
            elif entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
        for name in wanted.keys() - present:
            self._make(f"{folder}/{name}", wanted[name])
        folders = tuple(name for name, kind in wanted.items() if kind == _FOLDER)
        return _Folder(stamp=_stamp(here), users=users, folders=folders)

    def _wanted(self, folder: str) -> dict[str, str]:
        """Return {entry: what it is} of a directory of the tree."""
        planned = self._planned.get(folder, {})
        wanted = {entry: _COPY if name else _FOLDER for entry, name in planned.items()}
        if not self.is_linked:
            return wanted
        found: list[os.DirEntry[str]] = []
        with suppress(OSError), os.scandir(folder or "/") as entries:
            found = [e for e in entries if e.name not in wanted and e.name not in _OWN]
        if self._is_inside(folder):
            mirrored = set(self._mirrored(folder, found))
            return wanted | {e.name: _FOLDER if e.name in mirrored else _LINK for e in found}
        return wanted | {e.name: _LINK for e in found if len(found) <= _MOST_BESIDE}

    def _mirrored(self, folder: str, entries: list[os.DirEntry[str]]) -> Iterator[str]:
        """Yield the directories without code that are directories in the tree, too.

        The small ones first, with all that is below them: a scan finds all of it, or one link.
        """
        names = [e.name for e in entries if e.is_dir(follow_symlinks=False) and _is_scanned(e.name)]
        paths = [p for p in (f"{folder}/{name}" for name in names) if p not in self._large]
        new = {path: {} if path in self._links else _entries_below(path) for path in paths}
        for path, counts in sorted(new.items(), key=lambda one: (sum(one[1].values()), one[0])):
            if self._total + sum(counts.values()) > _MOST_LINKS:
                self._large.add(path)
            else:
                self._total += sum(counts.values())
                self._links |= counts
                yield os.path.basename(path)

    def _is_right(self, path: str, entry: os.DirEntry[str], kind: str | None) -> bool:
        if kind == _LINK:
            return entry.is_symlink() and os.readlink(entry.path) == path
        if kind == _FOLDER:
            return entry.is_dir(follow_symlinks=False)
        return kind == _COPY and _stamp(entry.path) == self._copies.get(path)

    def _make(self, path: str, kind: str) -> None:
        target = f"{self.path}{path}"
        if kind == _FOLDER:
            os.mkdir(target)
        elif kind == _LINK:
            os.symlink(path, target)
        else:
            packing.write_file(target, *self._files[path.removeprefix(f"{self._root}/")])
            self._copies[path] = _stamp(target)

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
        """Move files that a program wrote into the tree to where the user finds them.

        A directory of the user that holds no code gets its new files; HPQ_OUT gets all others. No
        file is replaced.

        Raises:
            OSError: a file cannot be moved.
        """
        for folder, was in self._known.items():
            holds_code = folder in self._planned and self._is_inside(folder)
            is_users = self.is_linked and not holds_code and os.path.isdir(folder or "/")
            for path in list(self._written(folder, was)):
                source, name = f"{self.path}{path}", os.path.relpath(path, self._root or "/")
                name = os.path.basename(name) if name.startswith("..") else name
                if is_users and not os.path.lexists(path):
                    with suppress(OSError):  # a directory that the user cannot write
                        _move(source, Path(path))
                        continue
                make_private(out)
                is_free = not os.path.lexists(out / name)
                _move(source, out / name if is_free else out / "code" / name)

    def _written(self, folder: str, was: _Folder) -> Iterator[str]:
        """Yield the files in a directory of the tree that a program changed or created."""
        here = f"{self.path}{folder}"
        for entry, name in self._planned.get(folder, {}).items():
            if name and self._is_edited(f"{here}/{entry}", name):
                yield f"{folder}/{entry}"
        if _stamp(here) == was.stamp or not os.path.isdir(here):
            return
        with os.scandir(here) as entries:
            found = [e for e in entries if not e.is_symlink() and e.name not in _OWN]
        for one in found:
            path = f"{folder}/{one.name}"
            if one.is_file() and path not in self._copies:
                yield path
            elif one.is_dir() and path not in self._known:
                yield from (p.removeprefix(str(self.path)) for p in _files_below(one.path))

    def _is_edited(self, path: str, name: str) -> bool:
        try:
            found = os.lstat(path)
        except OSError:  # removed
            return False
        is_kept = found.st_size == len(self._files[name][0])
        return not os.path.islink(path) and (not is_kept or found.st_mtime != packing.WRITTEN_S)

    def remove(self) -> None:
        """Remove the tree; never fails."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            self._lock.release()


def _plan(folders: Iterable[str], files: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the entries of all directories that lead to these folders and files."""
    planned: dict[str, dict[str, str]] = {"": {}}
    for path, name in [*((folder, "") for folder in folders), *files.items()]:
        while path:
            if not name:
                planned.setdefault(path, {})
            folder, _, entry = path.rpartition("/")
            planned.setdefault(folder, {}).setdefault(entry, name)
            path, name = folder, ""
    return planned


def _files_below(folder: str) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != _BYTECODE]
        paths = (f"{place}/{name}" for name in names)
        yield from (p for p in paths if os.path.isfile(p) and not os.path.islink(p))


def _is_scanned(name: str) -> bool:
    return not name.startswith(".") and name not in SKIPPED


def _entries_below(path: str) -> dict[str, int]:
    """Return {folder: number of entries} of a directory; too many for an HPQ_HOME."""
    counts, total = dict[str, int](), 0
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if _is_scanned(name)]
        counts[folder] = len(folders) + len(names)
        total += counts[folder]
        if "code.key" in names or total > _MOST_LINKS:
            return {path: _MOST_LINKS + 1}
    return counts


def _stamp(path: str) -> Stamp:
    try:
        found = os.lstat(path)
    except OSError:
        return (0, 0)
    return found.st_ino, found.st_ctime_ns


def _move(source: str, target: Path) -> None:
    """Move a file to a new path: whole, or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.move(source, target)
    except OSError:
        target.unlink(missing_ok=True)  # on another disk, which is full
        raise
