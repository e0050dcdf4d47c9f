"""A program, and a trainer, that report metrics many times and write what a call costs.

Standard library only, besides hpq, or W&B's package, whose config is in CALLS. The cost for the
worker's parent counts all its threads.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SETTLE_S = 2.0  # until the parent has sent what it has read
_TICKS = os.sysconf("SC_CLK_TCK")


def train(params: dict[str, Any], trial: Any) -> None:
    """Measure `trial.report`; the runner is the worker's child."""
    _measure(trial.report, os.getppid(), **params)


def _measure(
    report: Callable[[dict[str, float]], object],
    worker: int,
    file: str,
    calls: int,
    pause: float,
    names: int,
) -> None:
    spent, before = 0.0, _cpu_s(worker)
    for i in range(calls):
        values = {f"train/metric_{name}": (i + name) / 7 for name in range(names - 1)}
        values["loss"] = 1 / (i + 1)
        begun = time.thread_time()
        report(values)
        spent += time.thread_time() - begun
        if pause:
            time.sleep(pause)
    time.sleep(_SETTLE_S)
    costs = (spent, _cpu_s(worker) - before)
    Path(file).write_text(" ".join(str(1e6 * cost / calls) for cost in costs), "ascii")


def _cpu_s(pid: int) -> float:
    return sum(int(ticks) for ticks in _stat(pid)[11:13]) / _TICKS


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()


if __name__ == "__main__":
    import wandb  # type: ignore[import-not-found]

    wandb.init(config=json.loads(os.environ.get("CALLS", "{}")))
    _measure(wandb.log, int(_stat(os.getppid())[1]), **wandb.config)
