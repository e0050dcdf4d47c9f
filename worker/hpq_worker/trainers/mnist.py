"""The trainer `mnist`: a small convolutional network on MNIST, with the recipe of `cifar10`.

By hand: `python -m hpq.train mnist --set epochs=2`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hpq.domain.trial import Params
from hpq_worker.trainers.data.batches import in_order, shuffled
from hpq_worker.trainers.data.datasets import load_data
from hpq_worker.trainers.networks import mnist_net
from hpq_worker.trainers.training import device
from hpq_worker.trainers.training.loop import Recipe, Task, fit
from hpq_worker.trainers.training.trial_context import TrialContext, filled

MEAN, STD = 0.1307, 0.3081  # of all training pixels, in 0..1


@dataclass(frozen=True, slots=True, kw_only=True)
class Mnist(Recipe):
    """The parameters as hpq.hyperparams has them."""

    dropout: float
    width: int
    train_images: int
    test_images: int


def normalise(images: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """uint8 to (B, 1, 28, 28) of mean 0 and deviation 1, in float32 until the end."""
    return images[:, None].float().sub_(255 * MEAN).div_(255 * STD).to(dtype)


def train(params: Params, trial: TrialContext) -> None:
    """Train two convolutions on MNIST and report each epoch.

    Raises:
        BadParams: a parameter is unknown, out of its limits or does not fit the others.
        DataMissing: MNIST is not in HPQ_DATA, or damaged.
        Diverged: the loss of an epoch is not finite.
    """
    p = Mnist(**filled("mnist", params))  # type: ignore[arg-type]
    data = load_data("mnist", trial, p.train_images, p.test_images)
    place = device.pick()
    plan = device.plan(place)

    def prepare(images: torch.Tensor) -> torch.Tensor:
        return normalise(images, plan.dtype)

    torch.manual_seed(p.seed)
    with place:
        model = mnist_net(p.width, p.dropout)
    generator = torch.Generator().manual_seed(p.seed)
    task = Task(
        model=device.placed(model, place, plan),
        train=lambda: shuffled(data.train, p.batch_size, prepare, plan, generator),
        test=lambda: in_order(data.test, prepare),
        train_images=p.train_images,
        generator=generator,
        key=("mnist", p.width, p.dropout),
    )
    fit(task, p, trial, plan)
