"""The paths of the private server, and the record of the server that ran last (server.json).

HPQ_HOME may be a long path or on a network disk, and a socket's path has at most 108 bytes (104 on
macOS). So the socket is in a directory of /tmp that only its owner can enter, named after the hash
of HPQ_HOME's resolved path; if another user has made that one, in a directory with a random name.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from hpq.errors import OutOfReach
from hpq.private_files import why_not_private
from hpq.private_server import keeper
from hpq.private_server.binary import Binary
from hpq.store.wire import decode

SERVER_LOG = "server.log"
# statfs(2): file systems that several machines mount, by f_type
_NETWORK = {
    0x6969: "NFS",
    0xFE534D42: "SMB",
    0xFF534D42: "SMB",
    0x0BD00BD0: "Lustre",
    0x19830326: "BeeGFS",
    0x47504653: "GPFS",
    0x5346414F: "AFS",
}


def network_disk(path: Path) -> str:
    """Return the name of the network file system of a directory; "" on a local one."""
    return _NETWORK.get(file_system_type(path) & 0xFFFFFFFF, "")


def file_system_type(path: Path) -> int:
    """Return the f_type of statfs(2); 0 if it is not known."""
    if sys.platform != "linux":
        return 0
    found = (ctypes.c_long * 64)()  # more than a struct statfs, which begins with f_type
    is_read = ctypes.CDLL(None).statfs(os.fsencode(path), found) == 0
    return int(found[0]) if is_read else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """server.json: the binary that last wrote the data, and the socket and host of its server."""

    family: str
    version: tuple[int, ...]
    path: str
    socket: str
    host: str
    server_pid: int = 0  # 0 until the keeper has started the server
    keeper_pid: int = 0

    @property
    def binary(self) -> Binary:
        """The binary, which may be gone by now."""
        return Binary(family=self.family, version=self.version, path=Path(self.path))


_RECORD = decode.Record(
    Record,
    family=decode.text,
    version=decode.several(decode.whole),
    path=decode.text,
    socket=decode.text,
    host=decode.text,
    server_pid=decode.whole,
    keeper_pid=decode.whole,
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
            return _RECORD(json.loads(path.read_bytes()))  # a path need not be text
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            raise OutOfReach(
                f"{path}: not a record of hpq; remove it if the installed Redis wrote"
                f" {self.data_dir}, else move both away",
                code="private-redis-record-invalid",
            ) from None

    def write_record(self, found: Record) -> None:
        """Replace server.json atomically."""
        keeper.write_record(self.path, asdict(found))

    def socket(self) -> Path:
        """Return the path of the server's socket.

        Not under XDG_RUNTIME_DIR, which is removed at logout while a sweep may run on.
        """
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]
        return Path(f"/tmp/hpq-{os.geteuid()}-{digest}/redis.sock")

    def make_socket_directory(self, last: Record | None) -> tuple[Path, str]:
        """Return a path for the socket of a new server, and why it is not that of `socket`.

        Raises:
            OSError: /tmp cannot be written.
        """
        socket = self.socket()
        why = why_not_private(socket.parent)
        if not why:
            return socket, ""
        if last and not why_not_private(Path(last.socket).parent):  # left by a killed keeper
            return Path(last.socket), f"{socket.parent}: {why}"
        folder = tempfile.mkdtemp(prefix=f"hpq-{os.geteuid()}-", dir="/tmp")  # 0700, a new one
        return Path(folder) / socket.name, f"{socket.parent}: {why}"
