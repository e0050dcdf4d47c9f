"""Trainers for benchmarks, which return at once or record when they run.

Standard library only, except `digits`. Times are time.monotonic(), one clock for all processes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_EPOCHS = 5


def nothing(params: dict[str, Any], trial: object) -> dict[str, float]:
    """Return a result without work."""
    return {"loss": 0.0}


def once(params: dict[str, Any], trial: Any) -> None:
    """Report once."""
    trial.report({"loss": 0.0}, 1)


def hold(params: dict[str, Any], trial: Any) -> None:
    """Report once, then wait until the trial is stopped."""
    trial.report({"loss": 0.0}, 1)
    while not trial.should_stop:
        time.sleep(0.05)


def second(params: dict[str, Any], trial: object) -> dict[str, float]:
    """Run for a fixed time."""
    time.sleep(params["seconds"])
    return {"loss": params["x"]}


def mark(params: dict[str, Any], trial: object) -> dict[str, float]:
    """Record the first and the last moment of a trial."""
    return note(**params)


def note(number: int, file: str) -> dict[str, float]:
    """Do the same as a job of RQ."""
    _append(file, number, time.monotonic())
    _append(file, number, time.monotonic())
    return {"loss": 0.0}


def digits(params: dict[str, Any], trial: Any) -> None:
    """Run the built-in trainer for a few epochs; record the time of each report."""
    from hpq_worker.trainers.digits import train  # noqa: PLC0415

    class Noting:
        """A trial that records its reports."""

        def __getattr__(self, name: str) -> Any:
            return getattr(trial, name)

        def report(self, metrics: Mapping[str, float], step: int) -> None:
            """Record the time, then report."""
            _append(params["file"], params["number"], time.monotonic())
            trial.report({"loss": metrics["test/loss"]}, step)

    train({"epochs": _EPOCHS, "hidden": 32}, Noting())  # type: ignore[arg-type]


def _append(file: str, number: int, at_s: float) -> None:
    with Path(file).open("a", encoding="ascii") as out:
        out.write(f"{number} {at_s!r}\n")
