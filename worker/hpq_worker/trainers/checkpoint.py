"""Where a training stands, and its checkpoint: one file, which appears whole by a rename.

It is read with weights_only, so a file in a store is data and never code. On the same device a
trial that resumes reports the figures of one that never stopped.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch

from hpq_worker.trainers.step import Batch, Step

FILE = "training.pt"


class _Unfit(ValueError):
    """Raised if a checkpoint is whole, but of another training."""


class Training:
    """What one training computes with, and where it stands; without a directory nothing is saved.

    `draws` is the generator of each epoch's order; `run` holds the numbers of the schedule and of
    the update, which a checkpoint must share.
    """

    def __init__(
        self, step: Step, draws: torch.Generator, run: Mapping[str, float], folder: Path | None
    ) -> None:
        self.step, self.draws, self.run = step, draws, run
        self.path = folder / FILE if folder is not None else None
        self.saved_at = time.monotonic()
        self.epoch, self.done = 1, 0  # steps of this epoch
        self.epoch_s, self.total_s = 0.0, 0.0  # of training: of this epoch, of those before
        self.order, self.random = draws.get_state(), self._random()  # at the start of the epoch

    def next_epoch(self) -> None:
        """Go to the start of the next epoch."""
        self.total_s += self.epoch_s
        self.epoch, self.done, self.epoch_s = self.epoch + 1, 0, 0.0
        self.order, self.random = self.draws.get_state(), self._random()

    def left(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Return the batches of this epoch that are still to be trained on."""
        left = islice(batches, self.done, None)
        if not self.done:
            return left
        first = list(islice(left, 1))  # a stop comes when the next batch is there
        self._set_random(self.random)  # drawing the batches again has moved the generators
        return chain(first, left)

    def save(self, every_s: float = 0.0) -> None:
        """Save if the last time is that long ago; training continues if it cannot be saved."""
        if self.path is None or time.monotonic() - self.saved_at < every_s:
            return
        self.saved_at, draft = time.monotonic(), self.path.with_suffix(".tmp")
        try:
            torch.save(self._state(), draft)
            os.replace(draft, self.path)
        except (OSError, RuntimeError) as error:  # torch's writer reports a full disk so
            print(f"hpq: no checkpoint: {error}", file=sys.stderr, flush=True)
            draft.unlink(missing_ok=True)

    def restore(self) -> None:
        """Continue from the file if there is one; one line says so, or why it does not fit."""
        if self.path is None or not self.path.exists():
            return
        fresh = deepcopy(self._state())
        try:
            self._set(torch.load(self.path, map_location="cpu", weights_only=True))
        except Exception as error:  # torch raises whatever its readers do
            self._set(fresh)
            why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            why = f"it is damaged, or of another network or program ({why})"
            why = str(error) if isinstance(error, _Unfit | OSError) else why
            print(f"hpq: the checkpoint cannot be used, training starts again: {why}", flush=True)
            return
        over = self.epoch > self.run["epochs"]
        where = "all epochs are done in" if over else f"goes on at epoch {self.epoch} from"
        print(f"hpq: {where} {self.path}", flush=True)

    def _state(self) -> dict[str, Any]:
        names = ("epoch", "done", "epoch_s", "total_s", "order")
        return {name: getattr(self, name) for name in names} | {
            "run": dict(self.run),
            "model": self.step.model.state_dict(),
            "velocity": self.step.velocity,
            "sums": self.step.sums,
            "random": self._random() if self.done else self.random,
        }

    def _set(self, state: Mapping[str, Any]) -> None:
        was, run = state["run"], self.run
        if other := [name for name in {**run, **was} if was.get(name) != run.get(name)]:
            of = (", ".join(f"{name} {one.get(name)}" for name in other) for one in (was, run))
            raise _Unfit("it is of {}, the trial of {}".format(*of))
        if state["epoch"] not in range(1, int(run["epochs"]) + 2):
            raise ValueError(f"it stands at epoch {state['epoch']}")
        if state["done"] not in range(int(run["steps"]) + 1):
            raise ValueError(f"it stands at step {state['done']}")
        self.epoch, self.done = state["epoch"], state["done"]
        self.epoch_s, self.total_s = state["epoch_s"] + 0.0, state["total_s"] + 0.0
        self.step.model.load_state_dict(state["model"])
        for own, saved in zip(self.step.velocity, state["velocity"], strict=True):
            own.copy_(saved)
        self.step.sums.copy_(state["sums"])
        self.order, self.random = state["order"], state["random"]
        self._set_random(self.random)
        self.draws.set_state(self.order)  # after torch's own, which it may be

    def _random(self) -> list[torch.Tensor]:
        on_gpu = [torch.cuda.get_rng_state()] if self.step.sums.is_cuda else []
        return [torch.get_rng_state(), *on_gpu]

    def _set_random(self, states: list[torch.Tensor]) -> None:
        torch.set_rng_state(states[0])
        if len(states) > 1 and self.step.sums.is_cuda:
            torch.cuda.set_rng_state(states[1])
