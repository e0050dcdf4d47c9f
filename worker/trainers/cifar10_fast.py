"""The trainer `cifar10-fast`: another network and recipe for CIFAR10, after airbench94; few epochs.

It shares the loop, and with it the words learning rate, momentum and decay, but not what they mean
for a result: sets of `cifar10` are no sets of this. By hand:
`python -m worker.trainers.cifar10_fast --set width=16 --set epochs=3`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from hpq.trial import Params
from worker.trainers import augment, device
from worker.trainers.augment import PAD, Choices
from worker.trainers.batches import in_order, random_order, with_choices
from worker.trainers.context import TrialContext, filled
from worker.trainers.data import Split, load
from worker.trainers.device import Plan
from worker.trainers.fast_model import FastNet, whitening
from worker.trainers.loop import Recipe, Task, fit
from worker.trainers.step import Batch

_SEEN = 5_000  # images, or up to twice as many, whose patches the first layer is computed from


@dataclass(frozen=True, slots=True, kw_only=True)
class Cifar10Fast(Recipe):
    """The parameters as hpq.hyperparams has them."""

    label_smoothing: float
    translate: int
    tta: str
    width: int
    train_images: int
    test_images: int


@dataclass(slots=True, kw_only=True)
class Alternating:
    """Epochs of shifted images. Each is mirrored in every other epoch, half of them in the first.

    So two epochs show each image both ways, which drawing anew each time does not.
    """

    split: Split
    params: Cifar10Fast
    plan: Plan
    generator: torch.Generator
    epoch: int = 1
    _mirrored: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        first = torch.Generator().manual_seed(self.params.seed)
        drawn = torch.randint(2, (len(self.split),), generator=first).bool()
        self._mirrored = drawn.to(self.split.labels.device)

    def begin(self, epoch: int) -> None:
        """The next batches are of this epoch, counted from 1."""
        self.epoch = epoch

    def batches(self) -> Iterator[Batch]:
        """An epoch in random order; only whole batches."""
        size, most = self.params.batch_size, self.params.translate
        order = random_order(self.split, size, self.generator)

        def shift() -> torch.Tensor:
            n = (len(order),)
            return PAD + torch.randint(-most, most + 1, n, generator=self.generator)

        whole = torch.zeros(len(order), dtype=torch.int64)  # no hole in it
        flip = self._mirrored[order] ^ (self.epoch % 2 == 0)
        choices = Choices(crop_y=shift(), crop_x=shift(), flip=flip, cut_y=whole, cut_x=whole)
        return with_choices(self.split, order, choices.to(order.device), size, 0, self.plan)


def train(params: Params, trial: TrialContext, plan: Plan | None = None) -> None:
    """Train FastNet on CIFAR10 and report each epoch.

    Raises:
        BadParams: a parameter is unknown, out of its limits or does not fit the others.
        DataMissing: CIFAR10 is not in HPQ_DATA, or damaged.
        Diverged: the loss of an epoch is not finite.
    """
    p = Cifar10Fast(**filled("cifar10-fast", params))  # type: ignore[arg-type]
    data = load("cifar10", trial, p.train_images, p.test_images)
    place = device.pick()
    plan = plan or device.plan(place)
    torch.manual_seed(p.seed)
    with place:
        model = FastNet(p.width, looks_again=p.tta == "on")
    every = max(1, len(data.train) // _SEEN)  # images may lie class by class
    some = augment.normalise(data.train.images[::every], torch.float32)
    model.whiten.weight.copy_(whitening(some))  # not trained, so autograd does not mind
    generator = torch.Generator().manual_seed(p.seed)
    images = Alternating(split=data.train, params=p, plan=plan, generator=generator)
    task = Task(
        model=device.placed(model, place, plan),
        train=images.batches,
        test=lambda: in_order(data.test, lambda images: augment.normalise(images, plan.dtype)),
        train_images=p.train_images,
        generator=generator,
        key=("cifar10-fast", p.tta, p.width),
        begin=images.begin,
        label_smoothing=p.label_smoothing,
    )
    fit(task, p, trial, plan)


if __name__ == "__main__":
    from worker.trainers.by_hand import main

    main("cifar10_fast", train)
