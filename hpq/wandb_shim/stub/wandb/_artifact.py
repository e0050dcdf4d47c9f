"""Artifacts: their files are copied to HPQ_OUT, so `hpq get` brings them."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from ._files import keep, place
from ._media import Media
from ._say import missing, say


class Artifact:
    """A named folder of files."""

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
        say(f"artifact {self.name!r}: the reference to {uri} is not kept")
        return []

    def add(self, obj: Any, name: str = "", **kwargs: Any) -> None:
        if isinstance(obj, Media):
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
        """Where its files lie: they are on this machine already."""
        if root is None:
            return str(place("artifacts", self.name.split(":")[0]))
        shutil.copytree(self._folder, root, dirs_exist_ok=True)
        return str(root)

    def file(self, root: str | None = None) -> str:
        found = sorted(path for path in self._folder.rglob("*") if path.is_file())
        return str(found[0]) if found else ""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(missing(f"Artifact.{name}"))
