"""How long it takes to put a grid on the queue, beside RQ's two ways to put the same jobs there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from benchmarks import peers
from benchmarks.figures import Figure, in_turn
from benchmarks.processes import HPQ, wall_s
from benchmarks.server import Server, private_server
from benchmarks.sweeps import put, write_grid
from producer.sweepfile.load import load
from producer.sweepfile.spec import sets

_SINGLY = 2_000  # jobs of the slowest peer
_MANY = 10_000


def measure(rounds: int) -> Iterator[Figure]:
    """Whole processes against their targets, then the calls in them against RQ's."""
    with private_server() as server:
        yield from _processes(server, rounds)
        yield from _calls(server, rounds)


def _processes(server: Server, rounds: int) -> Iterator[Figure]:
    for count, target_s in ((10_000, 1.0), (100_000, 10.0)):
        file = write_grid(server.folder, count)
        server.empty()
        command = (*HPQ, "enqueue", str(file), "--new")
        found = [wall_s(command, server.env) for _ in range(rounds)]
        yield Figure(what=f"hpq enqueue, {count:,} sets", unit="s", values=found, target=target_s)


def _calls(server: Server, rounds: int) -> Iterator[Figure]:
    file = write_grid(server.folder, _MANY)
    every = list(sets(load(file)))

    def rate(count: int, work: Callable[[], object]) -> Callable[[], float]:
        def run() -> float:
            server.empty()
            begun = time.perf_counter()
            work()
            return count / (time.perf_counter() - begun)

        return run

    calls = {
        "hpq": rate(_MANY, lambda: put(server, file)),
        "many": rate(_MANY, lambda: peers.enqueue_many(server.redis, every)),
        "singly": rate(_SINGLY, lambda: peers.enqueue(server.redis, every[:_SINGLY])),
    }
    found = in_turn(rounds, calls)
    ours = Figure(
        what="hpq, read the file and enqueue, in process",
        unit="sets/s",
        values=found["hpq"],
        more_is_better=True,
    )
    yield ours
    yield ours.peer("rq enqueue_many, 500 a call", found["many"])
    yield ours.peer("rq enqueue, one by one", found["singly"])
