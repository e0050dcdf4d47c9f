"""Run empty trials through one worker: the overhead of the queue per trial."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from redis import Redis

from benchmarks import peers
from benchmarks.figures import Figure
from benchmarks.processes import RQ, WORKER, cpu_s, running
from benchmarks.server import Server, private_server, wait_size
from benchmarks.sweeps import put, wait_over, write_trials
from hpq.store.keys import Keys

_TRIALS, _FEW = 1_000, 100
_SIMPLE, _FORKING = "rq.worker.SimpleWorker", "rq.worker.Worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The overhead of one trial."""

    rate: float  # trials/s
    executed: float  # commands, including those inside scripts
    server_ms: float  # CPU of Redis
    worker_ms: float  # CPU of the worker's parent and of children that have ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A warm, waiting worker, and a function that queues its work."""

    server: Server
    pid: int
    fill: Callable[[int], tuple[str, int]]  # returns the key of ended jobs, and their number

    def run(self, count: int, during: Callable[[], object] = lambda: None) -> Cost:
        """Drain `count` jobs; the worker is stopped while they are queued, so that only its own
        work is counted."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            done, size = self.fill(count)
            during()
            before = self._used()
        finally:
            os.kill(self.pid, signal.SIGCONT)
        begun = time.perf_counter()
        wait_size(self.server, done, size)
        wall_s = time.perf_counter() - begun
        used = [b - a for a, b in zip(before, self._used(), strict=True)]
        return Cost(
            rate=count / wall_s,
            executed=used[0] / count,
            server_ms=1000 * used[1] / count,
            worker_ms=1000 * used[2] / count,
        )

    def _used(self) -> tuple[float, float, float]:
        return self.server.commands(), self.server.cpu_s(), cpu_s(self.pid)


def measure(rounds: int) -> Iterator[Figure]:
    """Measure from a worker's first claim to its last result."""
    with private_server() as server:
        ours, theirs = [], []
        for _ in range(rounds):
            with _hpq(server) as load:
                ours.append(load.run(_TRIALS))
            with _rq(server, _SIMPLE) as load:
                theirs.append(load.run(_TRIALS))
        with _rq(server, _FORKING) as load:
            forked = load.run(_FEW)
        with _hpq(server) as load:
            sent = _sent(server, load)
        with _rq(server, _SIMPLE) as load:
            sent_by_rq = _sent(server, load)
    rate = Figure(
        what="hpq, resident runner",
        unit="trials/s",
        values=[cost.rate for cost in ours],
        more_is_better=True,
    )
    yield rate
    yield rate.peer("rq SimpleWorker", [cost.rate for cost in theirs])
    yield rate.peer("rq Worker, a fork a job", [forked.rate])
    own = Figure(what="hpq, commands sent a trial", unit="", values=[sent])
    yield own
    yield own.peer("rq SimpleWorker, commands sent a job", [sent_by_rq])
    for name, unit, pick in _COSTS:
        figure = Figure(what=f"hpq, {name} a trial", unit=unit, values=[pick(c) for c in ours])
        yield figure
        yield figure.peer(f"rq SimpleWorker, {name} a job", [pick(c) for c in theirs])


_COSTS: Sequence[tuple[str, str, Callable[[Cost], float]]] = (
    ("commands executed, in scripts too,", "", lambda c: c.executed),
    ("CPU of Redis", "ms", lambda c: c.server_ms),
    ("CPU of the worker's parent", "ms", lambda c: c.worker_ms),
)


@contextmanager
def _hpq(server: Server) -> Iterator[Load]:
    server.empty()

    def fill(count: int) -> tuple[str, int]:
        file = write_trials(server.folder, "stamps:nothing", count, resident=True)
        return Keys().sweep(put(server, file), "ended"), count

    with running(WORKER, server.env) as pid:
        # The runner is warm, as RQ's worker is.
        warm_up = write_trials(server.folder, "stamps:nothing", 1, resident=True)
        wait_over(server, put(server, warm_up))
        yield Load(server=server, pid=pid, fill=fill)


@contextmanager
def _rq(server: Server, worker: str) -> Iterator[Load]:
    server.empty()

    def fill(count: int) -> tuple[str, int]:
        peers.enqueue_calls(server.redis, peers.train, count)
        return peers.FINISHED, count + 1

    words = (*RQ, "worker", "--quiet", "--url", server.url, "--worker-class", worker)
    with running(words) as pid:
        peers.enqueue_calls(server.redis, peers.train, 1)
        wait_size(server, peers.FINISHED, 1)
        yield Load(server=server, pid=pid, fill=fill)


def _sent(server: Server, load: Load) -> float:
    """Count the commands that a worker sends per job, by MONITOR in a separate run."""
    counter = _Counter(server.url)
    load.run(_FEW, during=counter.start)
    return counter.stop(server.redis) / _FEW


class _Counter(threading.Thread):
    """Counts the commands of clients, except those of the benchmark itself."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._redis, self._count = Redis.from_url(url), 0
        self._listens = threading.Event()

    def start(self) -> None:
        """Start counting."""
        super().start()
        self._listens.wait()

    def run(self) -> None:
        """Listen until `stop`."""
        with self._redis.monitor() as monitor:  # type: ignore[no-untyped-call]
            self._listens.set()
            for seen in monitor.listen():
                words = seen["command"].split()
                if words[0] == "ECHO":
                    return
                if seen["client_type"] != "lua" and words[0] not in ("ZCARD", "INFO"):
                    self._count += 1

    def stop(self, redis: Redis) -> int:
        """Stop; return the number of commands."""
        redis.echo("done")
        self.join()
        self._redis.close()
        return self._count
