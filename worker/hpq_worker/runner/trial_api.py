"""The `trial` argument of a trainer function: report, stop, checkpoints, artifacts.

Runs in the runner. Standard library only, so that a user's trainer needs nothing else of hpq.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
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
        self._run = run
        self._send = send
        self._is_stopped = is_stopped
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
        """Seed for random numbers; the replicates of one set of parameters have different seeds."""
        return self._run.seed

    def report(self, metrics: Mapping[str, object], step: int | None = None) -> None:
        """Report values at a step; without a step, the n-th value of each metric.

        Of processes that the trainer has forked, those of a rank above 0 report nothing.

        Raises:
            ValueError: a name or a value cannot be a metric, or the step is not an integer.
        """
        if rank():
            return
        self._send({"report": flatten(metrics), "step": whole(step), "at": time.time()})

    def phase(self, text: str) -> None:
        """Show a slow step that begins, in a few words ("loading CIFAR10")."""
        self._send({"phase": text})

    @property
    def should_stop(self) -> bool:
        """True once the trial is cancelled or pruned, or its worker stops: return soon."""
        self.has_seen_stop = self.has_seen_stop or self._is_stopped()
        return self.has_seen_stop

    @property
    def checkpoint_dir(self) -> Path:
        """Directory for checkpoints; it holds the last published one when an attempt starts.

        hpq copies changed files to HPQ_STORE, and the next attempt finds them on any machine.
        Without a store they are lost with the attempt. Write `x.tmp`, then rename it to `x`.
        """
        return _made(self._run.checkpoint)

    @property
    def checkpoint_s(self) -> float:
        """Seconds between two checkpoints of a built-in trainer."""
        return self._run.checkpoint_s

    @property
    def data(self) -> Path:
        """Directory of data sets (HPQ_DATA)."""
        return Path(self._run.data)

    @property
    def cache(self) -> Path:
        """Directory for decoded data, which is kept between runs."""
        return Path(self._run.cache)

    def save(self, path: str | Path, name: str | None = None) -> Path:
        """Keep a file as an artifact of the trial, under its own name or another (`a/b.pt`).

        Returns the path of the copy until the attempt ends; then hpq moves it to HPQ_STORE.

        Raises:
            ValueError: the name would leave the artifacts' folder.
            OSError: the file does not exist, or cannot be copied.
        """
        name = Path(path).name if name is None else name
        if not is_safe_name(name):
            raise ValueError(f"artifact name {name!r}: use a relative path without '..'")
        kept = _made(self._run.out) / name
        kept.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(shutil.SameFileError):
            shutil.copy2(path, kept)
        return kept


def _made(folder: str) -> Path:
    """Return a directory of the attempt, which only its owner can read."""
    path = Path(folder)
    if os.path.exists(f"{path.parent}.lock"):  # else a thread has outlived its attempt
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.mkdir(exist_ok=True)
    return path
