"""What a shipped trainer keeps for another process to go on: network, optimizer, random states.

A checkpoint is one file, written under another name and renamed; it is read with weights_only, so
what lies in a store is data and never code. On the same device it goes on bit for bit.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hpq_worker.trainers.training.optimizer import Nesterov

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

    def remember(self, generator: torch.Generator | None) -> None:
        """What the epoch's order is about to be drawn from."""
        self.order = generator.get_state() if generator is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a checkpoint is of. `run` has the numbers that a step's place and update follow from."""

    model: nn.Module
    optimizer: Nesterov
    generator: torch.Generator | None
    run: Mapping[str, float]  # of the recipe, and the steps of an epoch


class Unfit(ValueError):
    """Raised where a checkpoint is whole, but of another training."""


class Keeper:
    """Saves and restores one training in a directory; without one it does neither."""

    def __init__(self, folder: Path | None, every_s: float, kept: Kept) -> None:
        self._path = folder / FILE if folder is not None else None
        self._every_s, self._saved_at = every_s, time.monotonic()
        self._kept = kept
        self._random: tuple[torch.Tensor, torch.Tensor | None] | None = None

    def restore(self, at: Progress) -> bool:
        """Set everything as it was saved, and `at` to where that was; False where nothing is.

        A file that does not fit is said and left alone: training starts at its beginning.
        """
        if self._path is None or not self._path.exists():
            return False
        model, fresh = self._kept.model, deepcopy(self._kept.model.state_dict())
        try:
            state = torch.load(self._path, map_location="cpu", weights_only=True)
            found = _progress(state, self._kept)
            _check_random(state)
            model.load_state_dict(state["model"])
            self._kept.optimizer.load_state_dict(state["optimizer"])  # which looks before it takes
        except Exception as error:  # torch raises whatever its readers do
            model.load_state_dict(fresh)
            why = _why(error)
            print(f"hpq: the checkpoint cannot be used, training starts again: {why}", flush=True)
            return False
        self._random = state["random"], state["cuda"]
        found.sums = found.sums.to(at.sums)
        for name in at.__slots__:
            setattr(at, name, getattr(found, name))
        if self._kept.generator is not None and at.order is not None:
            self._kept.generator.set_state(at.order)
        done = at.epoch > self._kept.run["epochs"]
        where = "all epochs are done in" if done else f"goes on at epoch {at.epoch} from"
        print(f"hpq: {where} {self._path}", flush=True)
        return True

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
            "run": dict(self._kept.run),
            "model": self._kept.model.state_dict(),
            "optimizer": self._kept.optimizer.state_dict(),
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


def _progress(state: Mapping[str, Any], kept: Kept) -> Progress:
    """Where the checkpoint stands, all of which the training can go on from."""
    # Earlier versions kept fewer numbers; those that they left out are a trial's own still.
    was, run = {**kept.run, **state["run"]}, kept.run
    if other := [name for name in was if was[name] != run.get(name)]:
        raise Unfit(f"it is of {_said(was, other)}, the trial of {_said(run, other)}")
    fields = state["progress"]
    if set(fields) != set(Progress.__slots__):
        raise ValueError(f"its progress is of {', '.join(fields)}")
    found = Progress(**fields)
    whole = isinstance(found.epoch, int) and isinstance(found.step, int)
    within = whole and 1 <= found.epoch <= kept.run["epochs"] + 1
    if not within or not 0 <= found.step <= kept.run["steps"]:
        raise ValueError(f"it stands at epoch {found.epoch}, step {found.step}")
    if found.sums.shape != (3,) or not found.epoch_s + found.total_s >= 0:
        raise ValueError(f"sums {tuple(found.sums.shape)}, {found.epoch_s} and {found.total_s} s")
    if (found.order is None) != (kept.generator is None):
        raise ValueError("order: the trial has one generator, it has none, or the reverse")
    if kept.generator is not None:
        torch.Generator(kept.generator.device).set_state(found.order)
    return found


def _check_random(state: Mapping[str, Any]) -> None:
    torch.Generator().set_state(state["random"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.Generator("cuda").set_state(state["cuda"])


def _said(run: Mapping[str, float], names: Iterable[str]) -> str:
    return ", ".join(f"{name} {run.get(name)}" for name in names)


def _why(error: Exception) -> str:
    said = str(error) if isinstance(error, Unfit) else f"{type(error).__name__}: {error}"
    said = " ".join(said.split())[:200]
    if isinstance(error, Unfit | OSError):
        return said
    return f"it is damaged, or of another network or program ({said})"
