"""The trainer `cifar10`: the network, recipe and search space of the article on Kubernetes sweeps.

By hand: `python -m worker.trainers.cifar10 --set width=8 --set epochs=3`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from hpq.trial import Params
from worker.trainers import augment, device
from worker.trainers.batches import augmented, in_order
from worker.trainers.context import TrialContext, filled
from worker.trainers.data import load
from worker.trainers.device import Plan
from worker.trainers.loop import Recipe, Task, fit
from worker.trainers.model import ResNet9, fill_stem


@dataclass(frozen=True, slots=True, kw_only=True)
class Cifar10(Recipe):
    """The parameters as hpq.hyperparams has them."""

    data_aug_cutout_size: int
    batch_norm: str
    width: int
    train_images: int
    test_images: int


def train(params: Params, trial: TrialContext, plan: Plan | None = None) -> None:
    """Train ResNet9 on CIFAR10 and report each epoch.

    Raises:
        BadParams: a parameter is unknown, out of its limits or does not fit the others.
        DataMissing: CIFAR10 is not in HPQ_DATA, or damaged.
        Diverged: the loss of an epoch is not finite.
    """
    p = Cifar10(**filled("cifar10", params))  # type: ignore[arg-type]
    data = load("cifar10", trial, p.train_images, p.test_images)
    place = device.pick()
    plan = plan or device.plan(place)
    generator = torch.Generator().manual_seed(p.seed)
    task = Task(
        model=network(p.width, p.batch_norm == "on", p.seed, place, plan),
        train=lambda: augmented(data.train, p.batch_size, p.data_aug_cutout_size, plan, generator),
        test=lambda: in_order(data.test, lambda images: augment.normalise(images, plan.dtype)),
        train_images=p.train_images,
        generator=generator,
        key=("cifar10", p.batch_norm, p.width),
    )
    fit(task, p, trial, plan)


def network(width: int, batch_norm: bool, seed: int, place: torch.device, plan: Plan) -> nn.Module:
    """The network of a trial, with the weights that its seed draws."""
    torch.manual_seed(seed)
    with place:  # 6.6 million weights are drawn where they are used
        model = ResNet9(width, batch_norm=batch_norm)
    fill_stem(model, plan.fill)
    return device.placed(model, place, plan)


if __name__ == "__main__":
    from worker.trainers.by_hand import main

    main("cifar10", train)
