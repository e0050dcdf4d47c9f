"""Run empty trials through one worker: what the queue costs per trial, beside RQ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from benchmarks.cost import HPQ, Cost, cost, rounds_of, rq
from benchmarks.figures import Figure
from benchmarks.server import private_server

_TRIALS, _FEW = 1_000, 100
_COSTS: Sequence[tuple[str, str, Callable[[Cost], float]]] = (
    ("trials a second", "", lambda c: c.rate),
    ("CPU of the worker, all its processes", "ms", lambda c: c.worker_ms),
    ("CPU of Redis", "µs", lambda c: c.redis_us),
    ("commands executed, in scripts too", "", lambda c: c.executed),
    ("round trips", "", lambda c: c.trips),
    ("bytes sent to Redis", "B", lambda c: c.bytes_in),
    ("bytes in Redis, queued", "B", lambda c: c.queued_bytes),
    ("bytes in Redis, finished", "B", lambda c: c.finished_bytes),
)


def measure(rounds: int) -> Iterator[Figure]:
    """Measure from a worker's first claim to its last result."""
    simple = rq("SimpleWorker")
    with private_server() as server:
        ours, theirs = rounds_of(server, [HPQ, simple], _TRIALS, rounds)
        forked = cost(server, rq("Worker"), _FEW)
    for i, (name, unit, pick) in enumerate(_COSTS):
        values = [pick(each) for each in ours]
        figure = Figure(what=f"hpq, {name}", unit=unit, values=values, more_is_better=i == 0)
        yield figure
        yield figure.peer(simple.name, [pick(each) for each in theirs])
        if i == 0:
            yield figure.peer("rq Worker, a fork a job", [forked.rate])
