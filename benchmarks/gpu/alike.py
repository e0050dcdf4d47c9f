"""A few steps as a trial takes them, captured or launched singly, and how far apart they end."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from benchmarks.gpu.trials import Lab, network
from hpq_worker.trainers.data.batches import augmented
from hpq_worker.trainers.data.datasets import Split
from hpq_worker.trainers.training.device import Plan
from hpq_worker.trainers.training.step import Batch, Bench, bench

STEPS = 4
SIZE = 256  # images of a batch: no other section has it, so G1 and G2 still pay for their shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """What a trial sets without another capture."""

    rate: float = 0.02
    momentum: float = 0.9
    decay: float = 5e-4
    cutout: int = 5


USUAL = Numbers()
SETS = {
    "the usual ones": USUAL,
    "another rate": replace(USUAL, rate=0.04),
    "another momentum": replace(USUAL, momentum=0.5),
    "another decay": replace(USUAL, decay=0.05),
    "another cutout": replace(USUAL, cutout=12),
    "the usual ones again": USUAL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a few steps came to: weights and statistics, before and after, and the sums."""

    own: Bench
    start: list[torch.Tensor]
    state: list[torch.Tensor]
    sums: torch.Tensor


class Peeks(nn.Module):
    """A network that reads a value back from the device at its end, which no capture allows."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What the network gives."""
        logits = self.inner(x)
        return logits * (1.0 if logits.sum().item() < math.inf else 2.0)


def few(
    lab: Lab,
    plan: Plan,
    numbers: Numbers,
    key: Hashable,
    wrapped: Callable[[nn.Module], nn.Module] = lambda inner: inner,
    mixed: bool = False,
) -> Ran:
    """A few steps as a trial takes them, from the same weights and with the same draws.

    With `mixed` each batch has its images in another order, which is the same function.
    """
    batches = _batches(lab, plan, numbers.cutout)
    if mixed:
        batches = [(images.flip(0), labels.flip(0)) for images, labels in batches]
    size = len(batches[0][1])
    own = bench(wrapped(network(lab, plan)), batches[0], key, plan)
    start = _state(own.model)
    own.update.reset(momentum=numbers.momentum, decay=numbers.decay * size)
    own.model.train()
    sums = torch.zeros(3, dtype=torch.float64, device=lab.place)
    for i, batch in enumerate(batches):
        rate = torch.tensor(numbers.rate * (i + 1) / STEPS / size, dtype=torch.float64)
        own.take(batch, rate.to(lab.place), sums)
    return Ran(own=own, start=start, state=_state(own.model), sums=sums)


def _state(model: nn.Module) -> list[torch.Tensor]:
    return [value.to(torch.float64, copy=True) for value in model.state_dict().values()]


def _batches(lab: Lab, plan: Plan, cutout: int) -> list[Batch]:
    size, train = SIZE // lab.shrink, lab.images().train
    draws = torch.Generator().manual_seed(0)
    # Folders of images lie class by class: the first would all have one label, stale or not.
    drawn = torch.randperm(len(train), generator=draws)[: STEPS * size].to(train.labels.device)
    some = Split(images=train.images[drawn], labels=train.labels[drawn])
    return list(augmented(some, size, cutout, plan, draws))


def apart(ran: Ran, other: Ran) -> float:
    """Of each weight and statistic the difference, in % of what the steps changed; the largest."""
    shares = (
        torch.dist(a, b) / torch.dist(b, was) if not torch.equal(a, b) else torch.zeros(())
        for a, b, was in zip(ran.state, other.state, other.start, strict=True)
    )
    return 100 * max((float(share) for share in shares), key=lambda v: (math.isnan(v), v))


def sums_apart(ran: Ran, other: Ran) -> float:
    """Of the loss the difference in %, of the hits in % of the images; the larger."""
    (loss, hits, images), (loss2, hits2, images2) = ran.sums.tolist(), other.sums.tolist()
    if images != images2:
        return math.inf
    return 100 * max(abs(loss - loss2) / abs(loss2), abs(hits - hits2) / images)


def told_apart(plain: Mapping[str, Ran]) -> tuple[float, str]:
    """The set that differs least from the usual one, and by how much."""
    usual = plain["the usual ones"]
    others = [name for name, numbers in SETS.items() if numbers != USUAL]
    return min((apart(plain[name], usual), name) for name in others)
