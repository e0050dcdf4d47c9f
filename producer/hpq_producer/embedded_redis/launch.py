"""Start the private server: a keeper, which starts a server, and the wait until it answers.

keeper.lock is taken before there is a keeper and handed to it, so at any moment the lock shows
whether there is one. A server without its keeper is replaced, so that each is its keeper's child.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from hpq.errors import HpqError, OutOfReach
from hpq_producer.embedded_redis import binary as server_binary
from hpq_producer.embedded_redis import keeper
from hpq_producer.embedded_redis.state import Record, ServerHome, make_private_directory, this_host

START_S = 60.0
STARTS = 2  # the second is for a server that somebody killed before it answered
POLL_S = 0.02
LOG_BYTES = 1 << 20  # a longer server.log begins again at the next start
_LOG_STAMP = re.compile(r"^\d+:\w \d+ \w+ \d+ [\d:.]+ \S ")


def ensure_running(place: ServerHome) -> Path:
    """The address of a server that answers and has its keeper; starts both where they are not.

    The caller holds start.lock, and shares users.lock.

    Raises:
        OutOfReach: no server can be found or started, or none that reads the data.
    """
    starts = 0
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s:
        keeper_lock = place.lock(keeper.KEEPER)
        try:
            if not keeper.try_lock(keeper_lock):
                record = place.read_record()
                if record and answers(record.socket):
                    return record.socket
                _check_host(place, record)
            elif starts == STARTS:
                text = f"the server of {place.path} did not start: {_last_words(place)}"
                raise OutOfReach(text, code="private-redis-failed")
            else:
                _start_keeper(place, keeper_lock)
                starts += 1
        finally:
            os.close(keeper_lock)
        time.sleep(POLL_S)
    raise OutOfReach(
        f"the server of {place.path} does not answer after {START_S:.0f} s: {_last_words(place)}:"
        " `hpq doctor` says which process to look at",
        code="private-redis-failed",
    )


def _start_keeper(place: ServerHome, keeper_lock: int) -> None:
    """Start a keeper, which starts the server; both locks are theirs from the first moment."""
    last = place.read_record()
    try:
        binary = server_binary.find(writer=last.binary if last and place.data_bytes() else None)
    except HpqError as error:
        raise OutOfReach(f"{place.data}: {error}", code=error.code) from None
    address = place.socket()
    make_private_directory(address.parent)
    place.data.mkdir(mode=0o700, exist_ok=True)
    server_lock = place.lock(keeper.SERVER)
    try:
        _stop_strays(place, last, server_lock, address)
        place.write_record(Record(binary=binary, socket=address, host=this_host()))
        keep_log = place.log.exists() and place.log.stat().st_size < LOG_BYTES
        with place.log.open("ab" if keep_log else "wb") as log:
            subprocess.run(
                [sys.executable, "-I", "-S", keeper.__file__, place.path, str(server_lock)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=place.data,
                env={k: v for k, v in os.environ.items() if not k.startswith("HPQ_")},
                pass_fds=(keeper_lock, server_lock),
                start_new_session=True,
                check=False,  # it goes on in a child of its own; what it says is in the log
            )
    finally:
        os.close(server_lock)


def _stop_strays(place: ServerHome, last: Record | None, server_lock: int, address: Path) -> None:
    """Take server.lock, ending the servers that are in the way and have no keeper.

    That is one whose keeper was killed, and one at our address whose home was removed.
    """
    until_s = time.monotonic() + keeper.STOP_S
    ended: set[Path] = set()
    while True:
        orphan = not keeper.try_lock(server_lock)
        stray = last.socket if orphan and last else address
        if not orphan and not _listens(address):
            return
        if stray not in ended:
            ended.add(stray)
            with contextlib.suppress(OSError):
                keeper.ask(str(stray), "SHUTDOWN")
        if time.monotonic() > until_s:
            pid = last.server_pid if last else 0
            raise OutOfReach(
                f"{place.path}: a server that lost its keeper still has the data open:"
                f" end it with `kill {pid or 'PID'}` and try again",
                code="private-redis-orphaned",
            )
        time.sleep(POLL_S)


def _check_host(place: ServerHome, record: Record | None) -> None:
    if record and record.host != this_host():
        raise OutOfReach(
            f"HPQ_HOME: {place.path}: in use on {record.host}, and its server can be reached there"
            " only: set HPQ_HOME to a directory of this machine's, or HPQ_REDIS_URL",
            code="home-elsewhere",
        )


def answers(address: Path) -> bool:
    """Whether a server takes commands at an address; not while it still loads its data."""
    with contextlib.suppress(OSError):
        # MISCONF: its disk is full; it refuses changes, and still answers who only looks.
        return keeper.ask(str(address), "PING").startswith(("+PONG", "-MISCONF"))
    return False


def _listens(address: Path) -> bool:
    try:
        keeper.ask(str(address), "PING")
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    except OSError:
        return True  # slow, or ending
    return True


def _last_words(place: ServerHome) -> str:
    with contextlib.suppress(OSError):
        lines = place.log.read_text(encoding="utf-8", errors="replace").split("\n")
        if words := [line.strip() for line in lines if line.strip()]:
            return f"{_LOG_STAMP.sub('', words[-1])} ({place.log})"
    return f"{place.log} says nothing"
