"""The loop of the built-in trainers: the schedule, epochs, reports, stops, and a checkpoint.

The device is read twice an epoch: its sums after training, and after testing. A checkpoint is of
the end of an epoch: a trial that resumes trains the epoch again in which it was stopped.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hpq.errors import Diverged
from hpq_worker.runner.trial_api import Trial
from hpq_worker.trainers import device
from hpq_worker.trainers.data import Batches
from hpq_worker.trainers.step import Batch, Plan, Step, measure

FILE = "training.pt"  # in the trial's checkpoint directory
KNEE = 5 / 24  # of the training: here the learning rate is at its maximum
NUMBERS = ("epochs", "max_learning_rate", "momentum", "weight_decay")  # of a built-in trainer's set


def rates(steps: int, epochs: int, maximum: float) -> torch.Tensor:
    """Return the rate of each step, (epochs, steps) float64: from 0 up to the maximum and to 0.

    Over 24 epochs this is the CIFAR10 article's schedule.
    """
    at = torch.arange(epochs * steps, dtype=torch.float64) / (epochs * steps)
    return (maximum * torch.minimum(at / KNEE, (1 - at) / (1 - KNEE))).view(epochs, steps)


def fit(
    model: nn.Module,
    train: Batches,
    test: Batches,
    trial: Trial,
    *,
    epochs: int,
    max_learning_rate: float,
    momentum: float,
    weight_decay: float,
    plan: Plan,
) -> None:
    """Train and test a classifier by SGD with Nesterov momentum; report each epoch.

    Resumes from the trial's checkpoint; saves at the end of an epoch every `trial.checkpoint_s`
    seconds, and at a stop. The network is moved to the device. Reported: train/ and test/ loss and
    acc (means per image) and time, and total/time, which is training alone; times in seconds.

    Raises:
        Diverged: the loss of an epoch is not finite.
    """
    device.keep_freed_memory()
    size = train.batch_size
    run = {"epochs": epochs, "steps": len(train), "batch_size": size, "momentum": momentum}
    run |= {"max_learning_rate": max_learning_rate, "weight_decay": weight_decay}
    step = Step(device.placed(model, plan), plan, size, momentum, weight_decay)
    at = Progress(step, train.generator, run, trial.checkpoint_dir)
    at.restore()
    trial.phase(f"epoch {at.epoch} of {epochs}")
    every = rates(len(train), epochs, max_learning_rate).to(step.lr)
    try:
        while at.epoch <= epochs:
            trained = _train(step, train, every[at.epoch - 1], trial, at.epoch)
            tested = _test(step, test, trial, at.epoch)
            at.end_epoch(trained["train/time"])
            total = {"total/time": _float32(at.total_s)}
            trial.report({**trained, **tested, **total}, at.epoch - 1)
            at.save(trial.checkpoint_s)
    except _Stopped:
        if at.epoch > 1:
            at.save()


def _train(
    step: Step, train: Batches, rates: torch.Tensor, trial: Trial, epoch: int
) -> dict[str, float]:
    began = time.perf_counter()
    step.model.train()
    step.sums.zero_()
    for batch, rate in zip(_until_stopped(train, trial), rates, strict=True):
        step(batch, rate)
    return _figures(epoch, "train", step.sums, len(train) * step.size, began)


def _test(step: Step, test: Batches, trial: Trial, epoch: int) -> dict[str, float]:
    began = time.perf_counter()
    step.model.eval()
    sums = torch.zeros_like(step.sums)
    with torch.no_grad():
        for batch in _until_stopped(test, trial):
            measure(step.network, batch, sums, step.plan)
    return _figures(epoch, "test", sums, len(test.split), began)


def _figures(epoch: int, part: str, sums: torch.Tensor, n: int, began: float) -> dict[str, float]:
    loss, hits = sums.tolist()  # waits for the device
    seconds = time.perf_counter() - began
    if not math.isfinite(loss):
        said = f"epoch {epoch}: {part}/loss is {loss}"
        raise Diverged(f"{said}; a lower max_learning_rate may help")
    loss = _float32(loss / n)
    return {f"{part}/loss": loss, f"{part}/acc": hits / n, f"{part}/time": _float32(seconds)}


def _float32(value: float) -> float:
    """Round to the precision of one loss, which takes 4 bytes a point in Redis instead of 8."""
    return torch.tensor(value, dtype=torch.float32).item()


class _Stopped(Exception):
    pass


def _until_stopped(batches: Iterable[Batch], trial: Trial) -> Iterator[Batch]:
    for batch in batches:
        if trial.should_stop:
            raise _Stopped
        yield batch


class Progress:
    """Where a training stands, and its checkpoint: one file, which appears whole by a rename.

    `order` draws each epoch's order; `run` holds the numbers of the schedule and the update, which
    a checkpoint must share.
    """

    def __init__(
        self,
        step: Step,
        order: torch.Generator,
        run: Mapping[str, float],
        folder: Path | None,
    ) -> None:
        self.step = step
        self.order = order
        self.run = dict(run)
        self.path = folder / FILE if folder is not None else None  # None: nothing is saved
        self.epoch = 1  # that is to be trained next
        self.total_s = 0.0  # training of the epochs before
        self.saved_at = time.monotonic()
        self.kept = self._state()

    def end_epoch(self, train_s: float) -> None:
        """Go to the next epoch, and keep the state that a stop will save."""
        self.epoch += 1
        self.total_s += train_s
        self.kept = self._state()

    def save(self, every_s: float = 0.0) -> None:
        """Save if the last time is that long ago; training continues if it cannot be saved."""
        if self.path is None or time.monotonic() - self.saved_at < every_s:
            return
        self.saved_at = time.monotonic()
        draft = self.path.with_suffix(".tmp")
        try:
            with draft.open("wb", buffering=0) as file:
                torch.save(self.kept, file)
            os.replace(draft, self.path)
        except (OSError, RuntimeError) as error:  # torch's writer hides the reason: a full disk
            why = error.__context__ or error
            print(f"hpq: no checkpoint: {why}", file=sys.stderr, flush=True)
            with suppress(OSError):
                draft.unlink(missing_ok=True)

    def restore(self) -> None:
        """Continue from the file if there is one; one line says so, or why it does not fit."""
        if self.path is None or not self.path.exists():
            return
        try:  # weights_only: a file in a store is data and never code
            saved = torch.load(self.path, map_location="cpu", weights_only=True)
            was = saved["run"]
            other = [name for name in self.run if was[name] != self.run[name]]
            if other:
                before, now = (", ".join(f"{x} {of[x]}" for x in other) for of in (was, self.run))
                why = f"it is of {before}, the trial of {now}"
            else:
                self._set(saved)
                self.kept = saved
                why = ""
        except Exception as error:  # torch raises whatever its readers do
            self._set(self.kept)
            why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            why = f"it is damaged, or of another network or program ({why})"
        said = f"continues at epoch {self.epoch} from {self.path}"
        if self.epoch > self.run["epochs"]:
            said = f"all epochs are complete in {self.path}"
        if why:
            said = f"the checkpoint cannot be used, training starts again: {why}"
        print(f"hpq: {said}", flush=True)

    def _state(self) -> dict[str, Any]:
        on_gpu = [torch.cuda.get_rng_state()] if self.step.sums.is_cuda else []
        state = {"model": self.step.model.state_dict(), "velocity": self.step.velocity}
        return {
            **deepcopy(state),
            "run": self.run,
            "next_epoch": self.epoch,
            "total_s": self.total_s,
            "order": self.order.get_state(),
            "random": [torch.get_rng_state(), *on_gpu],
        }

    def _set(self, state: Mapping[str, Any]) -> None:
        if state["next_epoch"] not in range(1, int(self.run["epochs"]) + 2):
            raise ValueError(f"it stands at epoch {state['next_epoch']}")
        self.epoch = state["next_epoch"]
        self.total_s = state["total_s"] + 0.0
        self.step.model.load_state_dict(state["model"])
        for own, saved in zip(self.step.velocity, state["velocity"], strict=True):
            own.copy_(saved)
        self.order.set_state(state["order"])
        torch.set_rng_state(state["random"][0])
        if len(state["random"]) > 1 and self.step.sums.is_cuda:
            torch.cuda.set_rng_state(state["random"][1])
