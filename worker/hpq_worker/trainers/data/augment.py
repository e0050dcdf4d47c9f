"""The CIFAR10 article's augmentation: reflect-pad 4, crop 32, flip, cutout; whole batches at once.

All choices of an epoch are drawn at its start on the CPU, so that they are the same on any device.
The padding is never stored: reflection is arithmetic on the crop's coordinates. Cutout lies fully
inside the image and is filled with 0 after normalisation, as in the article.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache

import torch

from hpq_worker.trainers.training.trial_context import BadParams

PAD = 4  # pixels

# Of all training images, per channel, in 0..1; the article's numbers.
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2471, 0.2435, 0.2616)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What was drawn for each image; all of shape (N,), int64 but for `flip`, which is bool."""

    crop_y: torch.Tensor  # 0 .. 2 PAD
    crop_x: torch.Tensor
    flip: torch.Tensor
    cut_y: torch.Tensor  # 0 .. side - cutout
    cut_x: torch.Tensor

    def __getitem__(self, part: slice) -> Choices:
        return Choices(**{f.name: getattr(self, f.name)[part] for f in fields(self)})

    def to(self, device: torch.device) -> Choices:
        """The same choices on another device."""
        return Choices(**{f.name: getattr(self, f.name).to(device) for f in fields(self)})


def draw(n: int, side: int, cutout: int, generator: torch.Generator) -> Choices:
    """Fresh choices for n square images of `side` pixels and holes of cutout x cutout pixels.

    Raises:
        BadParams: the hole is larger than the image.
    """
    if not 0 <= cutout <= side:
        raise BadParams(f"cutout: {cutout} is not from 0 to {side}, the side of an image")

    def below(end: int) -> torch.Tensor:
        return torch.randint(end, (n,), generator=generator)

    return Choices(
        crop_y=below(2 * PAD + 1),
        crop_x=below(2 * PAD + 1),
        flip=below(2).bool(),
        cut_y=below(side - cutout + 1),
        cut_x=below(side - cutout + 1),
    )


def normalise(images: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """(B, H, W, 3) uint8 to (B, 3, H, W) of mean 0 and deviation 1, channels last in memory.

    As in the article the numbers are float32 or wider until the end: half precision rounds once.
    """
    wide = torch.promote_types(dtype, torch.float32)
    mean, scale = _mean_and_scale(wide, images.device)
    return images.to(wide).sub_(mean).mul_(scale).to(dtype).permute(0, 3, 1, 2)


@cache
def _mean_and_scale(dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    # Kept, since a copy to a GPU waits for all that the GPU has been told to do.
    mean, std = (torch.tensor(numbers, dtype=dtype, device=device) for numbers in (MEAN, STD))
    return mean * 255, 1 / (std * 255)


def augment(
    images: torch.Tensor, index: torch.Tensor, choices: Choices, cutout: int, dtype: torch.dtype
) -> torch.Tensor:
    """images[index], augmented: (N, H, H, 3) uint8 to (B, 3, H, H), channels last in memory."""
    span = torch.arange(images.shape[1], device=images.device)
    rows = _reflect(choices.crop_y[:, None] + span - PAD)  # (B, H)
    cols = _reflect(choices.crop_x[:, None] + span - PAD)
    cols = torch.where(choices.flip[:, None], cols.flip(1), cols)
    picked = images[index[:, None, None], rows[:, :, None], cols[:, None, :]]  # (B, H, H, 3)
    hole = _within(span, choices.cut_y, cutout)[:, :, None]
    hole = hole & _within(span, choices.cut_x, cutout)[:, None, :]
    return normalise(picked, dtype).masked_fill_(hole[:, None], 0)


def _reflect(position: torch.Tensor) -> torch.Tensor:
    # -1 -> 1 and side -> side - 2: the edge itself is not repeated.
    last = position.shape[1] - 1
    return last - (last - position.abs()).abs()


def _within(span: torch.Tensor, start: torch.Tensor, length: int) -> torch.Tensor:
    offset = span - start[:, None]  # (B, H)
    return (offset >= 0) & (offset < length)
