"""Training code of the benchmarks: trainers that do nothing, or note when they run.

Standard library only, but for `digits`. Times are time.monotonic(), one clock for all processes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_EPOCHS = 5


def nothing(params: dict[str, Any], trial: object) -> dict[str, float]:
    """A result and no work."""
    return {"loss": 0.0}


def hold(params: dict[str, Any], trial: Any) -> None:
    """One report, then nothing until it is told to stop."""
    trial.report({"loss": 0.0}, 1)
    while not trial.should_stop:
        time.sleep(0.05)


def second(params: dict[str, Any], trial: object) -> dict[str, float]:
    """A trial of a fixed length."""
    time.sleep(params["seconds"])
    return {"loss": params["x"]}


def mark(params: dict[str, Any], trial: object) -> dict[str, float]:
    """Note the first and the last moment of a trial."""
    return note(**params)


def note(number: int, file: str) -> dict[str, float]:
    """The same, as a job of another queue."""
    _append(file, number, time.monotonic())
    _append(file, number, time.monotonic())
    return {"loss": 0.0}


def digits(params: dict[str, Any], trial: Any) -> None:
    """The shipped trainer for a few epochs; notes each report."""
    from hpq_worker.trainers.digits import train  # noqa: PLC0415

    class Noting:
        """The trial, but for its reports."""

        def __getattr__(self, name: str) -> Any:
            return getattr(trial, name)

        def report(self, metrics: Mapping[str, float], step: int) -> None:
            """Note the moment, then report."""
            _append(params["file"], params["number"], time.monotonic())
            trial.report({"loss": metrics["test/loss"]}, step)

    train({"epochs": _EPOCHS, "hidden": 32}, Noting())  # type: ignore[arg-type]


def _append(file: str, number: int, at_s: float) -> None:
    with Path(file).open("a", encoding="ascii") as out:
        out.write(f"{number} {at_s!r}\n")
