"""Measure the CPU time of a call that reports three metrics, in its caller and in the worker."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial

from benchmarks.figures import Figure, in_turn
from benchmarks.processes import WORKER, running
from benchmarks.server import Server, private_server
from benchmarks.sweeps import TRAINING, put, wait_over

_SWEEP = """
metric: {name: loss}
method: grid
code: %s
parameters: {file: {value: %s}, calls: {value: %d}, pause: {value: %g}}
"""
_WAYS = {"wandb.log": "program: calls.py", "trial.report": "trainer: calls:train"}
_PACES = {"in a loop": (20_000, 0.0), "1,000 a second": (2_000, 0.001)}
_TARGETS_US = {("wandb.log", "in a loop"): (25, 23), ("trial.report", "in a loop"): (7, 10)}


def measure(rounds: int) -> Iterator[Figure]:
    """Measure each call as fast as it returns, and with a pause that lets the worker wait."""
    kinds = [(name, pace) for name in _WAYS for pace in _PACES]
    with private_server() as server:
        calls = {f"{name}, {pace}": partial(_costs_us, server, name, pace) for name, pace in kinds}
        found = in_turn(rounds, calls)
    for kind, (what, costs) in zip(kinds, found.items(), strict=True):
        targets = _TARGETS_US.get(kind, (None, None))
        places = ("its caller", "the worker's parent")
        for place, target, values in zip(places, targets, zip(*costs, strict=True), strict=True):
            yield Figure(what=f"{what}, {place}", unit="µs", values=values, target=target)


def _costs_us(server: Server, name: str, pace: str) -> tuple[float, float]:
    server.empty()
    written = server.folder / "costs"
    file = server.folder / "calls.yaml"
    file.write_text(_WAYS[name] + _SWEEP % (TRAINING, written, *_PACES[pace]), "utf-8")
    sid = put(server, file)
    with running(WORKER, {**server.env, "HPQ_PYTHON": sys.executable}):
        wait_over(server, sid)
    caller, parent = written.read_text("ascii").split()
    return float(caller), float(parent)
