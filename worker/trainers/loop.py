"""The training loop of all shipped trainers: SGD with Nesterov momentum on a loss that is a sum.

The conventions are the CIFAR10 article's: the loss is summed over the batch, so the learning rate
is divided by the batch size and the weight decay multiplied by it. Nothing is read back from the
device but the sums of an epoch, once after training and once after testing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from worker.trainers.checkpoint import Keeper, Progress
from worker.trainers.context import BadParams, Diverged, TrialContext
from worker.trainers.schedule import learning_rate

Batch = tuple[torch.Tensor, torch.Tensor]  # images (B, C, H, W), labels (B,) int64


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The parameters that every shipped trainer has."""

    seed: int
    epochs: int
    batch_size: int
    momentum: float
    max_learning_rate: float
    weight_decay: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is trained on what: the network, and an epoch of batches at each call."""

    model: nn.Module
    train: Callable[[], Iterable[Batch]]  # shuffled; a last batch that is not whole is left out
    test: Callable[[], Iterable[Batch]]  # every image once
    train_images: int
    generator: torch.Generator | None = None  # what `train` draws from


class _Stopped(Exception):
    """Raised at a step where the trial is to end."""


def fit(task: Task, recipe: Recipe, trial: TrialContext) -> None:
    """Train and test for the recipe's epochs, with a report after each; returns early on a stop.

    Goes on from the trial's checkpoint where there is one: on a CPU, to the same figures as if it
    had never stopped. Saves at the end of an epoch where the time has come, and at a stop.

    Reported: train/ and test/ loss and acc (means per image) and time, and total/time, which is
    training alone, as in the article; all times in seconds, without the loading of data.

    Raises:
        BadParams: a batch takes more images than there are.
        Diverged: the loss of an epoch is not finite.
    """
    steps = task.train_images // recipe.batch_size
    if not steps:
        raise BadParams(
            f"batch_size: {recipe.batch_size} is more than the {task.train_images} training images"
        )
    optimizer = sgd(task.model, recipe)
    at = Progress(epoch=1, sums=_zeros(task.model))
    keeper = Keeper(trial.checkpoint_dir, trial.checkpoint_s, task.model, optimizer, task.generator)
    keeper.begin_epoch(at)
    keeper.restore(at)
    began = 0.0
    try:
        while at.epoch <= recipe.epochs:
            rates = _rates(at.epoch, steps, recipe)
            began = time.perf_counter() - at.epoch_s
            run = partial(_train, task, optimizer, rates, trial, keeper, at)
            trained = _epoch(at.epoch, "train", run, began)
            at.epoch_s = trained["train/time"]
            tested = _epoch(at.epoch, "test", partial(_test, task, trial), time.perf_counter())
            at.total_s += at.epoch_s
            trial.report({**trained, **tested, "total/time": at.total_s}, at.epoch)
            at.epoch, at.step, at.epoch_s = at.epoch + 1, 0, 0.0
            keeper.begin_epoch(at)
            keeper.at_epochs_end(at)
    except _Stopped:
        if at.step < steps:
            at.epoch_s = time.perf_counter() - began
        if (at.epoch, at.step) != (1, 0):
            keeper.save(at)


def sgd(model: nn.Module, recipe: Recipe) -> torch.optim.SGD:
    """The article's optimizer for a summed loss; the caller sets the learning rate of each step."""
    return torch.optim.SGD(
        model.parameters(),
        lr=0.0,
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay * recipe.batch_size,
        nesterov=recipe.momentum > 0,  # torch refuses the word without momentum; the sum is equal
        fused=True,
    )


def train_step(
    model: nn.Module, optimizer: torch.optim.SGD, batch: Batch, sums: torch.Tensor
) -> None:
    """One update; adds the batch's loss, hits and size to `sums` (3,) on the device."""
    loss = _forward(model, batch, sums)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def _rates(epoch: int, steps: int, recipe: Recipe) -> list[float]:
    return [
        learning_rate((epoch - 1 + step / steps) / recipe.epochs, recipe.max_learning_rate)
        / recipe.batch_size
        for step in range(steps)
    ]


def _epoch(
    epoch: int, name: str, run: Callable[[], torch.Tensor], began: float
) -> dict[str, float]:
    loss, hits, images = run().tolist()  # waits for the device
    seconds = time.perf_counter() - began
    if not math.isfinite(loss):
        raise Diverged(f"epoch {epoch}: {name}/loss is {loss}; a lower max_learning_rate may help")
    return {f"{name}/loss": loss / images, f"{name}/acc": hits / images, f"{name}/time": seconds}


def _train(
    task: Task,
    optimizer: torch.optim.SGD,
    rates: list[float],
    trial: TrialContext,
    keeper: Keeper,
    at: Progress,
) -> torch.Tensor:
    task.model.train()
    if not at.step:
        at.sums = _zeros(task.model)
    batches = iter(task.train())
    for _ in range(at.step):  # trained on before the checkpoint
        next(batches)
    keeper.at_step()
    for rate, batch in zip(rates[at.step :], _until_stopped(batches, trial), strict=True):
        optimizer.param_groups[0]["lr"] = rate
        train_step(task.model, optimizer, batch, at.sums)
        at.step += 1
    return at.sums


def _test(task: Task, trial: TrialContext) -> torch.Tensor:
    task.model.eval()
    sums = _zeros(task.model)
    with torch.no_grad():
        for batch in _until_stopped(task.test(), trial):
            _forward(task.model, batch, sums)
    return sums


def _forward(model: nn.Module, batch: Batch, sums: torch.Tensor) -> torch.Tensor:
    images, labels = batch
    logits = model(images)
    loss = F.cross_entropy(logits, labels, reduction="sum")
    sums[0] += loss.detach()
    sums[1] += (logits.argmax(1) == labels).sum()
    sums[2] += len(labels)
    return loss


def _zeros(model: nn.Module) -> torch.Tensor:
    # float64: a float32 sum of many batches would lose what single images add.
    return torch.zeros(3, dtype=torch.float64, device=next(model.parameters()).device)


def _until_stopped(batches: Iterable[Batch], trial: TrialContext) -> Iterator[Batch]:
    for batch in batches:
        if trial.should_stop:
            raise _Stopped
        yield batch
