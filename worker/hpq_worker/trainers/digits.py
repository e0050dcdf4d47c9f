"""The trainer `digits`: one hidden layer on the 8x8 digits inside scikit-learn; needs no download.

By hand: `python -m hpq.train digits --set hidden=32`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hpq.domain.trial import Params
from hpq_worker.trainers.data.batches import in_order, shuffled
from hpq_worker.trainers.data.datasets import load_data
from hpq_worker.trainers.networks import digits_net
from hpq_worker.trainers.training import device
from hpq_worker.trainers.training.loop import Recipe, Task, fit
from hpq_worker.trainers.training.trial_context import TrialContext, filled

MEAN, STD = 4.88, 6.02  # of all pixels, in 0..16


@dataclass(frozen=True, slots=True, kw_only=True)
class Digits(Recipe):
    """The parameters as hpq.hyperparams has them."""

    hidden: int


def normalise(images: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """uint8 to (B, 8, 8) of mean 0 and deviation 1, in float32 until the end."""
    return images.float().sub_(MEAN).div_(STD).to(dtype)


def train(params: Params, trial: TrialContext) -> None:
    """Train a small network on digits and report each epoch.

    Raises:
        BadParams: a parameter is unknown, out of its limits or does not fit the others.
        DataMissing: scikit-learn is not installed.
        Diverged: the loss of an epoch is not finite.
    """
    p = Digits(**filled("digits", params))  # type: ignore[arg-type]
    data = load_data("digits", trial)
    place = device.pick()
    plan = device.plan(place)

    def prepare(images: torch.Tensor) -> torch.Tensor:
        return normalise(images, plan.dtype)

    torch.manual_seed(p.seed)
    with place:
        model = digits_net(p.hidden)
    generator = torch.Generator().manual_seed(p.seed)
    task = Task(
        model=device.placed(model, place, plan),
        train=lambda: shuffled(data.train, p.batch_size, prepare, plan, generator),
        test=lambda: in_order(data.test, prepare),
        train_images=len(data.train),
        generator=generator,
        key=("digits", p.hidden),
    )
    fit(task, p, trial, plan)
