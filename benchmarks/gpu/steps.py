"""G8d: the step taken apart. What no Plan leaves out, each beside what it replaces.

Microseconds a step, of an epoch's steps between two waits for the device. Images that come from
the host are taken as they lie there: what augments them there is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from benchmarks.figures import Figure, in_turn
from benchmarks.gpu.trials import Clock, Lab, OutOfTime, Rows, network
from hpq_worker.trainers.data.batches import augmented
from hpq_worker.trainers.training import device
from hpq_worker.trainers.training.optimizer import Nesterov
from hpq_worker.trainers.training.step import Batch, Bench, Static, bench

_ROUNDS = 3
_UPDATES = 500  # in a round
_RATE, _MOMENTUM, _DECAY, _CUTOUT = 0.01, 0.9, 5e-4, 5
_KINDS = ("fused", "foreach")  # of torch's SGD


class _Torchs:
    """torch's SGD where a step takes hpq's. Its rate and momentum are those of its capture."""

    def __init__(self, model: nn.Module, size: int, kind: str) -> None:
        place = next(model.parameters()).device
        self.rate = torch.zeros((), dtype=torch.float64, device=place)  # set at each step, not read
        self._sgd = _sgd(model, size, kind)

    def step(self) -> None:
        """Update the weights; the next gradients take the place of these."""
        self._sgd.step()
        self._sgd.zero_grad(set_to_none=True)


def _sgd(model: nn.Module, size: int, kind: str) -> torch.optim.SGD:
    how: dict[str, Any] = {kind: True}
    return torch.optim.SGD(
        model.parameters(),
        lr=_RATE / size,
        momentum=_MOMENTUM,
        weight_decay=_DECAY * size,
        nesterov=True,
        **how,
    )


class _Alone(Static):
    """An update without its step, captured as a step is; its gradients are always the same."""

    def __init__(self, model: nn.Module, update: Nesterov | torch.optim.SGD) -> None:
        place = next(model.parameters()).device
        super().__init__(model, cast(Nesterov, update), (torch.zeros(1, device=place),) * 2)
        self._given = [(weight, torch.zeros_like(weight)) for weight in model.parameters()]

    def _run(self) -> None:
        for weight, gradient in self._given:
            weight.grad = gradient
        self._update.step()

    @property
    def once(self) -> Callable[[], None]:
        """One update."""
        return self._replay or self._run


def taken_apart(lab: Lab, clock: Clock) -> Rows:
    """The update alone, then whole steps at batch 512 and 128."""
    yield from _updates(lab, clock)
    for batch_size in (512, 128):
        yield from _steps(lab, clock, batch_size)


def _updates(lab: Lab, clock: Clock) -> Rows:
    count = _UPDATES // lab.shrink
    for captured in (False, True)[: 1 + (lab.place.type == "cuda")]:
        calls = {}
        for what, update in _each(lab):
            if captured:
                update.capture()
            work = partial(_repeat, update.once, count)
            calls[f"{_how(update)}: {what}"] = partial(_us, lab, clock, count, work)
        yield from _beside("G8d the update alone, ", calls)


def _each(lab: Lab) -> Iterator[tuple[str, _Alone]]:
    plan = device.plan(lab.place)
    model = network(lab, plan)
    own = Nesterov(model)
    own.reset(momentum=_MOMENTUM, decay=_DECAY)
    yield "hpq's, on flat buffers", _Alone(model, own)
    for kind in _KINDS:
        model = network(lab, plan)
        yield f"torch's SGD({kind}=True)", _Alone(model, _sgd(model, 1, kind))


def _repeat(work: Callable[[], None], count: int) -> None:
    for _ in range(count):
        work()


@dataclass(frozen=True, kw_only=True)
class _Table:
    """An epoch as trials take it: what its steps are called with."""

    lab: Lab
    size: int
    own: Bench
    rate: torch.Tensor
    sums: torch.Tensor

    def drawn(self) -> Iterator[Batch]:
        """Its batches, drawn and augmented on the device."""
        order, plan = torch.Generator().manual_seed(0), device.plan(self.lab.place)
        return augmented(self.lab.images().train, self.size, _CUTOUT, plan, order)

    def shipped(self, take: Callable[..., None]) -> None:
        """Its steps."""
        for batch in self.drawn():
            take(batch, self.rate, self.sums)

    def read_back(self) -> None:
        """The same; the loss and the hits come back after each step."""
        for batch in self.drawn():
            self.own.take(batch, self.rate, self.sums)
            self.sums[0].item(), self.sums[1].item()

    def copied(self, host: Batch, waits: bool, steps: int) -> None:
        """As many steps on images that come from the host's memory."""
        place, dtype = self.lab.place, device.plan(self.lab.place).dtype
        for _ in range(steps):
            images, labels = (part.to(place, non_blocking=not waits) for part in host)
            self.own.take((images.to(dtype), labels), self.rate, self.sums)


def _steps(lab: Lab, clock: Clock, batch_size: int) -> Rows:
    plan, size = device.plan(lab.place), batch_size // lab.shrink
    images, labels = like = _first(lab, size)
    own = bench(network(lab, plan), like, ("taken apart", lab.size["width"]), plan)
    own.update.reset(momentum=_MOMENTUM, decay=_DECAY * size)
    own.model.train()
    table = _Table(
        lab=lab,
        size=size,
        own=own,
        rate=torch.tensor(_RATE / size, dtype=torch.float64, device=lab.place),
        sums=torch.zeros(3, dtype=torch.float64, device=lab.place),
    )
    steps = len(lab.images().train) // size
    wide, exact = (_on_host(part, labels) for part in (images.float(), images))
    works: dict[str, Callable[[], object]] = {
        f"{_how(own.take)}: as shipped": partial(table.shipped, own.take),
        "loss and hits read back each time": table.read_back,
        "images copied from the host as float32, waited for": partial(
            table.copied, wide, True, steps
        ),
        f"images copied from the host as {_name(images)}, not waited for": partial(
            table.copied, exact, False, steps
        ),
    }
    for kind in _KINDS:
        model = network(lab, plan).train()
        step = Static(model, cast(Nesterov, _Torchs(model, size, kind)), like)
        if images.is_cuda:
            step.capture()
        works[f"{_how(step)}, with torch's SGD({kind}=True)"] = partial(table.shipped, step)
    calls = {what: partial(_us, lab, clock, steps, work) for what, work in works.items()}
    yield from _beside(f"G8d batch {batch_size}, a step, ", calls)
    draws = partial(_us, lab, clock, steps, lambda: list(table.drawn()))
    (found,) = in_turn(_ROUNDS, {"": draws}).values()
    what = f"G8d batch {batch_size}, of that its share of an epoch's draws and augmentation"
    yield Figure(what=what, unit="µs", values=found)


def _how(take: object) -> str:
    return "captured" if isinstance(take, Static) and take.is_captured else "launched singly"


def _first(lab: Lab, size: int) -> Batch:
    some = augmented(
        lab.images().train, size, _CUTOUT, device.plan(lab.place), torch.Generator().manual_seed(0)
    )
    images, labels = next(some)
    return images.clone(), labels.clone()  # and not the epoch that they are cut from


def _on_host(images: torch.Tensor, labels: torch.Tensor) -> Batch:
    parts = images.cpu(), labels.cpu()
    return (parts[0].pin_memory(), parts[1].pin_memory()) if images.is_cuda else parts


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _beside(what: str, calls: Mapping[str, Callable[[], float]]) -> Rows:
    """The first one's figure, and the others' beside it; each is warm before it counts.

    Raises:
        OutOfTime: what was measured until then is yielded first.
    """
    in_turn(1, calls)
    found: dict[str, list[float]] = {name: [] for name in calls}
    cut: OutOfTime | None = None
    try:
        for _ in range(_ROUNDS):
            for name, call in calls.items():
                found[name].append(call())
    except OutOfTime as error:
        if not any(found.values()):
            raise
        cut = error
    (name, values), *others = ((name, values) for name, values in found.items() if values)
    ours = Figure(what=f"{what}{name}", unit="µs", values=values)
    yield ours
    for name, values in others:
        yield ours.peer(f"{what}{name}", values)
    if cut is not None:
        raise cut


def _us(lab: Lab, clock: Clock, steps: int, work: Callable[[], object]) -> float:
    """Microseconds a step of work that takes so many."""
    if clock.left_s < 0:
        raise OutOfTime
    _wait(lab)
    began = time.perf_counter()
    work()
    _wait(lab)
    return 1e6 * (time.perf_counter() - began) / steps


def _wait(lab: Lab) -> None:
    if lab.place.type == "cuda":
        torch.cuda.synchronize()
