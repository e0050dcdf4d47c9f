"""What a shipped trainer keeps for another process to go on: network, optimizer, random states.

A checkpoint is one file, written under another name and renamed; it is read with weights_only, so
what lies in a store is data and never code. On the same device it goes on bit for bit.
"""

from __future__ import annotations

import os
import sys
import time
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from worker.trainers.update import Nesterov

FILE = "training.pt"


@dataclass(slots=True, kw_only=True)
class Progress:
    """Where a training stands: `step` batches into an epoch, counted from 1.

    `sums` are the epoch's loss, hits and images so far, `order` the state that its order was drawn
    from; seconds are of training alone, of this epoch and of those before.
    """

    epoch: int
    sums: torch.Tensor
    step: int = 0
    epoch_s: float = 0.0
    total_s: float = 0.0
    order: torch.Tensor | None = None


class Keeper:
    """Saves and restores one training in a directory; without one it does neither."""

    def __init__(
        self,
        folder: Path | None,
        every_s: float,
        model: nn.Module,
        optimizer: Nesterov,
        generator: torch.Generator | None,
    ) -> None:
        self._path = folder / FILE if folder is not None else None
        self._every_s, self._saved_at = every_s, time.monotonic()
        self._model, self._optimizer, self._generator = model, optimizer, generator
        self._random: tuple[torch.Tensor, torch.Tensor | None] | None = None

    def restore(self, at: Progress) -> None:
        """Set everything as it was saved, and `at` to where that was.

        A file that does not fit is said and left alone: training starts at its beginning.
        """
        if self._path is None or not self._path.exists():
            return
        place, fresh = at.sums.device, deepcopy(self._model.state_dict())
        try:
            state = torch.load(self._path, map_location="cpu", weights_only=True)
            fields = state["progress"]
            self._random = state["random"], state["cuda"]
            self._model.load_state_dict(state["model"])
            self._optimizer.load_state_dict(state["optimizer"])
        except Exception as error:  # torch raises whatever its readers do
            self._model.load_state_dict(fresh)
            self._random = None
            why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            print(f"hpq: the checkpoint cannot be used, training starts again: {why}", flush=True)
            return
        for name in at.__slots__:
            setattr(at, name, fields[name])
        at.sums = at.sums.to(place)
        if self._generator is not None and at.order is not None:
            self._generator.set_state(at.order)

    def begin_epoch(self, at: Progress) -> None:
        """Remember what the epoch's order is drawn from."""
        at.order = self._generator.get_state() if self._generator is not None else None

    def at_step(self) -> None:
        """Set the random states of the saved step; the batches before it are drawn again by now."""
        if self._random is not None:
            torch.set_rng_state(self._random[0])
            if self._random[1] is not None and torch.cuda.is_available():
                torch.cuda.set_rng_state(self._random[1])
            self._random = None

    def at_epochs_end(self, at: Progress) -> None:
        """Save if the time has come."""
        if time.monotonic() - self._saved_at >= self._every_s:
            self.save(at)

    def save(self, at: Progress) -> None:
        """Save now. What cannot be saved is said, and training goes on."""
        if self._path is None:
            return
        self._saved_at = time.monotonic()
        cuda = torch.cuda.get_rng_state() if at.sums.device.type == "cuda" else None
        state: dict[str, Any] = {
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "progress": {name: getattr(at, name) for name in at.__slots__},
            "random": torch.get_rng_state(),
            "cuda": cuda,
        }
        draft = self._path.with_suffix(".tmp")
        try:
            torch.save(state, draft)
            os.replace(draft, self._path)
        except (OSError, RuntimeError) as error:  # torch's writer says a full disk so
            print(f"hpq: no checkpoint: {error}", file=sys.stderr, flush=True)
            draft.unlink(missing_ok=True)
