"""Attach to the private server under HPQ_HOME, which commands use if HPQ_REDIS_URL is not set.

`attach` starts the server if it does not run: it starts a keeper, which starts the server, and
waits until it answers. The parent takes keeper.lock and passes it to the keeper, so the lock always
shows whether a keeper runs. A server without a keeper is replaced, so that every server is the
child of its keeper. Only the keeper stops it, some seconds after the last user has released it or
died. `keeper` lists the locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from hpq.errors import HpqError, OutOfReach, SettingsError
from hpq.notice import Notice, warn
from hpq.private_files import make_private, private_file
from hpq.private_server import binary as server_binary
from hpq.private_server import keeper
from hpq.private_server.state import Record, ServerHome, network_disk

START_S = 60.0
STARTS = 2  # a server may be killed before it answers
POLL_S = 0.02
LOG_BYTES = 1 << 20  # a start truncates a longer server.log
_LOG_STAMP = re.compile(r"^\d+:\w \d+ \w+ \d+ [\d:.]+ \S ")
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


def ensure_running(home: ServerHome) -> str:
    """Return the socket of a server that answers and has a keeper; start both if necessary.

    The caller holds start.lock, and shares users.lock.

    Raises:
        OutOfReach: no server can be found or started, or none that can read the data.
    """
    starts = 0
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s:
        keeper_lock = home.lock(keeper.KEEPER)
        try:
            if not keeper.try_lock(keeper_lock):
                record = home.read_record()
                if record and answers(record.socket):
                    return record.socket
                _check_host(home, record)
            elif starts == STARTS:
                raise OutOfReach(
                    f"the private Redis of {home.path} did not start: {_last_log_line(home)};"
                    " `hpq doctor` checks it",
                    code="private-redis-failed",
                )
            else:
                _start_keeper(home, keeper_lock)
                starts += 1
        finally:
            os.close(keeper_lock)
        time.sleep(POLL_S)
    raise OutOfReach(
        f"the private Redis of {home.path} did not answer within {START_S:.0f} s:"
        f" {_last_log_line(home)}; `hpq doctor` names its processes",
        code="private-redis-failed",
    )


def _start_keeper(home: ServerHome, keeper_lock: int) -> None:
    """Start a keeper, which starts the server; both inherit their locks."""
    last = home.read_record()
    try:
        binary = server_binary.find(writer=last.binary if last and home.data_bytes() else None)
    except HpqError as error:
        raise OutOfReach(f"{home.data_dir}: {error}", code=error.code) from None
    socket, why_elsewhere = home.make_socket_directory(last)
    if why_elsewhere:
        text = f"{why_elsewhere}: the socket of the private Redis is {socket}"
        warn(Notice("home-unusable", text))
    home.data_dir.mkdir(mode=0o700, exist_ok=True)
    server_lock = home.lock(keeper.SERVER)
    try:
        _stop_strays(home, last, server_lock, str(socket))
        now = Record(
            family=binary.family,
            version=binary.version,
            path=str(binary.path),
            socket=str(socket),
            host=platform.node(),
        )
        home.write_record(now)
        keep_log = home.log.exists() and home.log.stat().st_size < LOG_BYTES
        with (
            open(home.log, "ab" if keep_log else "wb", opener=private_file) as log,
            contextlib.suppress(subprocess.TimeoutExpired),  # then the caller's time is over, too
        ):
            subprocess.run(
                [sys.executable, "-I", "-S", keeper.__file__, home.path, str(server_lock)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=home.data_dir,
                env={k: v for k, v in os.environ.items() if not k.startswith("HPQ_")},
                pass_fds=(keeper_lock, server_lock),
                start_new_session=True,
                timeout=START_S,
                check=False,  # it forks and logs its errors
            )
    finally:
        os.close(server_lock)


def _stop_strays(home: ServerHome, last: Record | None, server_lock: int, socket: str) -> None:
    """Take server.lock; stop servers without a keeper that hold it or the socket.

    Such a server's keeper was killed, or its home was removed and created again.
    """
    until_s = time.monotonic() + keeper.STOP_S
    stopped: set[str] = set()
    while True:
        is_locked = not keeper.try_lock(server_lock)
        stray = last.socket if is_locked and last else socket
        if not is_locked and not _listens(socket):
            return
        if stray not in stopped:
            stopped.add(stray)
            with contextlib.suppress(OSError):
                keeper.ask(stray, "SHUTDOWN")
        if time.monotonic() > until_s:
            pid = last.server_pid if last else 0
            raise OutOfReach(
                f"{home.path}: a Redis server without its keeper has the data open; stop it with"
                f" `kill {pid or 'PID'}` and try again",
                code="private-redis-orphaned",
            )
        time.sleep(POLL_S)


def _check_host(home: ServerHome, record: Record | None) -> None:
    if record and record.host != platform.node():
        raise OutOfReach(
            f"HPQ_HOME {home.path} is in use on {record.host}, and its private Redis is reachable"
            " only there; set HPQ_HOME to a directory of this machine, or set HPQ_REDIS_URL",
            code="home-elsewhere",
        )


def answers(socket: str) -> bool:
    """Return whether a server answers commands at a socket; False while it loads its data."""
    with contextlib.suppress(OSError):
        # MISCONF: its disk is full; it refuses writes and answers reads.
        return keeper.ask(socket, "PING").startswith(("+PONG", "-MISCONF"))
    return False


def _listens(socket: str) -> bool:
    try:
        keeper.ask(socket, "PING")
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    except OSError:
        return True  # slow, or stopping
    return True


def _last_log_line(home: ServerHome) -> str:
    with contextlib.suppress(OSError):
        lines = home.log.read_text(encoding="utf-8", errors="replace").split("\n")
        if written := [line.strip() for line in lines if line.strip()]:
            return f"{_LOG_STAMP.sub('', written[-1])} ({home.log})"
    return f"{home.log} is empty"
