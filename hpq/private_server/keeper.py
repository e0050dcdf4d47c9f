"""The keeper: the process that starts, watches and stops the private server of one HPQ_HOME.

`attach` runs this file as `python -I -S keeper.py HOME FD`, so that no module of the user's
directory is imported. It needs only the standard library. Four flocks in HPQ_HOME show which
processes run; the kernel releases those of a killed process:
  users.lock   shared by every process that uses the server, exclusive while the keeper stops it;
               the file contains for how many seconds the server stays after its last user
  start.lock   exclusive for the process that starts the server
  keeper.lock  held by the keeper; its parent takes it before the fork
  server.lock  held by the server: at most one server has the data open
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

USERS = "users.lock"
START = "start.lock"
KEEPER = "keeper.lock"
SERVER = "server.lock"
RECORD = "server.json"
DATA_DIR = "redis"  # the server's directory, in HPQ_HOME

# Why a server ended.
UNUSED = "unused"
STOPPED = "stopped"
DIED = "died"

DURABLE = {  # options of a server that loses at most a second
    "save": "",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "aof-load-truncated": "yes",
    "maxmemory-policy": "noeviction",
    "daemonize": "no",
}

QUIET_S = 60.0
RESTART_S = 2.0  # between two starts of a server that dies: at most 30 a minute
LOCK_POLL_S = 0.1
POLL_S = 1.0
REWRITE_S = 30.0
STOP_S = 30.0


def open_lock(path: str | os.PathLike[str]) -> int:
    """Open a lock file, and create it if it is missing; children do not inherit the descriptor."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def try_lock(fd: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Take a flock without waiting; return whether it was free."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def ask(path: str, command: str, *, timeout_s: float = 5.0) -> str:
    """Send one inline command and return its status reply or bulk reply.

    Raises:
        OSError: the server does not answer.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_s)
        connection.connect(path)
        connection.sendall(command.encode() + b"\r\n")
        with connection.makefile("rb") as reply:
            head = reply.readline()
            body = reply.read(int(head[1:])) if head.startswith(b"$") else head
    return body.decode(errors="replace").strip()


def write_record(home: str | os.PathLike[str], record: dict[str, object]) -> None:
    """Replace server.json atomically."""
    path = os.path.join(home, RECORD)
    fd = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        json.dump(record, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


def main(home: str, server_lock: int) -> None:
    """Start the server that server.json names, restart it if it dies in use, and stop it."""
    os.umask(0o077)  # of the server's files
    if os.fork():
        os._exit(0)  # the caller waits for this process only
    os.umask(0o077)
    wake = _wake_on_signals()
    users = open_lock(os.path.join(home, USERS))
    with open(os.path.join(home, RECORD), encoding="utf-8") as file:
        record: dict[str, object] = json.load(file)
    server_socket = str(record["socket"])
    lock: int | None = server_lock
    is_first = True
    while lock is not None:
        started_s = time.monotonic()
        server = _start(str(record["path"]), server_socket, os.path.join(home, DATA_DIR), lock)
        try:
            with contextlib.suppress(OSError):  # a full disk keeps the record of the start before
                write_record(home, {**record, "server_pid": server.pid, "keeper_pid": os.getpid()})
            end = _watch(server, users, wake)
            if end == UNUSED:
                _rewrite(server_socket)
        finally:
            _stop(server)
        again_s = started_s + RESTART_S
        if is_first and server.returncode > 0 and time.monotonic() < again_s:
            break  # it cannot start; `launch` quotes its log
        is_first = False
        lock = _lock_again(home, users, wake, again_s) if end == DIED else None
    if os.fstat(users).st_nlink:  # else a new home of the same name may use this socket
        with contextlib.suppress(FileNotFoundError):
            os.unlink(server_socket)
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(server_socket))


def _wake_on_signals() -> int:
    """Return a descriptor that is readable after SIGCHLD, SIGTERM (stop) or SIGCONT (check now)."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGCONT):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    return reader


def _start(binary: str, server_socket: str, data_dir: str, lock: int) -> subprocess.Popen[bytes]:
    own = {"port": "0", "unixsocket": server_socket, "unixsocketperm": "700", "dir": data_dir}
    options = {**DURABLE, **own}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    server = subprocess.Popen(
        [binary, *words], stdin=subprocess.DEVNULL, pass_fds=(lock,), start_new_session=True
    )
    os.close(lock)
    return server


def _watch(server: subprocess.Popen[bytes], users: int, wake: int) -> str:
    """Wait until the server is UNUSED, must be STOPPED, or DIED; return which.

    If it is unused, this process keeps the exclusive lock until it exits.
    """
    last_use_s, mtime_ns = time.monotonic(), 0
    while server.poll() is None:
        if _is_stopped(wake, POLL_S):
            return STOPPED
        lock_file = os.fstat(users)
        if lock_file.st_nlink == 0:  # HPQ_HOME was removed
            return STOPPED
        unused = try_lock(users)
        # A command may begin and end between two polls, but it writes the file.
        if not unused or lock_file.st_mtime_ns != mtime_ns:
            last_use_s, mtime_ns = time.monotonic(), lock_file.st_mtime_ns
        if unused and time.monotonic() - last_use_s >= _linger_s(users):
            return UNUSED
        if unused:
            fcntl.flock(users, fcntl.LOCK_UN)
    return DIED


def _lock_again(home: str, users: int, wake: int, not_before_s: float) -> int | None:
    """Return the lock of the dead server when it may start again; None if no process uses it.

    The lock is free when no child of the dead server writes its file any more. If it returns None,
    this process keeps the exclusive lock of the users until it exits.
    """
    # After a removal of HPQ_HOME, its users hold a file that has no name.
    while os.fstat(users).st_nlink and not try_lock(users):
        if _is_stopped(wake, LOCK_POLL_S):
            break
        if time.monotonic() >= not_before_s:
            lock = open_lock(os.path.join(home, SERVER))
            if try_lock(lock):
                return lock
            os.close(lock)
    return None


def _is_stopped(wake: int, wait_s: float) -> bool:
    """Wait for a signal for so long; return True if SIGTERM came."""
    ready, _, _ = select.select([wake], [], [], wait_s)
    return bool(ready) and signal.SIGTERM in os.read(wake, 512)


def _linger_s(users: int) -> float:
    try:
        return float(os.pread(users, 32, 0))
    except ValueError:  # empty: the disk was full
        return QUIET_S


def _rewrite(server_socket: str) -> None:
    """Rewrite the append-only file, so that the next start is quick; ignore failures."""
    until_s = time.monotonic() + REWRITE_S
    with contextlib.suppress(OSError):
        ask(server_socket, "BGREWRITEAOF")
        while time.monotonic() < until_s:
            state = ask(server_socket, "INFO persistence")
            if "aof_rewrite_in_progress:0" in state and "aof_rewrite_scheduled:0" in state:
                return
            time.sleep(0.01)


def _stop(server: subprocess.Popen[bytes]) -> None:
    """Stop the server by a signal: SHUTDOWN could reach another server at the socket."""
    server.terminate()
    try:
        server.wait(STOP_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
