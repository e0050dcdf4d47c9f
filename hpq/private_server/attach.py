"""Attach to the private server under HPQ_HOME, which commands use if HPQ_REDIS_URL is not set.

`attach` starts the server if it does not run. Only its keeper stops it, some seconds after the last
user has released it or died. `keeper` lists the locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from hpq.errors import HpqError, OutOfReach, SettingsError
from hpq.private_server import keeper
from hpq.private_server.launch import POLL_S, START_S, answers, ensure_running
from hpq.private_server.state import ServerHome, network_disk
from hpq.process import make_private

_ON_NETWORK = (
    "HPQ_HOME={} is on {}: another machine may not see the locks of the private server there, and"
    " cannot use its socket; set HPQ_REDIS_URL or run `hpq join`, or set HPQ_HOME to a local disk"
)
LOCK_S = keeper.REWRITE_S + keeper.STOP_S + START_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """A shared lock on the private server; it lasts until released or until this process ends."""

    url: str
    home: ServerHome
    users_lock: int

    def keep_across_exec(self) -> int:
        """Let a program that this process execs, or starts with pass_fds, keep the lock.

        Returns the descriptor to pass.
        """
        os.set_inheritable(self.users_lock, True)
        return self.users_lock

    def revive(self) -> None:
        """Start the server again if its keeper was killed, too; a living keeper does that."""
        with contextlib.suppress(OSError, HpqError):  # the caller tries again, or says what failed
            lock = self.home.lock(keeper.KEEPER)
            try:
                has_keeper = not keeper.try_lock(lock)
            finally:
                os.close(lock)
            if not has_keeper:
                with locked(self.home, keeper.START):
                    ensure_running(self.home)

    def release(self, *, linger_s: float) -> None:
        """Release the server; with linger_s 0 it stops as soon as no user is left."""
        _write_linger(self.users_lock, linger_s)
        os.close(self.users_lock)
        with contextlib.suppress(OSError, OutOfReach):
            record = self.home.read_record()
            if record and record.keeper_pid and record.host == platform.node():
                # Wakes the keeper. If another process has its pid by now, SIGCONT does no harm.
                os.kill(record.keeper_pid, signal.SIGCONT)


def attach(home: Path, *, linger_s: float = keeper.QUIET_S) -> Attached:
    """Attach to the private server of a home; start it if it does not run.

    The server stays for `linger_s` after its last user; the latest user's value applies.

    Raises:
        SettingsError: the home is unusable.
        OutOfReach: no server can be found or started, or none that can read the data.
    """
    server_home = ServerHome.of(home)
    try:
        make_private(server_home.path)
        if disk := network_disk(server_home.path):
            raise SettingsError(_ON_NETWORK.format(home, disk), code="home-on-network")
        make_private(home / "store")  # else the first worker would make it as any store
        users = server_home.lock(keeper.USERS)
        try:
            # Waits while a keeper stops the server.
            _lock(users, fcntl.LOCK_SH, server_home.path / keeper.USERS)
            _write_linger(users, linger_s)
            # Another process may be about to replace the server.
            with locked(server_home, keeper.START):
                socket = ensure_running(server_home)
        except BaseException:
            os.close(users)
            raise
    except OSError as error:
        raise SettingsError(
            f"cannot use HPQ_HOME: {error.filename or server_home.path}: {error.strerror}; set"
            " HPQ_HOME to a writable directory on a disk with free space",
            code="home-unusable",
        ) from None
    return Attached(url=f"unix://{quote(socket)}", home=server_home, users_lock=users)


def running_socket(home: Path) -> str | None:
    """Return the socket of a home's private server if it answers; start and create nothing."""
    record = ServerHome.of(home).read_record()
    return record.socket if record and answers(record.socket) else None


def _write_linger(users: int, linger_s: float) -> None:
    with contextlib.suppress(OSError):  # on a full disk the keeper uses QUIET_S
        os.truncate(users, os.pwrite(users, b"%.3f\n" % linger_s, 0))


@contextlib.contextmanager
def locked(server_home: ServerHome, name: str) -> Iterator[None]:
    """Hold a lock file of a home exclusively."""
    fd = server_home.lock(name)
    try:
        _lock(fd, fcntl.LOCK_EX, server_home.path / name)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, kind: int, path: Path) -> None:
    until_s = time.monotonic() + LOCK_S
    while not keeper.try_lock(fd, kind):
        if time.monotonic() > until_s:
            raise OutOfReach(
                f"{path}: another process has held this lock for {LOCK_S:.0f} s; find it with"
                f" `fuser {path}`",
                code="home-locked",
            )
        time.sleep(POLL_S)
