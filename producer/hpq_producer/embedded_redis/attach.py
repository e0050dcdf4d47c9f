"""The private server under HPQ_HOME, which commands use if HPQ_REDIS_URL is not set.

`attach` makes this process a user of the server, and starts the server if it does not run. Only
its keeper stops it (`keeper` lists the locks), some quiet time after the last user has ended,
however that one ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from hpq.errors import OutOfReach, SettingsError
from hpq_producer.embedded_redis import keeper
from hpq_producer.embedded_redis.launch import POLL_S, START_S, answers, ensure_running
from hpq_producer.embedded_redis.state import Record, ServerHome, this_host

LOCK_S = keeper.REWRITE_S + keeper.STOP_S + START_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """A hold on the private server, which lasts until it is released or this process ends."""

    url: str
    home: ServerHome
    users_lock: int

    def keep_across_exec(self) -> int:
        """Let a program that this process becomes, or starts with pass_fds, hold on as well.

        Returns the descriptor to pass on.
        """
        os.set_inheritable(self.users_lock, True)
        return self.users_lock

    def release(self, *, linger_s: float) -> None:
        """Let go; with 0 s to linger the server stops at once, or with its last user."""
        _write_linger(self.users_lock, linger_s)
        os.close(self.users_lock)
        with contextlib.suppress(OSError, OutOfReach):
            record = self.home.read_record()
            if record and record.keeper_pid and record.host == this_host():
                # Makes the keeper look now; does no harm to a process that has its number by now.
                os.kill(record.keeper_pid, signal.SIGCONT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What `hpq doctor` says about the private server."""

    running: bool  # it answers
    record: Record | None
    data: Path
    data_bytes: int


def attach(home: Path, *, linger_s: float = keeper.QUIET_S) -> Attached:
    """Become a user of the private server of a home; start it if it does not run.

    The server stays for `linger_s` after its last user, as the user that came last wished.

    Raises:
        SettingsError: the home cannot be used.
        OutOfReach: no server can be found or started, or none that reads the data in the home.
    """
    place = ServerHome.of(home)
    try:
        place.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        users = place.lock(keeper.USERS)
        try:
            # Waits here while a keeper is stopping the server.
            _lock(users, fcntl.LOCK_SH, place.path / keeper.USERS)
            _write_linger(users, linger_s)
            # One at a time: nobody may take a server that another is about to replace.
            with _locked(place, keeper.START):
                address = ensure_running(place)
        except BaseException:
            os.close(users)
            raise
    except OSError as error:
        raise SettingsError(
            f"HPQ_HOME: {error.filename or place.path}: {error.strerror}: set HPQ_HOME to a"
            " directory that you can write to, on a disk with space left",
            code="home-unusable",
        ) from None
    return Attached(url=f"unix://{quote(str(address))}", home=place, users_lock=users)


def status(home: Path) -> Status:
    """How the private server of a home is doing; starts nothing and makes nothing."""
    place = ServerHome.of(home)
    record = place.read_record()
    return Status(
        running=record is not None and answers(record.socket),
        record=record,
        data=place.data,
        data_bytes=place.data_bytes(),
    )


def _write_linger(users: int, linger_s: float) -> None:
    with contextlib.suppress(OSError):  # a full disk: the keeper takes its own quiet time
        os.truncate(users, os.pwrite(users, b"%.3f\n" % linger_s, 0))


@contextlib.contextmanager
def _locked(place: ServerHome, name: str) -> Iterator[None]:
    fd = place.lock(name)
    try:
        _lock(fd, fcntl.LOCK_EX, place.path / name)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, kind: int, path: Path) -> None:
    until_s = time.monotonic() + LOCK_S
    while not keeper.try_lock(fd, kind):
        if time.monotonic() > until_s:
            raise OutOfReach(
                f"{path}: held by another process for {LOCK_S:.0f} s: see who with `fuser {path}`",
                code="home-locked",
            )
        time.sleep(POLL_S)
