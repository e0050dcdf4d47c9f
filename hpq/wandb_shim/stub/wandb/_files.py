"""Files and artifacts that a script saves: copies under HPQ_OUT, which `hpq get` downloads."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ._transport import log_once, missing

_OTHER = re.compile(r"[^A-Za-z0-9_./ -]")
_made: list[str] = []


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


def keep_drawn(value: Any, *name: str) -> Path | None:
    """Save a PIL image or a matplotlib figure as PNG. Return None for other objects."""
    draw = getattr(value, "savefig", None) or getattr(value, "save", None)
    if not callable(draw):
        return None
    target = place(*name)
    try:
        draw(str(target), format="png")
    except Exception as error:  # of any library
        log_once(f"cannot draw {target.name}: {error}")
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
        self.name, self.type, self.description = name, type, description
        self.metadata: dict[str, Any] = dict(metadata or {})
        self.aliases: list[str] = []
        self.version, self.id, self.state = "v0", None, "PENDING"
        self._folder = Path(tempfile.mkdtemp(prefix="wandb-artifact-"))

    def _path(self, name: str) -> Path:
        words = [w for w in Path(name).parts if w not in ("..", "/", ".")]
        path = self._folder.joinpath(*words)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def add_file(self, local_path: Any, name: str | None = None, **kwargs: Any) -> None:
        shutil.copy2(local_path, self._path(name or os.path.basename(local_path)))

    def add_dir(self, local_path: Any, name: str | None = None, **kwargs: Any) -> None:
        target = self._path(name) if name else self._folder
        shutil.copytree(local_path, target, dirs_exist_ok=True)

    def add_reference(self, uri: Any, name: str | None = None, **kwargs: Any) -> list[Any]:
        log_once(f"artifact {self.name!r}: the reference to {uri} is not kept")
        return []

    def add(self, obj: Any, name: str = "", **kwargs: Any) -> None:
        if hasattr(obj, "keep"):  # Media, whose module imports this one
            obj.keep(f"{self.name}/{name}")

    @contextlib.contextmanager
    def new_file(
        self, name: str, mode: str = "x", encoding: str | None = None, policy: str | None = None
    ) -> Iterator[IO[Any]]:
        with open(self._path(name), mode, encoding=encoding) as file:
            yield file

    def _log(self, name: str | None = None) -> None:
        self.name = name or self.name
        keep(self._folder, "artifacts", self.name.split(":")[0])
        self.state = "COMMITTED"

    def wait(self, timeout: Any = None) -> Artifact:
        return self

    def save(self, *args: Any, **kwargs: Any) -> None:
        self._log()

    def download(self, root: str | None = None, *args: Any, **kwargs: Any) -> str:
        """Return the folder of the files, which are on this machine already."""
        if root is None:
            return str(place("artifacts", self.name.split(":")[0]))
        shutil.copytree(self._folder, root, dirs_exist_ok=True)
        return str(root)

    def file(self, root: str | None = None) -> str:
        found = sorted(path for path in self._folder.rglob("*") if path.is_file())
        return str(found[0]) if found else ""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(missing(f"Artifact.{name}"))
