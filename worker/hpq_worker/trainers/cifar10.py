"""The trainer `cifar10`: network, augmentation and recipe of the article on Kubernetes sweeps.

In a terminal: `hpq try cifar10 --set width=8 --set epochs=3`. The step is in step.py, the
network's data in download.py, dataset_formats.py (decoding) and data.py.
"""

from __future__ import annotations

from functools import cache, partial

import torch
from torch import nn

from hpq.domain.trainer_specs import BUILT_IN
from hpq.domain.trial import Params
from hpq_worker.runner.trial_api import Trial
from hpq_worker.trainers import device
from hpq_worker.trainers.data import Batches, Split, load_data
from hpq_worker.trainers.loop import fit
from hpq_worker.trainers.step import Plan

PAD = 4  # pixels
# Of all training images, per channel, in 0..1; the article's numbers.
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)


def train(params: Params, trial: Trial, plan: Plan | None = None) -> None:
    """Train ResNet9 on CIFAR10 and report each epoch.

    Raises:
        BadParams: a parameter is unknown, out of its limits or does not fit the others.
        DataMissing: CIFAR10 is not in HPQ_DATA, or damaged.
        Diverged: the loss of an epoch is not finite.
    """
    p = BUILT_IN["cifar10"].fill(params)
    data = load_data("cifar10", trial, p["train_images"], p["test_images"])
    plan = plan or usual_plan()
    torch.manual_seed(p["seed"])
    with device.pick():  # 6.6 million weights are drawn where they are used
        model = ResNet9(p["width"], batch_norm=p["batch_norm"] == "on")
    train = Augmented(data.train, p["batch_size"], p["data_aug_cutout_size"], p["seed"], plan)
    test = Batches(data.test, partial(normalize, plan=plan))
    fit(model, train, test, trial, p, plan)


def usual_plan() -> Plan:
    """Return the article's precision on a GPU: half, without a float32 copy of the weights."""
    return device.plan(dtype=torch.half, autocast=None)


def conv_block(c_in: int, c_out: int, *, batch_norm: bool, pool: bool = False) -> nn.Sequential:
    """Return a 3x3 convolution without bias, BN if asked, max pooling by 2 if asked, and ReLU.

    The article computes ReLU before the pooling. Both orders give the same output and gradient, and
    after the pooling ReLU has a quarter of the numbers. BN comes before, since its statistics are
    of all pixels.
    """
    layers: list[nn.Module] = [nn.Conv2d(c_in, c_out, 3, padding=1, bias=False)]
    if batch_norm:
        layers.append(nn.BatchNorm2d(c_out))
        layers[-1].num_batches_tracked = None  # saves a kernel per step; the counter is unused
    return nn.Sequential(*layers, *[nn.MaxPool2d(2)] * pool, nn.ReLU(inplace=True))


class Residual(nn.Sequential):
    """Layers whose output is added to their input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + super().forward(x)


class ResNet9(nn.Module):
    """The article's network: images (B, 3, 32, 32) to logits (B, 10).

    With PyTorch's default weights; width 64 has 6.57 M of them.
    """

    def __init__(self, width: int = 64, *, batch_norm: bool = True) -> None:
        super().__init__()
        block, w = partial(conv_block, batch_norm=batch_norm), width
        self.features = nn.Sequential(
            block(3, w),
            block(w, 2 * w, pool=True),
            Residual(block(2 * w, 2 * w), block(2 * w, 2 * w)),
            block(2 * w, 4 * w, pool=True),
            block(4 * w, 8 * w, pool=True),
            Residual(block(8 * w, 8 * w), block(8 * w, 8 * w)),
            nn.MaxPool2d(4),
            nn.Flatten(),
        )
        self.linear = nn.Linear(8 * w, 10, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.features(x)) * 0.125


class Augmented(Batches):
    """Shuffled epochs in the article's augmentation: reflect-pad 4, crop, flip, cutout; normalized.

    The padding is never stored: reflection is arithmetic on the crop's coordinates. The hole lies
    fully inside the image and is filled with 0 after normalization.
    """

    def __init__(self, split: Split, batch_size: int, cutout: int, seed: int, plan: Plan) -> None:
        super().__init__(split, partial(normalize, plan=plan), batch_size, seed)
        self.cutout = cutout

    def draw(self, order: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return choices for these images, (N, 1) int64: first row and column of crop and hole."""
        crop, hole = 2 * PAD + 1, self.split.images.shape[1] - self.cutout + 1
        ends = {"crop_y": crop, "crop_x": crop, "flip": 2, "cut_y": hole, "cut_x": hole}
        shape = len(order), 1
        return {x: torch.randint(end, shape, generator=self.generator) for x, end in ends.items()}

    def take(self, index: torch.Tensor, **choices: torch.Tensor) -> torch.Tensor:
        """Return the images of this index (B, 3, H, H), augmented and prepared."""
        images, last = self.split.images, self.split.images.shape[1] - 1
        span = torch.arange(last + 1, device=images.device)
        # Reflected: -1 -> 1 and last + 1 -> last - 1. The edge itself is not repeated.
        inside = [
            last - (last - (choices[x] + span - PAD).abs()).abs() for x in ("crop_y", "crop_x")
        ]
        rows, cols = inside  # each (B, H)
        cols = torch.where(choices["flip"].bool(), cols.flip(1), cols)
        found = self.prepare(images[index[:, None, None], rows[:, :, None], cols[:, None, :]])
        holes = (choices["cut_y"], choices["cut_x"])
        down, right = ((span >= cut) & (span < cut + self.cutout) for cut in holes)
        return found.masked_fill_((down[:, :, None] & right[:, None, :])[:, None], 0)


def normalize(images: torch.Tensor, plan: Plan) -> torch.Tensor:
    """(B, H, W, 3) uint8 to (B, 3, H, W) of mean 0 and deviation 1, channels last.

    As in the article the numbers are float32 or wider until the end: half precision rounds once.
    """
    mean, scale = _mean_and_scale(torch.promote_types(plan.dtype, torch.float32), images.device)
    found = images.to(mean.dtype).sub_(mean).mul_(scale).to(plan.dtype)
    return found.permute(0, 3, 1, 2)


@cache
def _mean_and_scale(dtype: torch.dtype, place: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    # Kept, since a copy to a GPU waits for all that the GPU has been told to do.
    mean, std = (torch.tensor(numbers, dtype=dtype, device=place) for numbers in (MEAN, STD))
    return mean * 255, 1 / (std * 255)
