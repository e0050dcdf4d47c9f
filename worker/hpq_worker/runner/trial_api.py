"""The `trial` argument of a trainer function: report, stop, checkpoints, artifacts.

Runs in the runner. Standard library only, so that a user's trainer needs nothing else of hpq.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hpq.filestore.base import is_safe_name
from hpq.reporting import flatten, rank, whole
from hpq_worker.process.protocol import RunRequest

Send = Callable[[Mapping[str, Any]], None]


class Trial:
    """One attempt, as training code sees it."""

    def __init__(self, run: RunRequest, send: Send, is_stopped: Callable[[], bool]) -> None:
        self._run, self._send, self._is_stopped = run, send, is_stopped
        self.has_seen_stop = False  # training code has read `should_stop` as true

    @property
    def id(self) -> str:
        """`sweep/number`."""
        return self._run.trial

    @property
    def attempt(self) -> int:
        """1 for the first execution of this trial, then 2, …"""
        return self._run.attempt

    @property
    def seed(self) -> int:
        """What to seed random numbers with: another one for each replicate of a set."""
        return self._run.seed

    def report(self, metrics: Mapping[str, object], step: int | None = None) -> None:
        """Report values at a step; without a step, the n-th value of each metric.

        Of processes that the trainer has forked, those of a rank above 0 report nothing.

        Raises:
            ValueError: a name or a value cannot be a metric, or the step is no whole number.
        """
        if rank():
            return
        self._send({"report": flatten(metrics), "step": whole(step)})

    def phase(self, text: str) -> None:
        """Say in a few words what slow thing begins ("loading CIFAR10")."""
        self._send({"phase": text})

    @property
    def should_stop(self) -> bool:
        """True once the trial is cancelled, pruned or asked to make room: return soon."""
        self.has_seen_stop = self.has_seen_stop or self._is_stopped()
        return self.has_seen_stop

    @property
    def checkpoint_dir(self) -> Path:
        """Where checkpoints go, with the last published one in it at the start of an attempt.

        What changes there is copied to HPQ_STORE and found by the next attempt, wherever that
        runs; without a store it goes with the attempt. Write `x.tmp`, then rename it to `x`.
        """
        return Path(self._run.checkpoint)

    @property
    def checkpoint_s(self) -> float:
        """How long a shipped trainer lets pass between two checkpoints, in seconds."""
        return self._run.checkpoint_s

    @property
    def data(self) -> Path | None:
        """Where data sets lie (HPQ_DATA)."""
        return Path(self._run.data) if self._run.data else None

    @property
    def cache(self) -> Path:
        """Where decoded data may be kept between runs."""
        return Path(self._run.cache)

    def save(self, path: str | Path, name: str | None = None) -> Path:
        """Keep a file as an artifact of the trial, under its own name or another (`a/b.pt`).

        Answers where it lies until the attempt ends and it goes to HPQ_STORE.

        Raises:
            ValueError: the name would leave the artifacts' folder.
            OSError: the file is not there, or cannot be copied.
        """
        name = Path(path).name if name is None else name
        if not is_safe_name(name):
            raise ValueError(f"artifact name {name!r}: use a relative path without '..'")
        kept = Path(self._run.out) / name
        kept.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(shutil.SameFileError):
            shutil.copy2(path, kept)
        return kept
