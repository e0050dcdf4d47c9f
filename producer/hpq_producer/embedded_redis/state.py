"""The paths of the private server, and the record of what ran there last (server.json).

HPQ_HOME may lie deep, on a network disk or behind a link, and a socket's path has at most 108 bytes
(104 on macOS). So the socket lies elsewhere: in a directory that only its owner can enter, named
after HPQ_HOME's resolved path.
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
    """server.json: the binary that wrote the data last, and where its server is or was."""

    binary: Binary
    socket: Path
    host: str
    server_pid: int = 0  # 0 until the keeper has started it
    keeper_pid: int = 0

    def as_json(self) -> dict[str, object]:
        """The object that server.json holds."""
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
        """The record that an object of server.json stands for.

        Raises:
            ValueError, KeyError, TypeError: the object is not such a record.
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
    """HPQ_HOME, resolved: two names of one directory are one home."""

    path: Path

    @classmethod
    def of(cls, home: Path) -> ServerHome:
        """The home that a setting names, whether or not it is there yet."""
        return cls(path=Path(os.path.realpath(home)))

    @property
    def data(self) -> Path:
        """The server's directory: its append-only file and its log."""
        return self.path / keeper.DATA

    @property
    def log(self) -> Path:
        """What the server and its keeper said."""
        return self.data / SERVER_LOG

    def lock(self, name: str) -> int:
        """An open descriptor of one of the keeper's lock files."""
        return keeper.open_lock(self.path / name)

    def data_bytes(self) -> int:
        """How much the data take up on disk."""
        total = 0
        for file in self.data.rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # the server replaces its files
                total += file.stat().st_size if file.is_file() and file != self.log else 0
        return total

    def read_record(self) -> Record | None:
        """The record of the server that ran last, or None where none ever did.

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
                f"{path}: not a record of hpq's: remove it if {self.data} was written by the server"
                " that is installed here, else move both away",
                code="private-redis-record-invalid",
            ) from None

    def write_record(self, record: Record) -> None:
        """Replace server.json as a whole."""
        keeper.write_record(self.path, record.as_json())

    def socket(self) -> Path:
        """The address of the server: one for each home, short enough, in a private place.

        Not under XDG_RUNTIME_DIR: it is removed at logout, and with it a sweep that runs on.
        """
        mark = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]
        return Path(f"/tmp/hpq-{os.geteuid()}-{mark}/redis.sock")


def make_private_directory(path: Path) -> None:
    """Make a directory that only its owner can enter, or see that it is one.

    Raises:
        OutOfReach: something else has that name, or others may enter it.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if why := _why_not_private(path):
        raise OutOfReach(
            f"{path}: {why}, so the server's socket cannot lie there: remove it, or set"
            " HPQ_HOME to another directory",
            code="home-unusable",
        )


def this_host() -> str:
    """The name that tells two machines apart that share a disk."""
    return socket.gethostname()


def _why_not_private(path: Path) -> str:
    try:
        found = path.lstat()
    except OSError as error:
        return error.strerror or "cannot be read"
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a directory"
    if found.st_uid != os.geteuid():
        return f"it belongs to user {found.st_uid}"
    mode = stat.S_IMODE(found.st_mode)
    return f"others may enter it (mode {mode:o})" if mode & 0o077 else ""
