"""Measure the memory of Redis per queued trial, including indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks import peers
from benchmarks.figures import Figure
from benchmarks.server import Server, private_server
from benchmarks.sweeps import put, write_grid
from hpq.store.wire.fields import dumps_in_order
from hpq_producer.sweepfile.load import load
from hpq_producer.sweepfile.spec import parameter_sets

_COUNT = 10_000
_TARGET_BYTES = 450


def measure(rounds: int) -> Iterator[Figure]:
    """Measure differences of used_memory at 10,000 trials; they hardly vary between rounds."""
    with private_server() as server:
        file = write_grid(server.folder, _COUNT)
        every = list(parameter_sets(load(file)))
        own = sum(len(dumps_in_order(params)) for params in every) / _COUNT
        put(server, file)  # loads the scripts
        found = [_bytes(server, lambda: put(server, file)) for _ in range(min(rounds, 2))]
        theirs = _bytes(server, lambda: peers.enqueue_many(server.redis, every))
    yield Figure(what="parameters of a set, as JSON", unit="B", values=[own])
    ours = Figure(
        what="hpq, a queued trial, parameters and all", unit="B", values=found, target=_TARGET_BYTES
    )
    yield ours
    yield ours.peer("rq, a queued job", [theirs])
    more = Figure(what="hpq, beside the parameters", unit="B", values=[v - own for v in found])
    yield more
    yield more.peer("rq, beside the parameters", [theirs - own])


def _bytes(server: Server, fill: Callable[[], object]) -> float:
    server.empty()
    before = server.used_bytes()
    fill()
    return (server.used_bytes() - before) / _COUNT
