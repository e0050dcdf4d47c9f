"""Measure what a job costs: the CPU time of the worker and of Redis, requests and memory.

The figures are those of /proc and of INFO, so they depend on no internals of a queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks import peers
from benchmarks.figures import in_turn
from benchmarks.processes import RQ, WORKER, cpu_s, running, stopped
from benchmarks.server import Server, wait
from benchmarks.sweeps import put, write_trials
from hpq.store import scripts
from hpq.store.keys import Keys

_DIGITS = """
trainer: digits
method: grid
metric: {{name: test/acc, goal: maximize}}
parameters:
  max_learning_rate: {{values: {rates}}}
  epochs: {{value: 200}}
  batch_size: {{value: 1024}}
  hidden: {{value: 8}}
"""
IsOver = Callable[[], object]  # true once all jobs are done; sends one command to Redis


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A job queue: its worker's command, and a function that enqueues a number of jobs."""

    name: str
    worker: Callable[[Server], Sequence[str]]
    fill: Callable[[Server, int], IsOver]
    warm_up: int = 10  # jobs before the measured ones
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of one job."""

    rate: float  # jobs/s
    worker_ms: float  # CPU time of all processes of the worker
    redis_us: float  # CPU time
    executed: float  # commands, including those inside scripts
    trips: float  # requests that Redis reads; a pipeline is one
    bytes_in: float
    queued_bytes: float  # in Redis, while a job waits
    finished_bytes: float  # in Redis, after a job
    commands: Mapping[str, float]


def cost(server: Server, queue: Queue, jobs: int) -> Cost:
    """Drain jobs with a warm worker, which is stopped while they are enqueued."""
    server.empty()
    env = {**server.env, **queue.env}
    with running(queue.worker(server), env, is_quiet=bool(queue.env)) as pid:
        wait(queue.fill(server, queue.warm_up), f"{queue.name}: the first jobs")
        with stopped(pid):
            empty = server.data_bytes()
            is_over = queue.fill(server, jobs)
            queued = server.data_bytes()
            worker_s, before, begun = cpu_s(pid), server.usage(), time.perf_counter()
        polls = wait(is_over, f"{queue.name}: {jobs} jobs")
        wall_s = time.perf_counter() - begun
        after, worker_s = server.usage(), cpu_s(pid) - worker_s
        finished = server.data_bytes()
    commands = after.commands - before.commands
    own = polls + 1  # the polls, and INFO
    return Cost(
        rate=jobs / wall_s,
        worker_ms=1e3 * worker_s / jobs,
        redis_us=1e6 * (after.cpu_s - before.cpu_s) / jobs,
        executed=(commands.total() - own) / jobs,
        trips=(after.reads - before.reads - own) / jobs,
        bytes_in=(after.bytes_in - before.bytes_in) / jobs,
        queued_bytes=(queued - empty) / jobs,
        finished_bytes=(finished - empty) / jobs,
        commands={name: round(n / jobs, 2) for name, n in commands.most_common()},
    )


def rounds_of(server: Server, queues: Sequence[Queue], jobs: int, rounds: int) -> list[list[Cost]]:
    """Measure queues in turn; return each queue's rounds."""
    calls = {queue.name: partial(cost, server, queue, jobs) for queue in queues}
    return list(in_turn(rounds, calls).values())


def middle(costs: Sequence[Cost]) -> Cost:
    """Return the median of each figure."""
    names = [each.name for each in fields(Cost) if each.name != "commands"]
    figures = {name: median(getattr(each, name) for each in costs) for name in names}
    return replace(costs[-1], **figures)


def _hpq(server: Server, jobs: int) -> IsOver:
    return _sweep(server, write_trials(server.folder, "stamps:once", jobs, resident=True), jobs)


def _digits(server: Server, jobs: int) -> IsOver:
    file = server.folder / "digits.yaml"
    values = [round(0.1 + i / 1e4, 4) for i in range(jobs)]
    file.write_text(_DIGITS.format(rates=values), "utf-8")
    return _sweep(server, file, jobs)


def _sweep(server: Server, file: Path, jobs: int) -> IsOver:
    for script in Path(scripts.__file__).parent.glob("lua/*.lua"):
        server.redis.script_load(scripts.source(script.stem))  # once a server, not a cost of a job
    ended = Keys().sweep(put(server, file), "ended")
    return lambda: server.redis.zcard(ended) >= jobs


def _rq(server: Server, jobs: int) -> IsOver:
    goal = server.redis.zcard(peers.FINISHED) + jobs
    peers.enqueue_calls(server.redis, peers.train, jobs)
    return lambda: server.redis.zcard(peers.FINISHED) >= goal


def rq(worker: str) -> Queue:
    """Return RQ with one of its workers."""
    command = (*RQ, "worker", "--quiet", "--worker-class", f"rq.worker.{worker}", "--url")
    return Queue(name=f"rq {worker}", worker=lambda server: (*command, server.url), fill=_rq)


HPQ = Queue(name="hpq", worker=lambda _: WORKER, fill=_hpq)
DIGITS = Queue(name="digits", worker=lambda _: WORKER, fill=_digits, warm_up=1)
