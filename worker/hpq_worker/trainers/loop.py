"""The training loop of all shipped trainers: the schedule, the epochs, reports and stops.

The device is read twice an epoch: its sums after training, and after testing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from typing import Protocol

import torch
from torch import nn

from hpq.errors import BadParams, Diverged
from hpq_worker.runner.trial_api import Trial
from hpq_worker.trainers import device
from hpq_worker.trainers.checkpoint import Training
from hpq_worker.trainers.device import Plan
from hpq_worker.trainers.step import Batch, Loss, Step, measure, summed_cross_entropy

KNEE = 5 / 24  # of the training: here the learning rate is at its maximum


class Loader(Protocol):
    """Epochs of training batches, as of a DataLoader.

    Its `generator`, if any, draws the order; `set_epoch`, if any, gets each epoch from 1.
    """

    @property
    def batch_size(self) -> int | None: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Batch]: ...


class _Stopped(Exception):
    """Raised at a batch when the trial is to end."""


def rates(steps: int, epochs: int, maximum: float, batch_size: int) -> torch.Tensor:
    """Return the rate of each step, (epochs, steps) float64, divided by the batch size.

    From 0 up to the maximum at 5/24 of the training, then down to 0: over 24 epochs this is the
    CIFAR10 article's schedule.
    """
    at = torch.arange(epochs * steps, dtype=torch.float64) / (epochs * steps)
    every = maximum * torch.minimum(at / KNEE, (1 - at) / (1 - KNEE)) / batch_size
    return every.view(epochs, steps)


def fit(
    model: nn.Module,
    train: Loader,
    test: Iterable[Batch],
    trial: Trial,
    *,
    epochs: int,
    max_learning_rate: float,
    momentum: float = 0.9,
    weight_decay: float = 5e-4,
    loss: Loss = summed_cross_entropy,
    plan: Plan | None = None,
) -> None:
    """Train and test a classifier by SGD with Nesterov momentum; report each epoch.

    Resumes from the trial's checkpoint; saves at the end of an epoch every `trial.checkpoint_s`
    seconds, and at a stop. The network is moved to the device. Reported: train/ and test/ loss and
    acc (means per image) and time, and total/time, which is training alone; times in seconds.

    Raises:
        BadParams: the network or the batches cannot be trained on.
        Diverged: the loss of an epoch is not finite.
    """
    steps, size = len(train), train.batch_size
    if epochs < 1:
        raise BadParams(f"epochs: {epochs} is not at least 1")
    if not size:
        raise BadParams("the training set: it has no batch_size")
    if steps < 1:
        raise BadParams(f"batch_size: {size} leaves no whole batch in an epoch")
    if not any(p.requires_grad for p in model.parameters()):
        raise BadParams("the network: it has no parameter that requires_grad")
    plan = plan or device.plan()
    # Python's own numbers: others would make the checkpoint a pickle that names code.
    run: dict[str, float] = {"epochs": int(epochs), "steps": steps, "batch_size": int(size)}
    run |= {"max_learning_rate": float(max_learning_rate)}
    run |= {"momentum": float(momentum), "weight_decay": float(weight_decay)}
    decay = run["weight_decay"] * size
    step = Step(device.placed(model, plan), plan, loss, momentum=run["momentum"], decay=decay)
    draws = getattr(train, "generator", None) or torch.default_generator
    at = Training(step, draws, run, trial.checkpoint_dir)
    at.restore()
    every = rates(steps, epochs, max_learning_rate, size).to(step.lr)
    while at.epoch <= epochs:
        began = time.perf_counter() - at.epoch_s
        try:
            _train(at, train, every[at.epoch - 1], trial)
            trained = _figures(at.epoch, "train", step.sums, steps * size, began)
            at.epoch_s = trained["train/time"]
            tested = _test(at, test, trial)
        except _Stopped:
            if at.done < steps:
                at.epoch_s = time.perf_counter() - began
            if (at.epoch, at.done) != (1, 0):
                at.save()
            return
        total_s = at.total_s + at.epoch_s
        trial.report({**trained, **tested, "total/time": total_s}, at.epoch)
        at.next_epoch()
        at.save(trial.checkpoint_s)


def _train(at: Training, train: Loader, rates: torch.Tensor, trial: Trial) -> None:
    at.step.model.train()
    if not at.done:
        at.step.sums.zero_()
    if set_epoch := getattr(train, "set_epoch", None):
        set_epoch(at.epoch)
    for batch in _until_stopped(at.left(iter(train)), trial):
        if at.done < len(rates):
            at.step(batch, rates[at.done])
        at.done += 1
    if at.done != len(rates):
        raise BadParams(f"the training set: {at.done} batches in an epoch, its len is {len(rates)}")


def _test(at: Training, test: Iterable[Batch], trial: Trial) -> dict[str, float]:
    at.step.model.eval()
    began, sums, images = time.perf_counter(), torch.zeros_like(at.step.sums), 0
    with torch.no_grad():
        for batch in _until_stopped(test, trial):
            measure(at.step.network, batch, sums, at.step.plan, at.step.loss_of)
            images += len(batch[1])
    if not images:
        raise BadParams("the test set: it has no image")
    return _figures(at.epoch, "test", sums, images, began)


def _figures(
    epoch: int, part: str, sums: torch.Tensor, images: int, began: float
) -> dict[str, float]:
    loss, hits = sums.tolist()  # waits for the device
    seconds = time.perf_counter() - began
    if not math.isfinite(loss):
        raise Diverged(f"epoch {epoch}: {part}/loss is {loss}; a lower max_learning_rate may help")
    return {f"{part}/loss": loss / images, f"{part}/acc": hits / images, f"{part}/time": seconds}


def _until_stopped(batches: Iterable[Batch], trial: Trial) -> Iterator[Batch]:
    place = device.pick()
    for images, labels in batches:
        if trial.should_stop:
            raise _Stopped
        yield images.to(place, non_blocking=True), labels.to(place, non_blocking=True)
