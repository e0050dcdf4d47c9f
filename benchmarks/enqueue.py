"""Measure the time to queue a grid, and RQ's two ways to queue the same jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks import peers
from benchmarks.figures import Figure, in_turn
from benchmarks.processes import HPQ, wall_s
from benchmarks.server import Server, private_server
from benchmarks.sweeps import put, write_grid
from hpq_producer.sweepfile.load import load
from hpq_producer.sweepfile.spec import parameter_sets

_SINGLY = 2_000  # jobs of the slowest peer
_MANY = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost per set; the rate is in sets per second."""

    rate: float
    client_us: float
    server_us: float


def measure(rounds: int) -> Iterator[Figure]:
    """Measure whole processes against their targets, then calls in process against RQ's."""
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
    every = list(parameter_sets(load(file)))
    found = in_turn(
        rounds,
        {
            "hpq": lambda: _cost(server, _MANY, lambda: put(server, file)),
            "many": lambda: _cost(server, _MANY, lambda: peers.enqueue_many(server.redis, every)),
            "singly": lambda: _cost(
                server, _SINGLY, lambda: peers.enqueue(server.redis, every[:_SINGLY])
            ),
        },
    )
    for name, unit, pick in _COSTS:
        ours = Figure(
            what=f"hpq, file read and enqueued in process, {name}",
            unit=unit,
            values=[pick(cost) for cost in found["hpq"]],
            more_is_better=unit == "sets/s",
        )
        yield ours
        yield ours.peer(f"rq enqueue_many, 500 a call, {name}", [pick(c) for c in found["many"]])
        yield ours.peer(f"rq enqueue, one by one, {name}", [pick(c) for c in found["singly"]])


_COSTS: Sequence[tuple[str, str, Callable[[Cost], float]]] = (
    ("wall time", "sets/s", lambda cost: cost.rate),
    ("CPU of the client", "µs/set", lambda cost: cost.client_us),
    ("CPU of Redis", "µs/set", lambda cost: cost.server_us),
)


def _cost(server: Server, count: int, work: Callable[[], object]) -> Cost:
    server.empty()
    server_s, client_s, wall_s = server.usage().cpu_s, time.process_time(), time.perf_counter()
    work()
    wall_s, client_s = time.perf_counter() - wall_s, time.process_time() - client_s
    return Cost(
        rate=count / wall_s,
        client_us=1e6 * client_s / count,
        server_us=1e6 * (server.usage().cpu_s - server_s) / count,
    )
