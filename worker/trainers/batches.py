"""An epoch of batches out of a split that lies whole on the device as uint8.

Order and augmentation come from the generator that the trainer seeds; test batches are in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from worker.trainers.augment import augment, draw
from worker.trainers.data import Split
from worker.trainers.loop import Batch

TEST_BATCH = 512  # images; the figures hardly depend on it

Prepare = Callable[[torch.Tensor], torch.Tensor]  # uint8 images to what the network takes


def shuffled(
    split: Split, batch_size: int, prepare: Prepare, generator: torch.Generator
) -> Iterator[Batch]:
    """An epoch in random order; a last batch that is not whole is left out."""
    order = torch.randperm(len(split), generator=generator).to(split.labels.device)
    for index in order.split(batch_size)[: len(split) // batch_size]:
        yield prepare(split.images[index]), split.labels[index]


def augmented(
    split: Split, batch_size: int, cutout: int, dtype: torch.dtype, generator: torch.Generator
) -> Iterator[Batch]:
    """An epoch in random order, with fresh crops, flips and holes; only whole batches.

    The GPU augments the epoch at once; the CPU each batch, while it is in its caches.
    """
    place = split.labels.device
    whole = len(split) - len(split) % batch_size
    order = torch.randperm(len(split), generator=generator)[:whole].to(place)
    choices = draw(whole, split.images.shape[1], cutout, generator).to(place)
    chunk = whole if place.type == "cuda" else batch_size
    for start in range(0, whole, chunk):
        part = slice(start, start + chunk)
        images = augment(split.images, order[part], choices[part], cutout, dtype)
        labels = split.labels[order[part]]
        yield from zip(images.split(batch_size), labels.split(batch_size), strict=True)


def in_order(split: Split, prepare: Prepare) -> Iterator[Batch]:
    """Every image once."""
    for images, labels in zip(
        split.images.split(TEST_BATCH), split.labels.split(TEST_BATCH), strict=True
    ):
        yield prepare(images), labels
