"""The keeper: the small process that owns the private server of one HPQ_HOME, and stops it.

`launch` runs this file by its path, as `python -I -S keeper.py HOME FD`, so that nothing in the
user's directory is imported in its place: it needs the standard library only. Four flocks in
HPQ_HOME say which processes are there, and the kernel frees those of a killed process:
  users.lock   shared by every process that uses the server, exclusive while it is being stopped;
               it contains for how many seconds the server stays after its last user
  start.lock   exclusive, by the one process that sees to it that the server runs
  keeper.lock  held by the keeper, from before it exists
  server.lock  held by the server itself: one server at most ever has the data open
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time

USERS, START, KEEPER, SERVER = "users.lock", "start.lock", "keeper.lock", "server.lock"
RECORD = "server.json"
DATA = "redis"  # the server's directory, in HPQ_HOME

UNUSED, TOLD, DIED = "unused", "told", "died"  # why a server is no longer watched

QUIET_S = 60.0
RESTARTS = 5
LOOK_S = 1.0
REWRITE_S = 30.0
STOP_S = 30.0


def open_lock(path: str | os.PathLike[str]) -> int:
    """A descriptor of a lock file, made if need be; children do not inherit it."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(fd: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Take a flock if it is free now."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def ask(path: str, command: str, *, timeout_s: float = 5.0) -> str:
    """Send one inline command and read its reply, as far as a status or bulk reply goes.

    Raises:
        OSError: the server does not answer.
    """
    with socket.socket(socket.AF_UNIX) as wire:
        wire.settimeout(timeout_s)
        wire.connect(path)
        wire.sendall(command.encode() + b"\r\n")
        with wire.makefile("rb") as reply:
            head = reply.readline()
            body = reply.read(int(head[1:])) if head.startswith(b"$") else head
    return body.decode(errors="replace").strip()


def write_record(home: str | os.PathLike[str], record: dict[str, object]) -> None:
    """Replace server.json as a whole."""
    path = os.path.join(home, RECORD)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(record, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


def main(home: str, server_lock: int) -> None:
    """Start the server that server.json names, again if it dies in use, and stop it at last."""
    if os.fork():
        os._exit(0)  # whoever started us keeps no child to wait for
    os.umask(0o077)
    wake = _wake_on_signals()
    users = open_lock(os.path.join(home, USERS))
    with open(os.path.join(home, RECORD), encoding="utf-8") as file:
        record: dict[str, object] = json.load(file)
    address = str(record["socket"])
    end, starts = DIED, 0
    while end == DIED and starts <= RESTARTS:  # one that cannot start is not tried for ever
        if starts:
            server_lock = open_lock(os.path.join(home, SERVER))
            fcntl.flock(server_lock, fcntl.LOCK_EX)  # a child of the dead one may hold it briefly
        starts += 1
        server = _start(str(record["path"]), address, os.path.join(home, DATA), server_lock)
        try:
            write_record(home, {**record, "server_pid": server.pid, "keeper_pid": os.getpid()})
            end = _watch(server, users, wake)
            if end == UNUSED:
                _rewrite(address)
        finally:
            _stop(server)
    if os.fstat(users).st_nlink:  # else another home of the same name may be using the address
        with contextlib.suppress(FileNotFoundError):
            os.unlink(address)
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(address))


def _wake_on_signals() -> int:
    """A descriptor that is readable after a signal: the server ended, stop now, or look now."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGCONT):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    return reader


def _start(binary: str, address: str, data: str, lock: int) -> subprocess.Popen[bytes]:
    options = {
        "port": "0",
        "unixsocket": address,
        "unixsocketperm": "700",
        "dir": data,
        "save": "",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "aof-load-truncated": "yes",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    server = subprocess.Popen(
        [binary, *words], stdin=subprocess.DEVNULL, pass_fds=(lock,), start_new_session=True
    )
    os.close(lock)
    return server


def _watch(server: subprocess.Popen[bytes], users: int, wake: int) -> str:
    """Wait for the server's end or a reason for it: UNUSED, TOLD, or DIED under its users.

    When it is unused the exclusive lock is held, and stays so until this process is gone.
    """
    last_use_s, seen_ns = time.monotonic(), 0
    while server.poll() is None:
        ready, _, _ = select.select([wake], [], [], LOOK_S)
        if ready and signal.SIGTERM in os.read(wake, 512):
            return TOLD
        lock_file = os.fstat(users)
        if lock_file.st_nlink == 0:  # HPQ_HOME was removed
            return TOLD
        unused = try_lock(users)
        # A command shorter than the time between two looks is known by what it wrote.
        if not unused or lock_file.st_mtime_ns != seen_ns:
            last_use_s, seen_ns = time.monotonic(), lock_file.st_mtime_ns
        if unused and time.monotonic() - last_use_s >= _linger_s(users):
            return UNUSED
        if unused:
            fcntl.flock(users, fcntl.LOCK_UN)
    return TOLD if try_lock(users) else DIED


def _linger_s(users: int) -> float:
    try:
        return float(os.pread(users, 32, 0))
    except ValueError:  # empty: the disk was full
        return QUIET_S


def _rewrite(address: str) -> None:
    """Have the append-only file rewritten, so that the next start is quick; it may fail."""
    until_s = time.monotonic() + REWRITE_S
    with contextlib.suppress(OSError):
        ask(address, "BGREWRITEAOF")
        while time.monotonic() < until_s:
            state = ask(address, "INFO persistence")
            if "aof_rewrite_in_progress:0" in state and "aof_rewrite_scheduled:0" in state:
                return
            time.sleep(0.01)


def _stop(server: subprocess.Popen[bytes]) -> None:
    """End the server as SHUTDOWN does, by a signal: an address may be another server's by now."""
    server.terminate()
    try:
        server.wait(STOP_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
