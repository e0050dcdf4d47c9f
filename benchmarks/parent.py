"""Measure the resident memory of a worker's parent process, which training cannot use."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks import peers
from benchmarks.figures import Figure
from benchmarks.processes import RQ, WORKER, memory_mib, running
from benchmarks.server import Server, private_server, wait, wait_size
from benchmarks.sweeps import put, wait_over, write_trials

_TRIALS = 100
_TARGET_MIB = 48
_SETTLE_S = 3.0


def measure(rounds: int) -> Iterator[Figure]:
    """Measure an idle worker and one after trials; RSS counts shared memory in full."""
    names = ("idle", "after 100 trials")
    with private_server() as server:
        ours, theirs = zip(*((_hpq(server), _rq(server)) for _ in range(rounds)), strict=True)
    for i, when in enumerate(names):
        figure = Figure(
            what=f"hpq's parent, {when}, RSS",
            unit="MiB",
            values=[found[i][0] for found in ours],
            target=_TARGET_MIB,
        )
        yield figure
        yield figure.peer(f"rq worker, {when}, RSS", [found[i][0] for found in theirs])
        share = Figure(
            what=f"hpq's parent, {when}, PSS", unit="MiB", values=[found[i][1] for found in ours]
        )
        yield share
        yield share.peer(f"rq worker, {when}, PSS", [found[i][1] for found in theirs])


def _hpq(server: Server) -> list[tuple[float, float]]:
    server.empty()
    with running(WORKER, server.env) as pid:
        wait(server.session().reader.workers.live, "hpq's worker")
        time.sleep(_SETTLE_S)
        found = [memory_mib(pid)]
        sid = put(server, write_trials(server.folder, "stamps:nothing", _TRIALS, resident=True))
        wait_over(server, sid)
        time.sleep(_SETTLE_S)
        return [*found, memory_mib(pid)]


def _rq(server: Server) -> list[tuple[float, float]]:
    server.empty()
    with running((*RQ, "worker", "--quiet", "--url", server.url)) as pid:
        wait(lambda: server.redis.scard("rq:workers"), "rq's worker")
        time.sleep(_SETTLE_S)
        found = [memory_mib(pid)]
        peers.enqueue_calls(server.redis, peers.train, _TRIALS)
        wait_size(server, peers.FINISHED, _TRIALS)
        time.sleep(_SETTLE_S)
        return [*found, memory_mib(pid)]
