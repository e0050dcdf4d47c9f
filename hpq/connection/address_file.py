"""Clients of the server whose address is in a file: `redis+file:///home/ana/.hpq/redis-job/address`.

Each connect reads the file again: the Redis job of Slurm may go on on another node.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from redis import Redis
from redis.connection import Connection, ConnectionPool
from redis.exceptions import ConnectionError

from hpq.connection import sentinel
from hpq.connection.credentials import FILE_SCHEME, parse

_AWAY = (
    "`squeue --me --name=hpq-redis` shows the Redis job; if there is none, run"
    " `hpq slurm --redis | sbatch`"
)


def url_of(path: Path) -> str:
    """Return the URL of the server whose address is in a file."""
    return f"{FILE_SCHEME}://{quote(str(path))}"


class _Connection(Connection):
    """A connection to the address that the file holds when it connects."""

    def __init__(self, *, address_file: Path, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self._file = address_file

    def _connect(self) -> Any:
        try:
            text = self._file.read_text("utf-8").strip()
        except FileNotFoundError:
            text = "the Redis job has not started"
        except OSError as error:
            text = f"{self._file}: {error.strerror}"
        self.host, _, port = text.rpartition(":")
        if not port.isdigit():  # the line of a job that is starting or has ended
            raise ConnectionError(text)
        self.port = int(port)
        return super()._connect()  # type: ignore[no-untyped-call]


def client(kind: type[Redis], url: str, **options: Any) -> Redis:
    """Create a client of any URL; the pool is the client's own."""
    if not url.startswith(FILE_SCHEME):
        return sentinel.client(kind, url, **options)
    path = Path(unquote(parse(url).path))
    return kind.from_pool(ConnectionPool(_Connection, address_file=path, **options))


def remedies(url: str) -> dict[str, str]:
    """Return what to do, by error, if a URL names Sentinels or a file."""
    return {"away": _AWAY} if url.startswith(FILE_SCHEME) else sentinel.remedies(url)
