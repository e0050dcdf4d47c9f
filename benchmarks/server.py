"""Start a Redis server for one benchmark, on a port of this machine.

It persists data as deployed servers of hpq do (AOF, everysec), for hpq and its peers.
"""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from redis import Redis
from redis.exceptions import ConnectionError as NoServer

from hpq.access.session import Session
from hpq.private_server.binary import find
from hpq.settings import Settings
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.scripts import StoreContext

DEADLINE_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a server has done since its start."""

    commands: Counter[str]  # executed, including those inside scripts
    reads: int  # from sockets: a request, or a pipeline of them, is one unless it is large
    bytes_in: int
    cpu_s: float


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
        """The environment that makes hpq and its peers use this server, with the shell's PATH."""
        return {
            "REDIS_URL": self.url,  # of the peers
            "HPQ_REDIS_URL": self.url,
            "HPQ_HOME": str(self.folder / "home"),
            "HPQ_LOG": "warning",
            "OMP_NUM_THREADS": "1",  # threads of torch would wait for each other on a busy machine
        }

    def session(self) -> Session:
        """Open a session as a command of hpq does."""
        settings = Settings(redis_url=self.url, home=self.folder / "home", user="bench")
        keys = Keys(settings.prefix)
        reader = StoreReader(self.redis, keys, settings.lease_ms)
        return Session(
            settings=settings,
            url=self.url,
            redis=self.redis,
            keys=keys,
            reader=reader,
            context=StoreContext.open(self.redis, keys),
        )

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

    def data_bytes(self) -> int:
        """Return the memory of all keys and values, whatever clients and scripts use."""
        pipe = self.redis.pipeline(transaction=False)
        for key in self.redis.scan_iter(count=1000):
            pipe.memory_usage(key, samples=0)
        return sum(filter(None, pipe.execute()))  # None: the key has expired

    def usage(self) -> Usage:
        """Read INFO."""
        info = self.redis.info("all")
        calls = {n[8:]: int(v["calls"]) for n, v in info.items() if n.startswith("cmdstat_")}
        return Usage(
            commands=Counter(calls),
            reads=int(info["total_reads_processed"]),
            bytes_in=int(info["total_net_input_bytes"]),
            cpu_s=float(info["used_cpu_user"]) + float(info["used_cpu_sys"]),
        )


def wait(is_so: Callable[[], object], what: str, pause_s: float = 0.05) -> int:
    """Wait until a condition is true; return how often it was looked at.

    Raises:
        SystemExit: it is false after DEADLINE_S.
    """
    until, looks = time.monotonic() + DEADLINE_S, 1
    while not is_so():
        if time.monotonic() > until:
            raise SystemExit(f"benchmarks: not within {DEADLINE_S:g} s: {what}")
        time.sleep(pause_s)
        looks += 1
    return looks


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
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", name]
        options += ["--appendonly", "yes", "--appendfsync", "everysec"]
        process = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL)
        redis = Redis(port=port)
        try:
            wait(lambda: _answers(redis), "an answer of the server", 0.01)
            yield Server(url=f"redis://127.0.0.1:{port}/0", redis=redis, folder=Path(name))
        finally:
            redis.close()
            process.terminate()
            process.wait()


def _answers(redis: Redis) -> bool:
    try:
        return bool(redis.ping())
    except NoServer:
        return False
