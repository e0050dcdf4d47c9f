"""The trainer `cifar10-fast`: another network and recipe for CIFAR10, after airbench94; few epochs.

It shares the loop, and with it the words learning rate, momentum and decay, but not what they mean
for a result: sets of `cifar10` are no sets of this. By hand:
`python -m hpq.train cifar10-fast --set width=16 --set epochs=3`.

The network of `cifar10-fast`: whitened patches, three pairs of convolutions, six looks.

After airbench94 of Keller Jordan (arXiv 2404.00498), written anew: its first layer is computed from
the training images and stays, its convolutions begin as the identity, its norms have no scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

from hpq.domain.trial import Params
from hpq_worker.trainers.data import augment
from hpq_worker.trainers.data.augment import PAD, Choices
from hpq_worker.trainers.data.batches import in_order, random_order, with_choices
from hpq_worker.trainers.data.datasets import Split, load_data
from hpq_worker.trainers.networks import CLASSES
from hpq_worker.trainers.training import device
from hpq_worker.trainers.training.device import Plan
from hpq_worker.trainers.training.loop import Recipe, Task, fit
from hpq_worker.trainers.training.step import Batch
from hpq_worker.trainers.training.trial_context import TrialContext, filled

PATCHES = 24  # filters of the first layer: the 12 directions of 2x2 patches of 3 colours, and back
_LEAST_VARIANCE = 5e-4  # keeps directions that hardly occur from being blown up
_SCALE = 1 / 9  # of the logits
_FASTER = 8.0  # squared: a bias of a norm learns 64 times as fast as a weight


class Norm(nn.BatchNorm2d):
    """Batch normalisation without a scale, whose bias learns 64 times as fast as other weights.

    The bias is held an eighth as large, so its gradient is 8 times as large, and so is what a step
    of it moves. The decay of both is the same.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels, momentum=0.4)
        self.weight.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As BatchNorm2d has it."""
        bias = self.bias * _FASTER
        means, squares = self.running_mean, self.running_var
        return F.batch_norm(x, means, squares, self.weight, bias, self.training, 0.4, self.eps)


def _conv(c_in: int, c_out: int) -> nn.Conv2d:
    conv = nn.Conv2d(c_in, c_out, 3, padding=1, bias=False)
    with torch.no_grad():
        nn.init.dirac_(conv.weight[:c_in])  # the first filters hand on what comes in
    return conv


def _pair(c_in: int, c_out: int) -> nn.Sequential:
    first = _conv(c_in, c_out), nn.MaxPool2d(2), Norm(c_out), nn.GELU()
    return nn.Sequential(*first, _conv(c_out, c_out), Norm(c_out), nn.GELU())


class FastNet(nn.Module):
    """Logits (B, 10) of images (B, 3, 32, 32); at a test the mean of six looks, if asked for."""

    def __init__(self, width: int, *, looks_again: bool) -> None:
        super().__init__()
        self.looks_again = looks_again
        self.whiten = nn.Conv2d(3, PATCHES, 2)
        self.whiten.weight.requires_grad_(False)
        nn.init.zeros_(self.whiten.bias)
        w = width
        self.features = nn.Sequential(
            nn.GELU(),
            _pair(PATCHES, w),
            _pair(w, 4 * w),
            _pair(4 * w, 4 * w),
            nn.MaxPool2d(3),
            nn.Flatten(),
        )
        self.linear = nn.Linear(4 * w, CLASSES, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One look in training; else at the image, two shifts by a pixel, and their mirrors."""
        if self.training or not self.looks_again:
            return self._look(x)
        around = F.pad(x, (1, 1, 1, 1), mode="reflect")
        looks = (x, 0.5), (around[..., :-2, :-2], 0.25), (around[..., 2:, 2:], 0.25)
        return torch.stack([self._both_ways(image) * share for image, share in looks]).sum(0)

    def _both_ways(self, x: torch.Tensor) -> torch.Tensor:
        return (self._look(x) + self._look(x.flip(3))) / 2

    def _look(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.features(self.whiten(x))) * _SCALE


def whitening(images: torch.Tensor) -> torch.Tensor:
    """The first layer's filters (24, 3, 2, 2) for normalised images (N, 3, H, W).

    Of the patches of these images the first twelve are uncorrelated and of variance 1; the other
    twelve are the same with the sign turned, so that nothing is lost to what follows.
    """
    patches = F.unfold(images, 2)  # (N, 12, positions)
    together = torch.matmul(patches, patches.transpose(1, 2)).sum(0)
    # 12 x 12: on the CPU in float64 it is the same on any device.
    covariance = together.double().cpu() / (len(patches) * patches.shape[2])
    variances, directions = torch.linalg.eigh(covariance)
    filters = (directions / (variances + _LEAST_VARIANCE).sqrt()).T.reshape(-1, 3, 2, 2)
    return torch.cat([filters, -filters])


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
    data = load_data("cifar10", trial, p.train_images, p.test_images)
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
