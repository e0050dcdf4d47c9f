"""The loop of the built-in trainers: the schedule, epochs, reports, stops, and a checkpoint.

No step waits for the device: its sums are read once after the training of an epoch, and once after
the test. A checkpoint holds the state after the training of an epoch. A trial that resumes from it
runs the test of this epoch if it is missing, and then trains the next epoch.
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
# After the training of an epoch: params, epoch, total_s of all training, `untested` (the figures of
# the epoch until its test is reported), and what `_copied` returns.
State = dict[str, Any]


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
    params: Mapping[str, Any],
    plan: Plan,
) -> None:
    """Train and test a classifier by SGD with Nesterov momentum; report each epoch.

    `params` are all of the trainer; epochs, max_learning_rate, momentum and weight_decay are read
    here. Resumes from the trial's checkpoint if it is of equal `params`; saves after an epoch every
    `trial.checkpoint_s` seconds, and at a stop. The network is moved to the device. Reported:
    train/ and test/ loss and acc (means per image) and time, and total/time, which is training
    alone; times in seconds.

    Raises:
        Diverged: the loss of an epoch is not finite.
    """
    model = device.placed(model, plan)
    step = Step(model, plan, train.batch_size, params["momentum"], params["weight_decay"])
    epochs = params["epochs"]
    every = rates(len(train), epochs, params["max_learning_rate"]).to(step.lr)
    path = None if trial.checkpoint_dir is None else trial.checkpoint_dir / FILE
    state = _resumed(path, step, train.generator, params)
    trial.phase(f"epoch {state['epoch'] + 1} of {epochs}")
    saved_at = time.monotonic()
    try:
        for epoch in range(state["epoch"], epochs + 1):
            if epoch > state["epoch"]:
                trained = _train(step, train, every[epoch - 1], trial, epoch)
                total_s = state["total_s"] + trained["train/time"]
                state |= {"epoch": epoch, "total_s": total_s, "untested": trained}
                state |= _copied(step, train.generator)
                if time.monotonic() - saved_at >= trial.checkpoint_s:
                    _save(state, path)
                    saved_at = time.monotonic()
            if state["untested"]:
                tested = _test(step, test, trial, epoch)
                total = {"total/time": _float32(state["total_s"])}
                trial.report({**state["untested"], **tested, **total}, epoch)
                state["untested"] = {}
    except _Stopped:
        if state["epoch"] > 0:
            _save(state, path)


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
            measure(step.model, batch, sums, step.plan)
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


def _copied(step: Step, order: torch.Generator) -> State:
    """Return copies of weights, momentum and the states of generators."""
    on_gpu = [torch.cuda.get_rng_state()] if step.sums.is_cuda else []
    return {
        "model": deepcopy(step.model.state_dict()),
        "velocity": deepcopy(step.velocity),
        "order": order.get_state(),
        "random": [torch.get_rng_state(), *on_gpu],
    }


def _put(state: State, step: Step, order: torch.Generator) -> None:
    """Set weights, momentum and generators to those of a state."""
    step.model.load_state_dict(state["model"])
    for own, saved in zip(step.velocity, state["velocity"], strict=True):
        own.copy_(saved)
    order.set_state(state["order"])
    torch.set_rng_state(state["random"][0])
    if len(state["random"]) > 1 and step.sums.is_cuda:
        torch.cuda.set_rng_state(state["random"][1])


def _resumed(
    path: Path | None, step: Step, order: torch.Generator, params: Mapping[str, Any]
) -> State:
    """Return the state to start from; one line says that it is a checkpoint's, or why not."""
    fresh = {"params": dict(params), "epoch": 0, "total_s": 0.0, "untested": {}}
    fresh |= _copied(step, order)
    if path is None or not path.exists():
        return fresh
    try:  # weights_only: a file in a store is data and never code
        state: State = torch.load(path, map_location="cpu", weights_only=True)
        other = dict(state["params"].items() - params.items())
        if other:
            raise ValueError(f"it is of a training with {other}")
        if state["epoch"] not in range(1, params["epochs"] + 1):
            raise ValueError(f"it has epoch {state['epoch']}")
        _put(state, step, order)
        said = f"continues after epoch {state['epoch']}, from {path}"
    except Exception as error:  # torch raises whatever its readers do
        _put(fresh, step, order)
        state = fresh
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        said = f"starts again, since {path} cannot be used: {why}"
    print(f"hpq: the training {said}", flush=True)
    return state


def _save(state: State, path: Path | None) -> None:
    """Write the checkpoint, which appears whole by a rename; one line says why it cannot."""
    if path is None:
        return
    draft = path.with_suffix(".tmp")
    try:
        with draft.open("wb", buffering=0) as file:
            torch.save(state, file)
        os.replace(draft, path)
    except (OSError, RuntimeError) as error:  # torch's writer hides the reason: a full disk
        why = error.__context__ or error
        print(f"hpq: no checkpoint: {why}", file=sys.stderr, flush=True)
        with suppress(OSError):
            draft.unlink(missing_ok=True)
