"""A primary with two replicas and a real Sentinel on loopback, for one test."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError, ResponseError

from tests.support.constants import DEADLINE_S
from tests.support.server import find_server

NAME, PASSWORD = "hpq-primary", "of-the-servers"
_CONF = """
port {port}
dir {folder}
sentinel monitor {name} 127.0.0.1 {primary} 1
sentinel auth-pass {name} {password}
sentinel down-after-milliseconds {name} 1500
sentinel failover-timeout {name} 3000
sentinel parallel-syncs {name} 2
"""
# A Sentinel of production looks less often. It promotes no replica whose last answer is older than
# five pings: a busy machine takes a second to answer.
_QUICK = ("info-period", 100, "ping-period", 300, "publish-period", 100, "ask-period", 100)


# libfaketime does not start with jemalloc. Redis reads its clock by this function alone.
_CLOCK = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
  long done = syscall(SYS_gettimeofday, tv, zone);
  if (done == 0) tv->tv_sec += atoi(getenv("AHEAD_S"));
  return (int)done;
}
"""


def clock(folder: Path, ahead_s: int) -> dict[str, str]:
    """Return the environment of a server whose clock is ahead by so many seconds."""
    library = folder / "clock.so"
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=_CLOCK.encode(), check=True)
    return {"LD_PRELOAD": str(library), "AHEAD_S": str(ahead_s)}


class Failover:
    """Three servers, of which one is the primary, and the Sentinel that chooses it."""

    def __init__(self, folder: Path, environs: Sequence[Mapping[str, str]] = ()) -> None:
        self._folder = folder
        self.ports = [_free_port() for _ in range(3)]
        self._environs = dict(zip(self.ports, environs, strict=False))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        sentinel, dead = _free_port(), _free_port()
        self._sentinel = sentinel
        self.sentinel = Redis(port=sentinel, decode_responses=True)
        # The first of the two does not answer: clients must ask the other.
        self.url = f"redis+sentinel://:{PASSWORD}@127.0.0.1:{dead},127.0.0.1:{sentinel}/{NAME}/0"
        try:
            self._begin(sentinel)
        except BaseException:  # pytest would not end the others
            self.end()
            raise

    def _begin(self, sentinel: int) -> None:
        for number, port in enumerate(self.ports):
            self.start(port, 0 if number == 0 else self.ports[0])
        path = self._folder / "sentinel.conf"
        conf = _CONF.format(
            port=sentinel, folder=self._folder, name=NAME, password=PASSWORD, primary=self.ports[0]
        )
        path.write_text(conf, "utf-8")
        program = shutil.which("redis-sentinel")
        assert program is not None
        self._run(sentinel, [program, str(path)])
        self._until(lambda: self.sentinel.ping(), "the Sentinel to answer")
        self.sentinel.execute_command("SENTINEL", "DEBUG", *_QUICK)
        self.settle()

    def _run(self, port: int, command: list[str]) -> None:
        environ = {**os.environ, **self._environs.get(port, {})}
        with (self._folder / f"{port}.log").open("ab") as log:
            self._processes[port] = subprocess.Popen(command, stdout=log, stderr=log, env=environ)

    def start(self, port: int, primary: int) -> None:
        """Start a server, with the data that it has; `primary` 0: as a primary."""
        folder = self._folder / str(port)
        folder.mkdir(exist_ok=True)
        of = ["--replicaof", f"127.0.0.1 {primary}"] if primary else []
        self._run(port, [find_server(), "--port", str(port), "--bind", "127.0.0.1", "--save", "",
                         "--appendonly", "yes", "--dir", str(folder), "--requirepass", PASSWORD,
                         "--masterauth", PASSWORD, "--repl-diskless-sync-delay", "0",
                         "--repl-ping-replica-period", "1", *of])  # fmt: skip

    def client(self, port: int) -> Redis:
        """Return a client of one server, which follows no failover."""
        return Redis(port=port, password=PASSWORD, decode_responses=True, socket_timeout=5)

    @property
    def primary(self) -> int:
        """The port of the primary, by the Sentinel."""
        return int(self.sentinel.sentinel_get_master_addr_by_name(NAME)[1])

    @property
    def replicas(self) -> list[int]:
        """The ports of the other servers."""
        return [port for port in self.ports if port != self.primary]

    def pause(self, port: int) -> None:
        """Stop a server's process: it acknowledges nothing, and loses nothing."""
        self._processes[port].send_signal(19)

    def cut(self, port: int) -> None:
        """End the replication to a paused server, which cannot begin it again."""
        primary = self.client(self.primary)
        primary.config_set("repl-timeout", 1)
        self._until(lambda: primary.info("replication")["connected_slaves"] == 1, "the cut")

    def resume(self, port: int) -> None:
        """Continue a server's process."""
        self._processes[port].send_signal(18)

    def kill(self, port: int) -> None:
        """kill -9."""
        self._processes[port].kill()
        self._processes[port].wait()

    def switch(self, *, kills: bool) -> None:
        """Let the Sentinel promote a replica: by its command, or by the death of the primary.

        A primary that was killed returns as a replica.
        """
        before = self.primary
        if kills:
            self.kill(before)
        # A Sentinel gives up a failover that it was asked for if no replica answered lately.
        self._until(
            lambda: self.primary != before or (not kills and self._ask_for_failover()),
            "another primary",
        )
        if kills:
            self.start(before, self.primary)
        self.settle()

    def _ask_for_failover(self) -> None:
        with suppress(ResponseError):  # NOGOODSLAVE: it has not heard of the replicas yet; INPROG
            self.sentinel.execute_command("SENTINEL", "FAILOVER", NAME)

    def settle(self) -> None:
        """Wait until both replicas follow the primary, and the Sentinel knows it."""
        self._until(self._is_settled, "two replicas in step")

    def _is_settled(self) -> bool:
        info = self.client(self.primary).info("replication")
        states = [info.get(f"slave{i}", {}).get("state") for i in range(2)]
        known = [
            one["master-link-status"] == "ok"
            for one in self.sentinel.sentinel_slaves(NAME)
            if not (one["is_sdown"] or one["is_disconnected"])
        ]
        return info["role"] == "master" and states == ["online"] * 2 and known == [True] * 2

    def _until(self, is_so: Callable[[], object], what: str) -> None:
        until = time.monotonic() + DEADLINE_S
        while True:
            try:
                if is_so():
                    return
            except RedisError:
                pass
            assert time.monotonic() < until, f"not in time: {what}\n{self._log()}"
            time.sleep(0.02)

    def _log(self) -> str:
        """Return the last lines of the Sentinel's log."""
        log = self._folder / f"{self._sentinel}.log"
        return "".join(log.read_text("utf-8").splitlines(keepends=True)[-60:])

    def end(self) -> None:
        """End all processes, and remove their data."""
        for process in self._processes.values():
            process.kill()
            process.wait()
        shutil.rmtree(self._folder)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
