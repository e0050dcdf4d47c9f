"""Start a Redis server for one benchmark, on a socket in a temporary directory.

It persists data as hpq's private server does (AOF, everysec), for hpq and its peers.
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
    """A running server, a client, and a directory for files of the benchmark."""

    url: str
    redis: Redis
    folder: Path

    @property
    def version(self) -> str:
        """The version of Redis."""
        return str(self.redis.info("server")["redis_version"])

    @property
    def env(self) -> dict[str, str]:
        """The environment that makes hpq's processes use this server, with the shell's PATH."""
        return {
            "HPQ_REDIS_URL": self.url,
            "HPQ_HOME": str(self.folder / "home"),
            "HPQ_LOG": "warning",
        }

    def session(self) -> Session:
        """Open a session as a command of hpq does."""
        settings = Settings(redis_url=self.url, home=self.folder / "home", user="bench")
        keys = Keys(settings.prefix)
        reader = StoreReader(self.redis, keys, settings.lease_ms)
        return Session(settings=settings, url=self.url, redis=self.redis, keys=keys, reader=reader)

    def empty(self) -> None:
        """Delete all data."""
        self.redis.flushall()

    def used_bytes(self) -> int:
        """Return the server's used memory in bytes, after its buffers have shrunk."""
        last = -1
        while (used := int(self.redis.info("memory")["used_memory"])) != last:
            last = used
            time.sleep(1.0)  # the server shrinks its buffers each second
        return used

    def cpu_s(self) -> float:
        """Return the CPU time of the server so far, in seconds."""
        cpu = self.redis.info("cpu")
        return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])

    def commands(self) -> int:
        """Return the number of executed commands, including those inside scripts."""
        stats = self.redis.info("commandstats")
        return sum(int(entry["calls"]) for entry in stats.values())


def wait(is_so: Callable[[], object], what: str, pause_s: float = 0.05) -> None:
    """Wait until a condition is true.

    Raises:
        SystemExit: it is false after DEADLINE_S.
    """
    until = time.monotonic() + DEADLINE_S
    while not is_so():
        if time.monotonic() > until:
            raise SystemExit(f"benchmarks: not within {DEADLINE_S:g} s: {what}")
        time.sleep(pause_s)


def wait_size(server: Server, key: str, size: int) -> None:
    """Wait until a sorted set has `size` members.

    Raises:
        SystemExit: it has fewer after DEADLINE_S.
    """
    wait(lambda: server.redis.zcard(key) >= size, f"{size} members of {key}")


@contextmanager
def private_server() -> Iterator[Server]:
    """Run a server during a benchmark."""
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
