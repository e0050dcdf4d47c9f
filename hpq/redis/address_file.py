"""Clients of the server whose address is in a file: `redis+file:///home/ana/.hpq/redis-job/address`.

Each connect reads the file again: the Redis job of Slurm may continue on another node. The password
and the proof in the file belong to one run of the server. A program that listens at the address of
a dead server receives a password that opens no server. It cannot answer with the proof, which only
clients with the password can read: so the client sends it no command.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from redis import Redis
from redis.connection import Connection, ConnectionPool
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    InvalidResponse,
    ResponseError,
)

from hpq.redis.credentials import FILE_SCHEME, parse, read_address

_PROOF = b"syslog-ident"  # an option of the server that nothing else uses
# The client does not send the name and version of redis-py: each costs a round trip.
_UNNAMED: dict[str, Any] = {"driver_info": None}
if find_spec("redis.driver_info") is None:  # redis-py 7.0 and 7.1
    _UNNAMED = {"lib_name": None, "lib_version": None}
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
        super().__init__(redis_connect_func=_log_in, **options)  # type: ignore[no-untyped-call]
        self._file = address_file
        self.proof = ""

    def _connect(self) -> Any:
        try:
            place, self.password, self.proof = read_address(self._file)
            self.host, _, port = place.rpartition(":")
            self.port = int(port)
        except FileNotFoundError:
            raise ConnectionError("the Redis job has not started") from None
        except OSError as error:
            raise ConnectionError(f"{self._file}: {error.strerror}") from None
        except ValueError as error:  # the sentence of a job that has ended
            raise ConnectionError(str(error)) from None
        return super()._connect()  # type: ignore[no-untyped-call]


def _log_in(connection: _Connection) -> None:
    """Send the password, and check that the server is the one of the address file."""
    proof = connection.proof.encode()
    try:
        connection.on_connect()  # type: ignore[no-untyped-call]
        connection.send_command("CONFIG", "GET", _PROOF)  # type: ignore[no-untyped-call]
        reply = connection.read_response()
    except (AuthenticationError, InvalidResponse, ResponseError):
        reply = None
    if reply not in ([_PROOF, proof], {_PROOF: proof}):  # of RESP2 or RESP3
        text = f"another program answers at {connection.host}:{connection.port}"
        raise ConnectionError(f"{text}, where the Redis job was")


def client(kind: type[Redis], url: str, **options: Any) -> Redis:
    """Create a client of any URL; the pool is the client's own."""
    options |= _UNNAMED
    if not url.startswith(FILE_SCHEME):
        return kind.from_url(url, **options)
    path = Path(unquote(parse(url).path))
    return kind.from_pool(ConnectionPool(_Connection, address_file=path, **options))


def remedies(url: str) -> dict[str, str]:
    """Return what to do, by error, if a URL names a file."""
    return {"away": _AWAY} if url.startswith(FILE_SCHEME) else {}
