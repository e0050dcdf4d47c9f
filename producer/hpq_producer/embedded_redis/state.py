"""The paths of the private server, and the record of the server that ran last (server.json).

HPQ_HOME may be a long path or on a network disk, and a socket's path has at most 108 bytes (104 on
macOS). So the socket is in a directory of /tmp that only its owner can enter, named after the hash
of HPQ_HOME's resolved path.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpq.errors import OutOfReach
from hpq_producer.embedded_redis import keeper
from hpq_producer.embedded_redis.binary import Binary

SERVER_LOG = "server.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """server.json: the binary that last wrote the data, and the socket and host of its server."""

    binary: Binary
    socket: Path
    host: str
    server_pid: int = 0  # 0 until the keeper has started the server
    keeper_pid: int = 0

    def as_json(self) -> dict[str, object]:
        """Return the object of server.json."""
        return {
            "family": self.binary.family,
            "version": list(self.binary.version),
            "path": str(self.binary.path),
            "socket": str(self.socket),
            "host": self.host,
            "server_pid": self.server_pid,
            "keeper_pid": self.keeper_pid,
        }

    @classmethod
    def from_json(cls, text: Mapping[str, Any]) -> Record:
        """Decode the object of server.json.

        Raises:
            ValueError, KeyError, TypeError: the object is not a record.
        """
        major, minor, patch = map(int, text["version"])
        if text["family"] not in ("redis", "valkey"):
            raise ValueError(text["family"])
        return cls(
            binary=Binary(
                family=text["family"], version=(major, minor, patch), path=Path(text["path"])
            ),
            socket=Path(text["socket"]),
            host=str(text["host"]),
            server_pid=int(text["server_pid"]),
            keeper_pid=int(text["keeper_pid"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerHome:
    """HPQ_HOME with links resolved, so that two names of one directory are one home."""

    path: Path

    @classmethod
    def of(cls, home: Path) -> ServerHome:
        """Resolve a home, which need not exist yet."""
        return cls(path=Path(os.path.realpath(home)))

    @property
    def data_dir(self) -> Path:
        """The server's directory, with its append-only file and its log."""
        return self.path / keeper.DATA_DIR

    @property
    def log(self) -> Path:
        """The log of the server and its keeper."""
        return self.data_dir / SERVER_LOG

    def lock(self, name: str) -> int:
        """Open one of the keeper's lock files; return its descriptor."""
        return keeper.open_lock(self.path / name)

    def data_bytes(self) -> int:
        """Return the size of the data on disk, without the log."""
        total = 0
        for file in self.data_dir.rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # the server replaces its files
                total += file.stat().st_size if file.is_file() and file != self.log else 0
        return total

    def read_record(self) -> Record | None:
        """Read the record of the server that ran last; None if none ever ran.

        Raises:
            OutOfReach: server.json is not a record.
        """
        path = self.path / keeper.RECORD
        try:
            return Record.from_json(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise OutOfReach(
                f"{path}: not a record of hpq; remove it if the installed Redis wrote"
                f" {self.data_dir}, else move both away",
                code="private-redis-record-invalid",
            ) from None

    def write_record(self, record: Record) -> None:
        """Replace server.json atomically."""
        keeper.write_record(self.path, record.as_json())

    def socket(self) -> Path:
        """Return the path of the server's socket.

        Not under XDG_RUNTIME_DIR, which is removed at logout while a sweep may run on.
        """
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]
        return Path(f"/tmp/hpq-{os.geteuid()}-{digest}/redis.sock")


def make_private_directory(path: Path) -> None:
    """Create a directory that only its owner can enter, or check that it is one.

    Raises:
        OutOfReach: the path is not a directory, or other users may enter it.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if why := _why_not_private(path):
        raise OutOfReach(
            f"cannot create the socket of the private Redis: {path}: {why}; remove it, or set"
            " HPQ_HOME to another directory",
            code="home-unusable",
        )


def this_host() -> str:
    """Return this machine's name, since machines may share a disk."""
    return socket.gethostname()


def _why_not_private(path: Path) -> str:
    try:
        stats = path.lstat()
    except OSError as error:
        return error.strerror or "cannot be read"
    if not stat.S_ISDIR(stats.st_mode):
        return "it is not a directory"
    if stats.st_uid != os.geteuid():
        return f"it belongs to user {stats.st_uid}"
    mode = stat.S_IMODE(stats.st_mode)
    return f"other users may enter it (mode {mode:o})" if mode & 0o077 else ""
