"""Where a training stands, and its checkpoint: one file, written under another name and renamed.

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
    """Raised where a checkpoint is whole, but of another training."""


class Training:
    """What one training computes with, and where it stands; without a directory nothing is saved.

    `draws` is what the order of an epoch is drawn from, `run` has the numbers that the place and
    the update of a step follow from.
    """

    def __init__(
        self, step: Step, draws: torch.Generator, run: Mapping[str, float], folder: Path | None
    ) -> None:
        self.step, self.draws, self.run = step, draws, run
        self.path = folder / FILE if folder is not None else None
        self.saved_at = time.monotonic()
        self.epoch, self.done = 1, 0  # steps of this epoch
        self.epoch_s, self.total_s = 0.0, 0.0  # of training: of this epoch, of those before
        # The state that this epoch's order is drawn from; whether it has been drawn; torch's states
        # to set when it has been drawn again.
        self.order, self.has_drawn = draws.get_state(), False
        self.random: list[torch.Tensor] | None = None

    def next_epoch(self) -> None:
        """Go to the start of the next epoch."""
        self.total_s += self.epoch_s
        self.epoch, self.done, self.epoch_s = self.epoch + 1, 0, 0.0
        self.order, self.has_drawn = self.draws.get_state(), False

    def left(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Return the batches of this epoch that are still to be trained on."""
        left = islice(batches, self.done, None)  # skips those before the checkpoint
        first, self.has_drawn = list(islice(left, 1)), True
        if self.random is not None:  # skipping has drawn what was drawn before
            _set_random(self.random)
            self.random = None
        return chain(first, left)

    def save(self, every_s: float = 0.0) -> None:
        """Save if the last time is that long ago; training continues if it cannot be saved."""
        if self.path is None or time.monotonic() - self.saved_at < every_s:
            return
        self.saved_at, draft = time.monotonic(), self.path.with_suffix(".tmp")
        on_gpu = [torch.cuda.get_rng_state()] if self.step.sums.is_cuda else []
        names = ("epoch", "done", "epoch_s", "total_s", "order", "has_drawn")
        state = {name: getattr(self, name) for name in names} | {
            "run": dict(self.run),
            "model": self.step.model.state_dict(),
            "velocity": self.step.velocity,
            "sums": self.step.sums,
            "random": [torch.get_rng_state(), *on_gpu],
        }
        try:
            torch.save(state, draft)
            os.replace(draft, self.path)
        except (OSError, RuntimeError) as error:  # torch's writer reports a full disk so
            print(f"hpq: no checkpoint: {error}", file=sys.stderr, flush=True)
            draft.unlink(missing_ok=True)

    def restore(self) -> None:
        """Continue from the file if there is one; one line says so, or why it does not fit."""
        if self.path is None or not self.path.exists():
            return
        model = self.step.model
        fresh = deepcopy(model.state_dict())  # with its versions, which a plain dict has not
        try:
            self._set(torch.load(self.path, map_location="cpu", weights_only=True))
        except Exception as error:  # torch raises whatever its readers do
            model.load_state_dict(fresh)
            why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            why = f"it is damaged, or of another network or program ({why})"
            why = str(error) if isinstance(error, _Unfit | OSError) else why
            print(f"hpq: the checkpoint cannot be used, training starts again: {why}", flush=True)
            return
        over = self.epoch > self.run["epochs"]
        where = "all epochs are done in" if over else f"goes on at epoch {self.epoch} from"
        print(f"hpq: {where} {self.path}", flush=True)

    def _set(self, state: Mapping[str, Any]) -> None:
        """Set everything as it was saved; of a state that does not fit, weights at most."""
        was, run = state["run"], self.run
        if other := [name for name in {**run, **was} if was.get(name) != run.get(name)]:
            of = (", ".join(f"{name} {one.get(name)}" for name in other) for one in (was, run))
            raise _Unfit("it is of {}, the trial of {}".format(*of))
        for one in (state["order"], state["random"][0]):
            torch.Generator().set_state(one)  # raises if it is none
        at = int(state["epoch"]), int(state["done"]), state["epoch_s"], state["total_s"]
        whole = at[:2] == (state["epoch"], state["done"])
        if not whole or not (1 <= at[0] <= run["epochs"] + 1 and 0 <= at[1] <= run["steps"]):
            raise ValueError(f"it stands at epoch {state['epoch']}, step {state['done']}")
        if not min(at[2:]) >= 0 or state["sums"].shape != (2,):
            raise ValueError(f"sums {state['sums']} after {at[2:]} s")
        if [v.shape for v in state["velocity"]] != [v.shape for v in self.step.velocity]:
            raise ValueError("its momentum is of other weights")
        self.step.model.load_state_dict(state["model"])
        for own, saved in zip(self.step.velocity, state["velocity"], strict=True):
            own.copy_(saved)
        self.step.sums.copy_(state["sums"])
        self.epoch, self.done, self.epoch_s, self.total_s = at
        _set_random(state["random"])
        self.order, self.random = state["order"], state["random"] if state["has_drawn"] else None
        self.draws.set_state(self.order)


def _set_random(states: list[torch.Tensor]) -> None:
    torch.set_rng_state(states[0])
    if len(states) > 1 and torch.cuda.is_available():
        torch.cuda.set_rng_state(states[1])
