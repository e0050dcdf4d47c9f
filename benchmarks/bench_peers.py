"""Compare an empty job of hpq with its peers': `python -m benchmarks.bench_peers [--page FILE]`.

`make bench-peers` creates the environments of the peers in .peers, from queues/requirements.txt.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from redis import Redis

from benchmarks import page
from benchmarks.cost import HPQ, Cost, IsOver, Queue, cost, middle, rq
from benchmarks.figures import in_turn
from benchmarks.processes import ROOT, CpuWatch, descendants, environment
from benchmarks.server import Server, private_server
from benchmarks.table import aligned, conditions, number

_APPS = ROOT / "benchmarks" / "queues"
_ENVIRONMENTS = ROOT / ".peers"
_JOBS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A peer with a worker of one job at a time, and how to see that its jobs are done."""

    name: str
    place: str  # of its environment
    module: str  # in queues/
    worker: str
    results: Callable[[Redis], object] | None = None  # grows by one with each job
    waiting: Sequence[str] = ()  # else keys that are there as long as jobs wait or run
    jobs: int = _JOBS

    def queue(self) -> Queue:
        """Return how to measure this peer."""
        env = {"PYTHONPATH": str(_APPS)}
        program, *words = self.worker.split()

        def fill(server: Server, jobs: int) -> IsOver:
            redis, results = server.redis, self.results
            goal = int(results(redis) or 0) + jobs if results else 0  # type: ignore[call-overload]
            command = (_bin(self.place, "python"), str(_APPS / "fill.py"), self.module, str(jobs))
            more = environment({**server.env, **env})
            subprocess.run(command, env=more, check=True, capture_output=True)
            if results:
                return lambda: int(results(redis) or 0) >= goal  # type: ignore[call-overload]
            return lambda: not redis.exists(*self.waiting)

        command = (_bin(self.place, program), *words)
        return Queue(name=self.name, worker=lambda _: command, fill=fill, env=env)


def _bin(place: str, program: str) -> str:
    return str(_ENVIRONMENTS / place / "bin" / program)


_CELERY = "celery -A with_celery worker --loglevel error --pool"
_UNACKED = ("celery", "unacked")
PEERS = (
    Peer(
        name="Celery solo, acks_late",
        place="tasks",
        module="with_celery",
        worker=f"{_CELERY} solo",
        waiting=_UNACKED,
    ),
    Peer(
        name="Celery prefork 1, acks_late",
        place="tasks",
        module="with_celery",
        worker=f"{_CELERY} prefork --concurrency 1",
        waiting=_UNACKED,
    ),
    Peer(
        name="Dramatiq with results",
        place="tasks",
        module="with_dramatiq",
        worker="dramatiq with_dramatiq --processes 1 --threads 1",
        waiting=["dramatiq:default.msgs"],
    ),
    Peer(
        name="saq",
        place="saq",
        module="with_saq",
        worker="saq with_saq.settings",
        waiting=["saq:default:incomplete"],
    ),
    Peer(
        name="arq",
        place="arq",
        module="with_arq",
        worker="arq with_arq.Worker",
        waiting=["arq:queue"],
        jobs=100,  # of more, it leaves some to its next look, half a second later
    ),
    Peer(
        name="taskiq, stream with results",
        place="tasks",
        module="with_taskiq",
        worker="taskiq worker with_taskiq:broker --workers 1 --max-async-tasks 1",
        results=Redis.dbsize,
    ),
    Peer(
        name="huey",
        place="tasks",
        module="with_huey",
        worker="huey_consumer with_huey.huey --workers 1 --quiet",
        results=lambda redis: redis.hlen("huey.results.peer"),
    ),
    Peer(
        name="Optuna, journal on Redis",
        place="tasks",
        module="with_optuna",
        worker=f"python {_APPS / 'with_optuna.py'} journal",
        results=lambda redis: redis.get("ran"),
        jobs=300,  # its journal makes each trial dearer than the last
    ),
)
_COLUMNS: Sequence[tuple[str, Callable[[Cost], float]]] = (
    ("worker ms", lambda c: c.worker_ms),
    ("Redis µs", lambda c: c.redis_us),
    ("commands", lambda c: c.executed),
    ("round trips", lambda c: c.trips),
    ("bytes in", lambda c: c.bytes_in),
    ("bytes a finished job", lambda c: c.finished_bytes),
    ("jobs/s", lambda c: c.rate),
)


def queues(server: Server, rounds: int) -> str:
    """Measure hpq and the job queues in turn; return a table of the medians."""
    each = [(HPQ, _JOBS), (rq("SimpleWorker"), _JOBS), (rq("Worker"), _JOBS // 6)]
    each += [(peer.queue(), peer.jobs) for peer in PEERS]
    calls = {queue.name: partial(_told, server, queue, jobs) for queue, jobs in each}
    rows = [["an empty job", *(name for name, _ in _COLUMNS)]]
    for name, found in in_turn(rounds, calls).items():
        rows.append([name, *(number(pick(middle(found))) for _, pick in _COLUMNS)])
    return aligned(rows)


def _told(server: Server, queue: Queue, jobs: int) -> Cost:
    print(f"{queue.name} …", file=sys.stderr, flush=True)
    return cost(server, queue, jobs)


# Programs of trials without a queue: file and words, environment, trials, rounds.
_STUDIES = {
    "Optuna in memory": (("with_optuna.py", "memory"), "tasks", 1_000, 5),
    "Ray Tune": (("with_ray.py",), "ray", 5, 1),
    "Ray Tune, reuse_actors": (("with_ray.py", "reuse_actors"), "ray", 10, 1),
}


def studies(server: Server) -> str:
    """Measure an empty trial of programs without a queue, beside hpq; return a table."""
    rows = [["an empty trial", "wall ms", "CPU ms", "trials, rounds"]]
    for name, queue in (("hpq", HPQ), ("Optuna, journal on Redis", PEERS[-1].queue())):
        found = middle([_told(server, queue, _JOBS // 2) for _ in range(3)])
        cpu_ms = found.worker_ms + found.redis_us / 1e3
        rows.append([name, number(1e3 / found.rate), number(cpu_ms), f"{_JOBS // 2}, 3"])
    for name, (words, place, trials, rounds) in _STUDIES.items():
        print(f"{name} …", file=sys.stderr, flush=True)
        found_s = [_study(words, place, trials) for _ in range(rounds)]
        middles = (number(1e3 * median(values) / trials) for values in zip(*found_s, strict=True))
        rows.append([name, *middles, f"{trials:,}, {rounds}"])
    return aligned(rows)


def _study(words: Sequence[str], place: str, trials: int) -> tuple[float, float]:
    """Return the wall and the CPU seconds of trials, after one that is not counted."""
    process = subprocess.Popen(
        (_bin(place, "python"), str(_APPS / words[0]), *words[1:]),
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        bufsize=1,
    )
    assert process.stdin and process.stdout
    watch = CpuWatch(process.pid)
    watch.start()

    def run(count: int) -> None:
        process.stdin.write(f"{count}\n")  # type: ignore[union-attr]
        if process.stdout.readline() != "done\n":  # type: ignore[union-attr]
            raise SystemExit(f"benchmarks: {words[0]} ended")

    try:
        run(1)
        cpu_s, begun = watch.used_s(), time.perf_counter()
        run(trials)
        return time.perf_counter() - begun, watch.used_s() - cpu_s
    finally:
        watch.stop()
        left = descendants(process.pid)
        process.communicate()
        for pid in left[1:]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def main() -> None:
    """Measure both tables; print them, or write them into a page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_peers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--page", type=Path, help="write the tables into this page, too")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with private_server() as server:
        about = conditions(server.version)
        tables = {
            "peers": partial(queues, server, args.rounds),
            "studies": partial(studies, server),
        }
        for name, measure in tables.items():
            table = measure()
            print(table, flush=True)
            if args.page:
                page.write(args.page, name, table, about)


if __name__ == "__main__":
    main()
