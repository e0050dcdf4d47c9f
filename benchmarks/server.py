"""A Redis server of one benchmark's own: on a socket in a temporary directory, and gone after it.

It keeps its data as hpq's embedded server does (AOF, everysec), for hpq and the peers alike.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from redis import Redis
from redis.exceptions import ConnectionError as NoServer

from hpq.settings import Settings
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq_producer.embedded_redis.binary import find
from hpq_producer.session import Session

DEADLINE_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that runs, a client on it, and a directory for what the benchmark writes."""

    url: str
    redis: Redis
    folder: Path

    @property
    def version(self) -> str:
        """The server's version."""
        return str(self.redis.info("server")["redis_version"])

    @property
    def env(self) -> dict[str, str]:
        """The variables that send hpq's processes here; PATH as it is in the shell is added."""
        return {
            "HPQ_REDIS_URL": self.url,
            "HPQ_HOME": str(self.folder / "home"),
            "HPQ_LOG": "warning",
        }

    def session(self) -> Session:
        """A session as a command of hpq would have it."""
        settings = Settings(redis_url=self.url, home=self.folder / "home", user="bench")
        keys = Keys(settings.prefix)
        reader = StoreReader(self.redis, keys, settings.lease_ms)
        return Session(settings=settings, url=self.url, redis=self.redis, keys=keys, reader=reader)

    def empty(self) -> None:
        """Forget all data."""
        self.redis.flushall()

    def used_bytes(self) -> int:
        """Memory of the server's data, once the buffers of what just happened are gone."""
        last = -1
        while (used := int(self.redis.info("memory")["used_memory"])) != last:
            last = used
            time.sleep(1.0)  # the server's own housekeeping runs each second
        return used

    def cpu_s(self) -> float:
        """CPU time of the server so far."""
        cpu = self.redis.info("cpu")
        return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])

    def commands(self) -> int:
        """Commands executed so far, those inside scripts included."""
        stats = self.redis.info("commandstats")
        return sum(int(entry["calls"]) for entry in stats.values())


def wait(is_so: Callable[[], object], what: str, pause_s: float = 0.05) -> None:
    """Until it is so.

    Raises:
        SystemExit: it takes far too long.
    """
    until = time.monotonic() + DEADLINE_S
    while not is_so():
        if time.monotonic() > until:
            raise SystemExit(f"benchmarks: not within {DEADLINE_S:g} s: {what}")
        time.sleep(pause_s)


def wait_size(server: Server, key: str, size: int) -> None:
    """Until a sorted set has so many members.

    Raises:
        SystemExit: it takes far too long.
    """
    wait(lambda: server.redis.zcard(key) >= size, f"{size} members of {key}")


@contextmanager
def private_server() -> Iterator[Server]:
    """A server for the length of a benchmark."""
    binary = find().path
    with tempfile.TemporaryDirectory(prefix="hpq-bench-") as name:
        socket = f"{name}/redis.sock"
        options = ["--port", "0", "--unixsocket", socket, "--save", "", "--dir", name]
        options += ["--appendonly", "yes", "--appendfsync", "everysec"]
        process = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL)
        redis = Redis(unix_socket_path=socket)
        try:
            wait(lambda: _answers(redis), "an answer of the server", 0.01)
            yield Server(url=f"unix://{socket}", redis=redis, folder=Path(name))
        finally:
            redis.close()
            process.terminate()
            process.wait()


def _answers(redis: Redis) -> bool:
    try:
        return bool(redis.ping())
    except NoServer:
        return False
