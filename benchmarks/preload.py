"""Measure how many one-second programs a worker runs a minute, with `preload: [torch]` and without.

Needs torch. A round is a sweep of ten trials, from the start of the worker to the last result.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.figures import Figure, in_turn
from benchmarks.processes import WORKER, running, wall_s
from benchmarks.server import Server, private_server
from benchmarks.sweeps import TRAINING, put, wait_over

_TRIALS = 10
_SWEEP = f"""
program: second.py
method: grid
metric: {{name: loss}}
parameters: {{number: {{values: {list(range(_TRIALS))}}}}}
"""


def measure(rounds: int) -> Iterator[Figure]:
    """Measure trials a minute."""
    with private_server() as server:
        calls: dict[str, Callable[[], float]] = {
            "preload": partial(_hpq, server, _SWEEP + "preload: [torch]"),
            "without": partial(_hpq, server, _SWEEP),
            "processes": _processes,
        }
        found = in_turn(rounds, calls)
    ours = Figure(
        what="hpq, preload: [torch]",
        unit="trials/min",
        values=found["preload"],
        more_is_better=True,
    )
    yield ours
    yield ours.peer("hpq without preload", found["without"])
    yield ours.peer("a process a trial, one after another", found["processes"])


def _hpq(server: Server, sweep: str) -> float:
    server.empty()
    file = server.folder / "second.yaml"
    file.write_text(f"{sweep}\ncode: {TRAINING}\n", "utf-8")
    sid = put(server, file)
    begun = time.perf_counter()
    with running(WORKER, {**server.env, "HPQ_PYTHON": sys.executable}):
        wait_over(server, sid)
        return 60 * _TRIALS / (time.perf_counter() - begun)


def _processes() -> float:
    program = str(Path(TRAINING) / "second.py")
    return 60 * _TRIALS / sum(wall_s((sys.executable, program)) for _ in range(_TRIALS))
