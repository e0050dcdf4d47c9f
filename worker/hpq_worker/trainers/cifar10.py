"""The trainer `cifar10`: the network, recipe and search space of the article on Kubernetes sweeps.

By hand: `python -m hpq.train cifar10 --set width=8 --set epochs=3`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from hpq.domain.trial import Params
from hpq_worker.trainers.data import augment
from hpq_worker.trainers.data.batches import augmented, in_order
from hpq_worker.trainers.data.datasets import load_data
from hpq_worker.trainers.networks import ResNet9, fill_stem
from hpq_worker.trainers.training import device
from hpq_worker.trainers.training.device import Plan
from hpq_worker.trainers.training.loop import Recipe, Task, fit
from hpq_worker.trainers.training.trial_context import TrialContext, filled


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
    data = load_data("cifar10", trial, p.train_images, p.test_images)
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
