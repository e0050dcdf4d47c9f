"""What a trainer function gets as `trial`: where to report, whether to stop, where to write.

Lives in the runner. Standard library only, so that a user's trainer needs nothing else of hpq.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hpq.report import flatten, whole
from worker.messages import Run

Send = Callable[[Mapping[str, Any]], None]


class Trial:
    """One attempt, as training code sees it."""

    def __init__(self, run: Run, send: Send, is_stopped: Callable[[], bool]) -> None:
        self._run, self._send, self._is_stopped = run, send, is_stopped

    @property
    def id(self) -> str:
        """`sweep/number`."""
        return self._run.trial

    @property
    def attempt(self) -> int:
        """1 for the first execution of this trial, then 2, …"""
        return self._run.attempt

    def report(self, metrics: Mapping[str, object], step: int | None = None) -> None:
        """Report values at a step; without a step, the n-th value of each metric.

        Raises:
            ValueError: a name or a value cannot be a metric, or the step is no whole number.
        """
        self._send({"report": flatten(metrics), "step": whole(step)})

    def phase(self, text: str) -> None:
        """Say in a few words what slow thing begins ("loading CIFAR10")."""
        self._send({"phase": text})

    @property
    def should_stop(self) -> bool:
        """True once the trial is cancelled, pruned or asked to make room: return soon."""
        return self._is_stopped()

    @property
    def checkpoint_dir(self) -> Path | None:
        """Where checkpoints go; None where there is no store."""
        return None

    @property
    def data(self) -> Path | None:
        """Where data sets lie (HPQ_DATA)."""
        return Path(self._run.data) if self._run.data else None

    @property
    def cache(self) -> Path:
        """Where decoded data may be kept between runs."""
        return Path(self._run.cache)

    def save(self, path: str | Path) -> Path:
        """Keep a file as an artifact of the trial; answers where it lies now."""
        kept = Path(self._run.out) / Path(path).name
        kept.parent.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy2(path, kept))
