"""The loop of all trainers: the schedule, epochs, reports, stops, and a checkpoint to resume from.

The device is read twice an epoch: its sums after training, and after testing. On the same device a
trial that resumes reports the figures of one that never stopped.
"""

from __future__ import annotations

import io
import math
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import suppress
from copy import deepcopy
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from hpq.errors import BadParams, Diverged
from hpq_worker.runner.trial_api import Trial
from hpq_worker.trainers import device
from hpq_worker.trainers.step import Batch, Loss, Plan, Step, measure, summed_cross_entropy

FILE = "training.pt"  # in the trial's checkpoint directory
KNEE = 5 / 24  # of the training: here the learning rate is at its maximum
NUMBERS = ("epochs", "max_learning_rate", "momentum", "weight_decay")  # of a built-in trainer's set


class Loader(Sized, Iterable[Batch], Protocol):
    """A DataLoader or the like.

    Its `set_epoch`, or its sampler's, is called with each epoch from 1.
    """

    @property
    def batch_size(self) -> int | None: ...


def rates(steps: int, epochs: int, maximum: float) -> torch.Tensor:
    """Return the rate of each step, (epochs, steps) float64: from 0 up to the maximum and to 0.

    Over 24 epochs this is the CIFAR10 article's schedule.
    """
    at = torch.arange(epochs * steps, dtype=torch.float64) / (epochs * steps)
    return (maximum * torch.minimum(at / KNEE, (1 - at) / (1 - KNEE))).view(epochs, steps)


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
    steps, size = _steps_and_size(train, epochs)
    _check_network(model, loss)
    epochs = int(epochs)
    plan = plan or device.plan()
    # Python's own numbers: others would make the checkpoint a pickle that names code.
    momentum, weight_decay, most = map(float, (momentum, weight_decay, max_learning_rate))
    run: dict[str, float] = {"epochs": epochs, "steps": steps, "batch_size": size}
    run |= {"max_learning_rate": most, "momentum": momentum, "weight_decay": weight_decay}
    step = Step(device.placed(model, plan), plan, loss, size, momentum, weight_decay)
    at = Progress(step, _generator(train), run, trial.checkpoint_dir)
    at.restore()
    trial.phase(f"epoch {at.epoch} of {epochs}")
    every = rates(steps, epochs, most).to(step.lr)
    while at.epoch <= epochs:
        began = time.perf_counter() - at.epoch_s
        trained = dict[str, float]()
        try:
            _train(at, train, every[at.epoch - 1], trial)
            trained = _figures(at, "train", step.sums, steps * size, began)
            at.epoch_s = trained["train/time"]
            at.random = at._random()  # a DataLoader draws a seed when its iteration begins
            tested = _test(at, test, trial)
        except _Stopped:
            if not trained:
                at.epoch_s = time.perf_counter() - began
                at.random = at._random() if at.done else at.random
            if (at.epoch, at.done) != (1, 0):
                at.save()
            return
        at.total_s += at.epoch_s
        trial.report({**trained, **tested, "total/time": _float32(at.total_s)}, at.epoch)
        at.begin(at.epoch + 1)
        at.save(trial.checkpoint_s)


def _steps_and_size(train: Loader, epochs: float) -> tuple[int, int]:
    size = getattr(train, "batch_size", None)
    if not (epochs >= 1 and epochs == epochs // 1):
        raise BadParams(f"epochs: {epochs} is not a whole number from 1")
    if not size:
        raise BadParams("the training set: it has no batch_size; use a DataLoader, or set it")
    try:
        steps = len(train)
    except TypeError:
        text = "the training set: it has no len(), the number of batches in an epoch"
        raise BadParams(f"{text}; use a data set with a length, or define __len__") from None
    if steps < 1:
        raise BadParams(f"batch_size: {size} leaves no whole batch in an epoch")
    return steps, int(size)


def _check_network(model: nn.Module, loss: Loss) -> None:
    for name, weight in model.named_parameters():
        if is_lazy(weight):
            raise BadParams("the network: call it with a batch first, which makes its lazy weights")
        if weight.is_complex() or weight.layout != torch.strided:
            kind = "complex" if weight.is_complex() else "sparse"
            raise BadParams(
                f"the network: {name} is {kind}; make it a dense tensor of real numbers"
            )
    for name, module in model.named_modules():
        if getattr(module, "sparse", None) is True:
            raise BadParams(f"the network: {name} has sparse gradients; make it with sparse=False")
    if not any(p.requires_grad for p in model.parameters()):
        raise BadParams("the network: it has no parameter that requires_grad")
    if (kind := getattr(loss, "reduction", "sum")) != "sum":
        raise BadParams(f"loss: its reduction is {kind!r}, not 'sum'")


def _train(at: Progress, train: Loader, rates: torch.Tensor, trial: Trial) -> None:
    at.step.model.train()
    if not at.done:
        at.step.sums.zero_()
    for each in (train, getattr(train, "sampler", None)):
        if set_epoch := getattr(each, "set_epoch", None):
            set_epoch(at.epoch)
    size = at.step.size
    for batch in _until_stopped(at.remaining(iter(train)), trial):
        if len(batch[1]) != size:
            said = f"the training set: a batch of {len(batch[1])} images, its batch_size is {size}"
            raise BadParams(f"{said}; leave out one that is not whole (DataLoader: drop_last=True)")
        if at.done < len(rates):
            at.step(batch, rates[at.done])
        at.done += 1
    if at.done != len(rates):
        raise BadParams(f"the training set: {at.done} batches in an epoch, its len is {len(rates)}")


def _test(at: Progress, test: Iterable[Batch], trial: Trial) -> dict[str, float]:
    at.step.model.eval()
    began = time.perf_counter()
    sums = torch.zeros_like(at.step.sums)
    images = 0
    with torch.no_grad():
        for batch in _until_stopped(test, trial):
            measure(at.step.network, batch, sums, at.step.plan, at.step.loss_of)
            images += len(batch[1])
    if not images:
        raise BadParams("the test set: it has no image")
    return _figures(at, "test", sums, images, began)


def _figures(at: Progress, part: str, sums: torch.Tensor, n: int, began: float) -> dict[str, float]:
    loss, hits = sums.tolist()  # waits for the device
    seconds = time.perf_counter() - began
    if not math.isfinite(loss):
        said = f"epoch {at.epoch}: {part}/loss is {loss}"
        raise Diverged(f"{said}; a lower max_learning_rate may help")
    loss = _float32(loss / n)
    seconds = _float32(seconds)
    return {f"{part}/loss": loss, f"{part}/acc": hits / n, f"{part}/time": seconds}


def _float32(value: float) -> float:
    """Round to the precision of one loss, which takes 4 bytes a point in Redis instead of 8."""
    return torch.tensor(value, dtype=torch.float32).item()


class _Stopped(Exception):
    pass


def _until_stopped(batches: Iterable[Batch], trial: Trial) -> Iterator[Batch]:
    place = device.pick()
    left = iter(batches)
    while not trial.should_stop:  # before the next batch, whose augmentation moves the generators
        if (batch := next(left, None)) is None:
            return
        yield batch[0].to(place, non_blocking=True), batch[1].to(place, non_blocking=True)
    raise _Stopped


def _generator(train: Loader) -> torch.Generator:
    """Return what draws an epoch's order: the generator of the loader, its sampler or torch."""
    for each in (train, getattr(train, "sampler", None)):
        if (found := getattr(each, "generator", None)) is not None:
            return found
    return torch.default_generator


class Progress:
    """Where a training stands, and its checkpoint: one file, which appears whole by a rename.

    `generator` draws each epoch's order; `run` holds the numbers of the schedule and the update,
    which a checkpoint must share.
    """

    def __init__(
        self, step: Step, generator: torch.Generator, run: Mapping[str, float], folder: Path | None
    ) -> None:
        self.step = step
        self.generator = generator
        self.run = run
        self.path = folder / FILE if folder is not None else None  # None: nothing is saved
        if self.path is not None and (name := _unreadable(step.model)):
            self.path = None
            text = "a checkpoint could not be read; return tensors, numbers, text, lists or dicts"
            print(f"hpq: no checkpoint: with {name} of get_extra_state, {text}", file=sys.stderr)
        self.saved_at = time.monotonic()
        self.total_s = 0.0  # training of the epochs before
        self.begin(1)

    def begin(self, epoch: int) -> None:
        """Go to the start of an epoch."""
        self.epoch = epoch
        self.done = 0  # steps of this epoch
        self.epoch_s = 0.0
        self.order, self.random = self.generator.get_state(), self._random()  # at its start

    def remaining(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Return the batches of this epoch that are still to be trained on."""
        if self.done:
            deque(islice(batches, self.done), maxlen=0)
            self._set_random(self.random)  # drawing these again has moved the generators
        return batches

    def save(self, every_s: float = 0.0) -> None:
        """Save if the last time is that long ago; training continues if it cannot be saved."""
        if self.path is None or time.monotonic() - self.saved_at < every_s:
            return
        self.saved_at, draft = time.monotonic(), self.path.with_suffix(".tmp")
        try:
            with draft.open("wb", buffering=0) as file:
                torch.save(self._state(), file)
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
        fresh = deepcopy(self._state())
        run = self.run
        try:  # weights_only: a file in a store is data and never code
            saved = torch.load(self.path, map_location="cpu", weights_only=True)
            other = [
                name for name in {**run, **saved["run"]} if saved["run"].get(name) != run[name]
            ]
            was, now = (", ".join(f"{x} {of[x]}" for x in other) for of in (saved["run"], run))
            why = f"it is of {was}, the trial of {now}" if other else ""
            if not other:
                self._set(saved)
        except Exception as error:  # torch raises whatever its readers do
            self._set(fresh)
            why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            why = f"it is damaged, or of another network or program ({why})"
        said = f"continues at epoch {self.epoch} from {self.path}"
        if self.epoch > run["epochs"]:
            said = f"all epochs are complete in {self.path}"
        if why:
            said = f"the checkpoint cannot be used, training starts again: {why}"
        print(f"hpq: {said}", flush=True)

    def _state(self) -> dict[str, Any]:
        names = ("epoch", "done", "epoch_s", "total_s", "order")
        return {name: getattr(self, name) for name in names} | {
            "run": dict(self.run),
            "model": self.step.model.state_dict(),
            "velocity": self.step.velocity,
            "sums": self.step.sums,
            "random": self.random,
        }

    def _set(self, state: Mapping[str, Any]) -> None:
        self.epoch = state["epoch"]
        self.done = state["done"]
        self.epoch_s = state["epoch_s"] + 0.0
        self.total_s = state["total_s"] + 0.0
        epochs = int(self.run["epochs"])
        steps = int(self.run["steps"])
        if self.epoch not in range(1, epochs + 2) or self.done not in range(steps + 1):
            raise ValueError(f"it stands at epoch {self.epoch}, step {self.done}")
        self.epoch, self.done = int(self.epoch), int(self.done)  # 2.0 is in a range
        self.step.model.load_state_dict(state["model"])
        for own, saved in zip(self.step.velocity, state["velocity"], strict=True):
            own.copy_(saved)
        self.step.sums.copy_(state["sums"])
        self.order = state["order"]
        self.random = state["random"]
        self._set_random(self.random)
        self.generator.set_state(self.order)  # after torch's own, which it may be

    def _random(self) -> list[torch.Tensor]:
        on_gpu = [torch.cuda.get_rng_state()] if self.step.sums.is_cuda else []
        return [torch.get_rng_state(), *on_gpu]

    def _set_random(self, states: list[torch.Tensor]) -> None:
        torch.set_rng_state(states[0])
        if len(states) > 1 and self.step.sums.is_cuda:
            torch.cuda.set_rng_state(states[1])


def _unreadable(model: nn.Module) -> str:
    """Return the first of the network's extra states that torch saves and then refuses to load."""
    for name, state in model.state_dict().items():
        if not isinstance(state, torch.Tensor):
            file = io.BytesIO()
            try:
                torch.save(state, file)
                torch.load(io.BytesIO(file.getvalue()), weights_only=True)
            except Exception:  # pickle raises whatever the state's class does
                return name
    return ""
