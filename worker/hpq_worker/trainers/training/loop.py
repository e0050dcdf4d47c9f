"""The training loop of all shipped trainers: SGD with Nesterov momentum on a loss that is a sum.

The conventions are the CIFAR10 article's: the loss is summed over the batch, so the learning rate
is divided by the batch size and the weight decay multiplied by it. Nothing is read back from the
device but the sums of an epoch, once after training and once after testing.

The parameters that every shipped trainer has, and what the loop asks of them.

The limits of `hpq.hyperparams` lie within these: a trainer of a user's own comes without them.

The learning rate of each step: up to its maximum at 5/24 of the training, then down to 0.

Over 24 epochs this is the CIFAR10 article's schedule: 0 -> maximum at epoch 5 -> 0 at epoch 24.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from numbers import Integral, Real

import torch
from torch import nn

from hpq.domain.trainer_specs import batch_problem
from hpq_worker.trainers.training.checkpoint import Keeper, Kept, Progress
from hpq_worker.trainers.training.device import Plan
from hpq_worker.trainers.training.step import Batch, Bench, bench, forget, forward
from hpq_worker.trainers.training.trial_context import BadParams, Diverged, TrialContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The parameters that every shipped trainer has."""

    seed: int
    epochs: int
    batch_size: int
    momentum: float
    max_learning_rate: float
    weight_decay: float


def check(recipe: Recipe, train_images: int) -> None:
    """See that so many images can be trained on by the recipe.

    Raises:
        BadParams: a parameter is of another kind, beyond its limits, or the batch is too large.
    """
    for name in ("epochs", "batch_size"):
        value = getattr(recipe, name)
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise BadParams(f"{name}: {value!r} is not a whole number (int) of at least 1")
    _number(recipe, "max_learning_rate", math.ulp(0.0), math.inf, "a number above 0")
    _number(recipe, "momentum", 0, 1, "a number from 0 to below 1")
    _number(recipe, "weight_decay", 0, math.inf, "a number of at least 0")
    if wrong := batch_problem(recipe.batch_size, train_images):
        raise BadParams(f"batch_size: {wrong}")


def _number(recipe: Recipe, name: str, least: float, below: float, allowed: str) -> None:
    value = getattr(recipe, name)
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not real or not least <= value < below:
        raise BadParams(f"{name}: {value!r} is not {allowed}")


KNEE = 5 / 24


def learning_rate(progress: torch.Tensor, maximum: float) -> torch.Tensor:
    """The rates at points of the training, as shares of all its steps from 0 to 1."""
    return maximum * torch.minimum(progress / KNEE, (1 - progress) / (1 - KNEE))


def rates(steps: int, epochs: int, maximum: float, batch_size: int) -> torch.Tensor:
    """The rate of each step of a training, (epochs * steps,) float64, for a loss that is a sum:
    divided by the batch size. The first is 0."""
    every = epochs * steps
    return learning_rate(torch.arange(every, dtype=torch.float64) / every, maximum) / batch_size


# beside `Task`, for trainers


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is trained on what: the network, and an epoch of batches at each call.

    With a `key`, a network that was captured for an equal one may stand in for `model`, with its
    weights, which `model` gets back in the end. Networks of equal keys must compute the same
    function of weights and images. The batches are all alike then, in shape and number format.
    """

    model: nn.Module
    train: Callable[[], Iterable[Batch]]  # shuffled; a last batch that is not whole is left out
    test: Callable[[], Iterable[Batch]]  # every image once
    train_images: int
    generator: torch.Generator | None = None  # what `train` draws from
    key: Hashable | None = None
    begin: Callable[[int], None] | None = None  # told the number of an epoch that is to be drawn
    label_smoothing: float = 0.0  # of the training loss


class _Stopped(Exception):
    """Raised at a step where the trial is to end."""


def fit(task: Task, recipe: Recipe, trial: TrialContext, plan: Plan | None = None) -> None:
    """Train and test for the recipe's epochs, with a report after each; returns early on a stop.

    Goes on from the trial's checkpoint where there is one: on a CPU, to the same figures as if it
    had never stopped. Saves at the end of an epoch where the time has come, and at a stop.

    Reported: train/ and test/ loss and acc (means per image) and time, and total/time, which is
    training alone, as in the article; all times in seconds, without the loading of data.

    Raises:
        BadParams: the recipe or the network cannot train, or the batches are not the recipe's.
        Diverged: the loss of an epoch is not finite.
    """
    steps = _steps(task, recipe)
    try:
        _fit(task, recipe, trial, steps, plan or Plan())
    except torch.OutOfMemoryError as error:
        # So that the next trial, or a neighbour, finds the memory of an empty process. What the
        # trial made lies in the variables that the traceback holds.
        traceback.clear_frames(error.__traceback__)
        forget()
        raise


def _steps(task: Task, recipe: Recipe) -> int:
    check(recipe, task.train_images)
    if not any(p.requires_grad for p in task.model.parameters()):
        raise BadParams("the network: it has no parameter that requires_grad")
    return int(task.train_images // recipe.batch_size)


def _drawn(task: Task, epoch: int) -> Iterator[Batch]:
    if task.begin is not None:
        task.begin(epoch)
    return iter(task.train())


def _looked_at(batches: Iterator[Batch], size: int) -> tuple[Batch, Iterator[Batch]]:
    """The first batch, and all of them."""
    first = next(batches, None)
    if first is None:
        raise BadParams("the training set: its epoch has no batch")
    images, labels = first
    if len(labels) != size:
        raise BadParams(f"batch_size: {size}, but the first batch has {len(labels)} labels")
    if labels.dtype != torch.int64:
        raise BadParams(f"the training set: labels are {labels.dtype}, not torch.int64")
    if images.is_cuda:
        torch.cuda.synchronize()  # so that drawing is timed where it was asked for
    return first, chain((first,), batches)


def _bench(task: Task, recipe: Recipe, plan: Plan, like: Batch) -> Bench:
    found = bench(task.model, like, task.key, plan, task.label_smoothing)
    # The article's: the decay is times the batch size, as the loss is a sum.
    found.update.reset(momentum=recipe.momentum, decay=recipe.weight_decay * recipe.batch_size)
    return found


def _run(recipe: Recipe, steps: int) -> dict[str, float]:
    # Python's own numbers: others would make the checkpoint a pickle that names code.
    numbers = ("max_learning_rate", "momentum", "weight_decay")
    return {
        "epochs": int(recipe.epochs),
        "steps": steps,
        "batch_size": int(recipe.batch_size),
        **{name: float(getattr(recipe, name)) for name in numbers},
    }


def _fit(task: Task, recipe: Recipe, trial: TrialContext, steps: int, plan: Plan) -> None:
    at = Progress(epoch=1, sums=_zeros(task.model))
    at.remember(task.generator)
    began = time.perf_counter()
    drawn: Iterator[Batch] | None
    first, drawn = _looked_at(_drawn(task, 1), recipe.batch_size)
    at.epoch_s = time.perf_counter() - began
    own = _bench(task, recipe, plan, first)
    del first  # it may hold the memory of a whole epoch
    every = rates(steps, recipe.epochs, recipe.max_learning_rate, recipe.batch_size)
    every = every.to(at.sums.device)
    kept = Kept(
        model=own.model,
        optimizer=own.update,
        generator=task.generator,
        run=_run(recipe, steps),
    )
    keeper = Keeper(trial.checkpoint_dir, trial.checkpoint_s, kept)
    if keeper.restore(at):
        drawn = None  # of the first epoch, and of another order
    try:
        while at.epoch <= recipe.epochs:
            some = every[(at.epoch - 1) * steps : at.epoch * steps]
            began = time.perf_counter() - at.epoch_s
            run = partial(_train, task, own, some, trial, keeper, at, drawn)
            drawn = None
            trained = _epoch(at.epoch, "train", run, began)
            at.epoch_s = trained["train/time"]
            tested = _epoch(
                at.epoch, "test", partial(_test, task, own.model, trial), time.perf_counter()
            )
            at.total_s += at.epoch_s
            trial.report({**trained, **tested, "total/time": at.total_s}, at.epoch)
            at.epoch, at.step, at.epoch_s = at.epoch + 1, 0, 0.0
            at.remember(task.generator)
            keeper.at_epochs_end(at)
    except _Stopped:
        if at.step < steps:
            at.epoch_s = time.perf_counter() - began
        if (at.epoch, at.step) != (1, 0):
            keeper.save(at)
    if own.model is not task.model:
        task.model.load_state_dict(own.model.state_dict())


def _epoch(
    epoch: int, name: str, run: Callable[[], torch.Tensor], began: float
) -> dict[str, float]:
    loss, hits, images = run().tolist()  # waits for the device
    seconds = time.perf_counter() - began
    if not images:
        raise BadParams(f"the {name} set: it has no image")
    if not math.isfinite(loss):
        raise Diverged(f"epoch {epoch}: {name}/loss is {loss}; a lower max_learning_rate may help")
    return {f"{name}/loss": loss / images, f"{name}/acc": hits / images, f"{name}/time": seconds}


def _train(
    task: Task,
    own: Bench,
    some: torch.Tensor,  # the rate of each step of the epoch
    trial: TrialContext,
    keeper: Keeper,
    at: Progress,
    drawn: Iterator[Batch] | None,  # the epoch, where it has been drawn
) -> torch.Tensor:
    own.model.train()
    if not at.step:
        at.sums = _zeros(own.model)
    batches = _drawn(task, at.epoch) if drawn is None else drawn
    for _ in range(at.step):  # trained on before the checkpoint
        next(batches, None)
    keeper.at_step()
    left = iter(some[at.step :])
    for batch in _until_stopped(batches, trial):
        if at.step == len(some):
            hint = "leave a last batch out that is not whole (DataLoader: drop_last=True)"
            raise BadParams(f"{_miscounted(f'more than {at.step}', len(some))}; {hint}")
        own.take(batch, next(left), at.sums)
        at.step += 1
    if at.step < len(some):
        raise BadParams(_miscounted(f"{at.step}", len(some)))
    return at.sums


def _miscounted(batches: str, steps: int) -> str:
    return (
        f"the training set: its epoch has {batches} batches, train_images // batch_size says"
        f" {steps}"
    )


def _test(task: Task, model: nn.Module, trial: TrialContext) -> torch.Tensor:
    model.eval()
    sums = _zeros(model)
    with torch.no_grad():
        for batch in _until_stopped(task.test(), trial):
            forward(model, batch, sums)
    return sums


def _zeros(model: nn.Module) -> torch.Tensor:
    # float64: a float32 sum of many batches would lose what single images add.
    return torch.zeros(3, dtype=torch.float64, device=next(model.parameters()).device)


def _until_stopped(batches: Iterable[Batch], trial: TrialContext) -> Iterator[Batch]:
    for batch in batches:
        if trial.should_stop:
            raise _Stopped
        yield batch
