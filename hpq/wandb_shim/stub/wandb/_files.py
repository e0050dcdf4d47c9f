"""Files and artifacts that a script saves: copies under HPQ_OUT, which `hpq get` downloads."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from ._transport import log_once, missing
from .errors import check_word

_OTHER = re.compile(r"[^A-Za-z0-9_./ -]")
_POLICIES = ("mutable", "immutable", None)
_NAME = re.compile(r"[A-Za-z0-9_.-]+\Z")
_made: list[str] = []
ABOUT = "_artifact.json"  # after an artifact's name; a store copies files by name: this last
DESCRIBED = ("type", "description", "metadata", "aliases")  # what that file holds
logged: dict[str, list[Artifact]] = {}  # the versions that this process logged, by name


def out() -> Path:
    """Return the folder of kept files: HPQ_OUT, or outside a trial a temporary folder."""
    folder = os.environ.get("HPQ_OUT")
    if folder:
        return Path(folder)
    if not _made:
        _made.append(tempfile.mkdtemp(prefix="wandb-"))
    return Path(_made[0])


def place(*parts: str) -> Path:
    """Return the path in `out` for a file of this name, and create its folder."""
    words = [_OTHER.sub("_", w) for part in parts for w in str(part).split("/")]
    path = out().joinpath(*(w for w in words if w not in ("", ".", "..")))
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def keep(source: str | os.PathLike[str], *name: str) -> Path | None:
    """Copy a file or a folder. Return None, and log the reason, if that fails."""
    target = place(*name)
    try:
        if os.path.isdir(source):
            shutil.copytree(source, target, dirs_exist_ok=True)
        elif not (target.exists() and os.path.samefile(source, target)):
            shutil.copy2(source, target)
    except OSError as error:
        log_once(f"cannot copy {source}: {error.strerror or error}")
        return None
    return target


class Artifact:
    """A named folder of files, copied to HPQ_OUT when it is logged."""

    def __init__(
        self,
        name: str,
        type: str = "",
        description: str | None = None,
        metadata: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Create an artifact.

        Raises:
            ValueError: W&B allows no such name.
        """
        if not _NAME.match(name):
            raise ValueError(f"Artifact names have letters, digits and _ - . only, not {name!r}")
        self.name = name
        self.type = type
        self.description = description
        self.metadata: dict[str, Any] = dict(metadata or {})
        self.aliases: list[str] = []
        self.version = "v0"
        self.id = None
        self.state = "PENDING"
        self._fetch: Callable[[Path], object] = lambda folder: None  # fills the folder

    @cached_property
    def _folder(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="wandb-artifact-"))
        self._fetch(folder)
        return folder

    def _path(self, name: str) -> Path:
        words = [w for w in Path(name).parts if w not in ("..", "/", ".")]
        path = self._folder.joinpath(*words)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def add_file(
        self,
        local_path: Any,
        name: str | None = None,
        is_tmp: bool | None = False,
        skip_cache: bool | None = False,
        policy: str | None = "mutable",
        overwrite: bool = False,
    ) -> None:
        """Copy a file.

        Raises:
            ValueError: there is no such file, or W&B has no such `policy`.
        """
        check_word("policy", policy, _POLICIES)
        if not os.path.isfile(local_path):
            raise ValueError(f"Path is not a file: {os.fspath(local_path)!r}")
        shutil.copy2(local_path, self._path(name or os.path.basename(local_path)))

    def add_dir(
        self,
        local_path: Any,
        name: str | None = None,
        skip_cache: bool | None = False,
        policy: str | None = "mutable",
        merge: bool = False,
    ) -> None:
        check_word("policy", policy, _POLICIES)
        if not os.path.isdir(local_path):
            raise ValueError(f"Path is not a directory: {os.fspath(local_path)!r}")
        target = self._path(name) if name else self._folder
        shutil.copytree(local_path, target, dirs_exist_ok=True)

    def add_reference(self, uri: Any, name: str | None = None, **kwargs: Any) -> list[Any]:
        log_once(f"artifact {self.name!r}: the reference to {uri} is not kept")
        return []

    def add(self, obj: Any, name: str = "", **kwargs: Any) -> None:
        """Write a table or another media object as a file of the artifact."""
        try:
            ending, data = obj.encode()
        except Exception as error:  # of any library
            log_once(f"artifact {self.name!r}: {name!r} is dropped: {error}")
        else:
            self._path(name.removesuffix(ending) + ending).write_bytes(data)

    @contextlib.contextmanager
    def new_file(
        self, name: str, mode: str = "x", encoding: str | None = None, policy: str | None = None
    ) -> Iterator[IO[Any]]:
        with open(self._path(name), mode, encoding=encoding) as file:
            yield file

    def _log(self, name: str | None = None) -> None:
        """Copy the files to HPQ_OUT, in place of an earlier version, and describe them there.

        Other trials may read it at any moment: the description is there only while the files are
        whole.
        """
        self.name = (name or self.name).split(":")[0]
        versions = logged.setdefault(self.name, [])
        if self not in versions:
            versions.append(self)
        self.version, self.state = f"v{versions.index(self)}", "COMMITTED"
        about = {key: self.__dict__[key] for key in DESCRIBED}
        files, described = place("artifacts", self.name), place("artifacts", self.name + ABOUT)
        draft = Path(tempfile.mkdtemp(prefix=".artifact-", dir=out().parent))
        try:
            shutil.copytree(self._folder, draft / "files")
            (draft / "about").write_text(json.dumps(about, default=str), "utf-8")
            described.unlink(missing_ok=True)
            shutil.rmtree(files, ignore_errors=True)
            os.replace(draft / "files", files)
            os.replace(draft / "about", described)
        except OSError as error:
            log_once(f"cannot keep the artifact {self.name!r}: {error}")
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def wait(self, timeout: Any = None) -> Artifact:
        return self

    def save(self, *args: Any, **kwargs: Any) -> None:
        self._log()

    def download(self, root: str | None = None, *args: Any, **kwargs: Any) -> str:
        """Return a folder with a copy of the files: `root`, or a temporary one."""
        if root is None:
            return str(self._folder)
        shutil.copytree(self._folder, root, dirs_exist_ok=True)
        return str(root)

    def file(self, root: str | None = None) -> str:
        """Return the path of the only file."""
        names = [entry.path for entry in self.files()]
        if len(names) != 1:
            text = f"artifact {self.name!r} has {len(names)} files; use download() or get_entry()"
            raise ValueError(text)
        return os.path.join(self.download(root), names[0])

    def files(self, *args: Any, **kwargs: Any) -> list[Entry]:
        found = sorted(path for path in self._folder.rglob("*") if path.is_file())
        return [Entry(self, path.relative_to(self._folder).as_posix()) for path in found]

    def get_entry(self, name: Any) -> Entry:
        """Return a file of the artifact.

        Raises:
            KeyError: it has no such file.
        """
        names = [entry.path for entry in self.files()]
        if (path := Path(name).as_posix()) not in names:
            text = f"artifact {self.name!r} has no file {path!r}; it has {', '.join(names)}"
            raise KeyError(text)
        return Entry(self, path)

    get_path = get_entry

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(missing(f"Artifact.{name}"))


class Entry:
    """A file of an artifact."""

    def __init__(self, artifact: Artifact, path: str) -> None:
        self._artifact = artifact
        self.path = path
        self.name = path
        self.size = (artifact._folder / path).stat().st_size

    def download(self, root: str | None = None, *args: Any, **kwargs: Any) -> str:
        """Return the path of a copy, in the artifact's folder or in `root`."""
        target = Path(root or self._artifact._folder, self.path)
        if root:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self._artifact._folder / self.path, target)
        return str(target)
