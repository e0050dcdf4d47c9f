"""Create a home for each test of the private server, and processes that use the server."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from hpq.errors import OutOfReach
from hpq.private_server import keeper
from hpq.private_server.attach_or_start import Attached, attach
from hpq.private_server.state import Record, ServerHome
from tests.support.constants import DEADLINE_S

USER = """
import os, subprocess, sys
from pathlib import Path
from hpq.errors import HpqError
from hpq.private_server import attach_or_start as embedded
print("ready", flush=True)
sys.stdin.readline()
try:
    held = embedded.attach(Path(sys.argv[1]), linger_s=float(sys.argv[2]))
    print(held.home.read_record().socket, flush=True)
except HpqError as error:
    print(f"{type(error).__name__}: {error}", flush=True)
"""
STAY = "sys.stdin.readline()"


class User:
    """A process that attaches on request, prints the socket or the error, then runs more code."""

    def __init__(self, home: Path, linger_s: float, then: str, env: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"{USER}\n{then}", str(home), str(linger_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, **env},
        )
        assert self.hear() == "ready"

    def say(self) -> None:
        """Let the process continue: attach, or end."""
        assert self.process.stdin
        self.process.stdin.write("\n")

    def hear(self) -> str:
        """Return the next line that it prints."""
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def attach(self) -> str:
        """Let the process attach; return the socket or the error."""
        self.say()
        return self.hear()

    def kill(self) -> None:
        """Kill the process with SIGKILL, but not its children."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            pipe.close()


class Home:
    """An HPQ_HOME, its processes and its users."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = ServerHome.of(path)
        self._users: list[User] = []

    def user(
        self,
        *,
        home: Path | None = None,
        linger_s: float = 0.0,
        then: str = STAY,
        env: Mapping[str, str] = {},
    ) -> User:
        """Start a process that is ready to attach."""
        self._users.append(User(home or self.path, linger_s, then, env))
        return self._users[-1]

    def attach(self) -> Attached:
        """Attach this process."""
        return attach(self.path, linger_s=0.0)

    def record(self) -> Record:
        """Return server.json once the keeper has written the process ids."""
        self.until(lambda: (found := self.place.read_record()) and found.keeper_pid)
        record = self.place.read_record()
        assert record
        return record

    def has_keeper(self) -> bool:
        """Return whether a keeper holds its lock."""
        lock = self.place.lock(keeper.KEEPER)
        try:
            return not keeper.try_lock(lock, fcntl.LOCK_SH)
        finally:
            os.close(lock)

    def info(self, field: str) -> str:
        """Return one field of the server's INFO."""
        lines = keeper.ask(str(self.record().socket), "INFO").splitlines()
        return next(line for line in lines if line.startswith(f"{field}:")).partition(":")[2]

    def ask(self, command: str) -> str:
        """Return the running server's reply to a command."""
        return keeper.ask(str(self.record().socket), command)

    def kill_server(self) -> None:
        """Kill the server with SIGKILL, and wait until another answers."""
        run_id, pid = self.info("run_id"), int(self.info("process_id"))
        os.kill(pid, signal.SIGKILL)

        def is_another() -> bool:
            with contextlib.suppress(OSError):
                is_loading = self.ask("PING").startswith("-LOADING")
                return self.info("run_id") != run_id and not is_loading
            return False

        self.until(is_another)

    def processes(self) -> list[str]:
        """Return `pid state command` of each keeper and server of this home."""
        listed = subprocess.run(
            ["ps", "-axww", "-o", "pid=,stat=,args="], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        marks = (f"keeper.py {self.place.path} ", f"unixsocket:{self.place.socket()}")
        return [
            line.strip()
            for line in listed
            if line.split()[1][0] != "Z" and any(mark in line for mark in marks)
        ]

    def make_keeper_look(self) -> None:
        """Make the keeper check for users now, and wait until it has."""
        pid = self.record().keeper_pid
        before = _times_waited(pid)
        os.kill(pid, signal.SIGCONT)
        self.until(lambda: _times_waited(pid) > before)

    def until_one_server_runs(self) -> None:
        """Wait until the keeper and the server of server.json are the only processes of this home.

        A process that has started a keeper, and the keeper of a removed home, end a moment later.
        """

        def is_so() -> bool:
            record = self.record()
            running = {int(line.split()[0]) for line in self.processes()}
            return running == {record.keeper_pid, record.server_pid}

        self.until(is_so, every_s=0.04)

    def until_nothing_runs(self) -> None:
        """Wait for the end of keeper and server."""
        self.until(lambda: not self.processes(), every_s=0.04)

    def until_unkept(self) -> None:
        """Wait until no keeper holds its lock."""

        def is_free() -> bool:
            fd = self.place.lock(keeper.KEEPER)
            try:
                return keeper.try_lock(fd, fcntl.LOCK_SH)
            finally:
                os.close(fd)

        self.until(is_free)

    @staticmethod
    def until(condition: Callable[[], object], *, every_s: float = 0.005) -> None:
        """Wait until a condition is true."""
        end_s = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < end_s, "the condition stayed false"
            time.sleep(every_s)

    def close(self) -> None:
        """End the users; assert that the other processes end by themselves."""
        for user in self._users:
            user.kill()
        with contextlib.suppress(OSError, OutOfReach):
            if (record := self.place.read_record()) and record.keeper_pid:
                os.kill(record.keeper_pid, signal.SIGCONT)  # check now, not at the next interval
        try:
            self.until_nothing_runs()
        except AssertionError:
            left = self.processes()
            for line in left:
                os.kill(int(line.split()[0]), 9)
            pytest.fail(f"left running: {left}")
        assert not self.place.socket().exists()


def _times_waited(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches:"):
            return int(line.split()[1])
    raise AssertionError("this system has no such count")
