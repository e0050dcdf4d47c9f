"""Measure the CPU time of a call that reports metrics, in its caller and in the worker.

With W&B's package in .peers/wandb (`make bench-peers`), also its calls in offline mode.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from benchmarks.figures import Figure, in_turn
from benchmarks.processes import ROOT, WORKER, running
from benchmarks.server import Server, private_server
from benchmarks.sweeps import TRAINING, put, wait_over

_SWEEP = """
metric: {name: loss}
method: grid
code: %s
parameters: {file: {value: %s}, calls: {value: %d}, pause: {value: %g}, names: {value: %d}}
"""
_WANDB = ROOT / ".peers" / "wandb" / "bin" / "python"
_NAMES = (2, 40)  # of a call, beside W&B's
_WAYS = {"wandb.log": "program: calls.py", "trial.report": "trainer: calls:train"}
_PACES = {"in a loop": (20_000, 0.0), "1,000 a second": (2_000, 0.001)}
_TARGETS_US = {("wandb.log", "in a loop"): (25, 23), ("trial.report", "in a loop"): (7, 10)}


def measure(rounds: int) -> Iterator[Figure]:
    """Measure each call as fast as it returns, and with a pause that lets the worker wait."""
    kinds = [(name, pace) for name in _WAYS for pace in _PACES]
    with private_server() as server:
        calls = {f"{name}, {pace}": partial(_costs_us, server, name, pace) for name, pace in kinds}
        each = {f"wandb.log, {n} names, in a loop": n for n in _NAMES}
        found = in_turn(rounds, calls)
        loop = "in a loop"
        ours = {what: partial(_costs_us, server, "wandb.log", loop, n) for what, n in each.items()}
        theirs = {f"{what}: W&B offline": partial(_wandb_us, server, n) for what, n in each.items()}
        beside = in_turn(rounds, {**ours, **(theirs if _WANDB.exists() else {})})
    for kind, (what, costs) in zip(kinds, found.items(), strict=True):
        targets = _TARGETS_US.get(kind, (None, None))
        places = ("its caller", "the worker's parent")
        for place, target, values in zip(places, targets, zip(*costs, strict=True), strict=True):
            yield Figure(what=f"{what}, {place}", unit="µs", values=values, target=target)
    for what in each:
        figure = Figure(what=what, unit="µs", values=[cost for cost, _ in beside[what]])
        yield figure
        if peers := beside.get(f"{what}: W&B offline"):
            yield figure.peer(f"W&B's package, offline, {each[what]} names", [c for c, _ in peers])


def _wandb_us(server: Server, names: int) -> tuple[float, float]:
    """Return what a call of W&B's package costs its caller; its own process is not counted."""
    calls, pause = _PACES["in a loop"]
    file = server.folder / "costs"
    config = {"file": str(file), "calls": calls, "pause": pause, "names": names}
    calls_env = {"CALLS": json.dumps(config), "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    env, command = {**os.environ, **calls_env}, [str(_WANDB), str(TRAINING / "calls.py")]
    subprocess.run(command, env=env, cwd=server.folder, check=True, capture_output=True)
    caller, parent = file.read_text("ascii").split()
    return float(caller), float(parent)


def _costs_us(server: Server, name: str, pace: str, names: int = 3) -> tuple[float, float]:
    server.empty()
    written = server.folder / "costs"
    file = server.folder / "calls.yaml"
    file.write_text(_WAYS[name] + _SWEEP % (TRAINING, written, *_PACES[pace], names), "utf-8")
    sid = put(server, file)
    with running(WORKER, {**server.env, "HPQ_PYTHON": sys.executable}):
        wait_over(server, sid)
    caller, parent = written.read_text("ascii").split()
    return float(caller), float(parent)
