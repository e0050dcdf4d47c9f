"""An epoch of batches out of a split that lies whole on the device as uint8.

Order and augmentation come from the generator that the trainer seeds; test batches are in order.
The GPU makes an epoch at once, in a few kernels; the CPU each batch, while it is in its caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from hpq_worker.trainers.data.augment import Choices, augment, draw
from hpq_worker.trainers.data.datasets import Split
from hpq_worker.trainers.training.device import Plan
from hpq_worker.trainers.training.step import Batch
from hpq_worker.trainers.training.trial_context import BadParams

TEST_BATCH = 500  # images, so that 10,000 are whole batches; the figures hardly depend on it
TEST_BATCH_GPU = 2_000

Prepare = Callable[[torch.Tensor], torch.Tensor]  # uint8 images to what the network takes


def shuffled(
    split: Split, batch_size: int, prepare: Prepare, plan: Plan, generator: torch.Generator
) -> Iterator[Batch]:
    """An epoch in random order; a last batch that is not whole is left out."""
    for index in random_order(split, batch_size, generator).split(_chunk(split, batch_size, plan)):
        yield from _batches(prepare(split.images[index]), split.labels[index], batch_size)


def augmented(
    split: Split, batch_size: int, cutout: int, plan: Plan, generator: torch.Generator
) -> Iterator[Batch]:
    """An epoch in random order, with fresh crops, flips and holes; only whole batches.

    Raises:
        BadParams: the images are no squares of three channels in uint8, or the hole is larger.
    """
    shape, kind = tuple(split.images.shape), split.images.dtype
    if kind != torch.uint8 or len(shape) != 4 or shape[1:] != (shape[1], shape[1], 3):
        kind_name = str(kind).removeprefix("torch.")
        raise BadParams(f"augmented takes images (N, H, H, 3) of uint8, not {shape} of {kind_name}")
    order = random_order(split, batch_size, generator)
    choices = draw(len(order), split.images.shape[1], cutout, generator).to(order.device)
    return with_choices(split, order, choices, batch_size, cutout, plan)


def with_choices(
    split: Split, order: torch.Tensor, choices: Choices, batch_size: int, cutout: int, plan: Plan
) -> Iterator[Batch]:
    """An epoch in this order, with what was chosen for each of its places; all on the device."""
    chunk = _chunk(split, batch_size, plan)
    for start in range(0, len(order), chunk):
        part = slice(start, start + chunk)
        images = augment(split.images, order[part], choices[part], cutout, plan.dtype)
        if not plan.channels_last:
            images = images.contiguous()
        yield from _batches(images, split.labels[order[part]], batch_size)


def in_order(split: Split, prepare: Prepare) -> Iterator[Batch]:
    """Every image once."""
    size = TEST_BATCH_GPU if split.labels.is_cuda else TEST_BATCH
    for images, labels in zip(split.images.split(size), split.labels.split(size), strict=True):
        yield prepare(images), labels


def random_order(split: Split, batch_size: int, generator: torch.Generator) -> torch.Tensor:
    """Numbers of images on the device, as many as whole batches take."""
    order = torch.randperm(len(split), generator=generator)
    return order[: len(split) - len(split) % batch_size].to(split.labels.device)


def _chunk(split: Split, batch_size: int, plan: Plan) -> int:
    return len(split) if plan.whole_epoch else batch_size


def _batches(images: torch.Tensor, labels: torch.Tensor, size: int) -> Iterator[Batch]:
    yield from zip(images.split(size), labels.split(size), strict=True)
