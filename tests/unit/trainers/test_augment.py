"""The augmentation of whole batches against the article's, which works on one image at a time."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from hpq_worker.trainers import digits, mnist
from hpq_worker.trainers.cifar10 import MEAN, PAD, STD, Augmented, normalize
from hpq_worker.trainers.data import Batches, Split
from hpq_worker.trainers.step import Plan

pytestmark = pytest.mark.torch


def augmented(images: torch.Tensor, cutout: int, plan: Plan | None = None) -> Augmented:
    labels = torch.zeros(len(images), dtype=torch.int64)
    return Augmented(Split(images=images, labels=labels), 2, cutout, 3, plan or Plan())


def reference(image: np.ndarray, c: dict[str, torch.Tensor], i: int, cutout: int) -> np.ndarray:
    """Normalize, pad, transpose, crop, flip and cut one image, in the article's order."""
    mean, std = np.array(MEAN), np.array(STD)
    x = (image - mean * 255) / (255 * std)
    x = np.pad(x, [(PAD, PAD), (PAD, PAD), (0, 0)], mode="reflect").transpose(2, 0, 1)
    y0, x0 = int(c["crop_y"][i]), int(c["crop_x"][i])
    x = x[:, y0 : y0 + 32, x0 : x0 + 32]
    x = x[:, :, ::-1].copy() if c["flip"][i] else x.copy()
    y0, x0 = int(c["cut_y"][i]), int(c["cut_x"][i])
    x[:, y0 : y0 + cutout, x0 : x0 + cutout] = 0
    return x


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@pytest.mark.parametrize("cutout", [0, 5, 12, 32])
def test_a_batch_is_augmented_as_the_article_augments_each_image(
    dtype: torch.dtype, close: float, cutout: int
) -> None:
    images = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (50, 32, 32, 3), np.uint8))
    index = torch.randperm(50, generator=torch.Generator().manual_seed(2))
    batches = augmented(images, cutout, Plan(dtype=dtype))
    choices = batches.draw(index)

    found = batches.take(index, **choices)

    expected = [reference(images[index[i]].numpy(), choices, i, cutout) for i in range(50)]
    np.testing.assert_allclose(found.numpy(), np.stack(expected), rtol=0, atol=close * 10)
    assert found.dtype == dtype
    assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("cutout", [1, 5, 12, 32])
def test_every_hole_lies_fully_inside_its_image(cutout: int) -> None:
    # No pixel of these images is 0 after normalization, so the zeros are the hole.
    images = torch.full((300, 32, 32, 3), 255, dtype=torch.uint8)
    batches = augmented(images, cutout)
    found = batches.take(torch.arange(300), **batches.draw(torch.arange(300)))
    assert ((found == 0).sum((1, 2, 3)) == 3 * cutout * cutout).all()


def test_the_choices_reach_both_ends_of_what_they_may_be_and_are_drawn_from_the_seed() -> None:
    images = torch.zeros(4, 32, 32, 3, dtype=torch.uint8)
    one, other = augmented(images, 5), augmented(images, 5)
    many = torch.arange(20_000)
    c = {name: x[:, 0] for name, x in one.draw(many).items()}
    assert set(c["crop_y"].tolist()) == set(c["crop_x"].tolist()) == set(range(9))
    assert set(c["cut_y"].tolist()) == set(c["cut_x"].tolist()) == set(range(28))
    assert 0.48 < c["flip"].double().mean() < 0.52
    assert not torch.equal(c["crop_y"], c["crop_x"])
    assert torch.equal(other.draw(many)["crop_y"][:, 0], c["crop_y"])
    assert not torch.equal(other.draw(many)["crop_y"][:, 0], c["crop_y"])


@pytest.mark.parametrize(("trainer", "levels"), [(digits, 17), (mnist, 256)])
def test_small_sets_are_normalized_to_mean_0_and_deviation_1(trainer, levels) -> None:
    images = torch.arange(levels, dtype=torch.uint8)[:, None, None]
    scale = 255 if trainer is mnist else 1
    exact = (images.double() - scale * trainer.MEAN) / (scale * trainer.STD)
    torch.testing.assert_close(trainer.normalize(images).flatten().double(), exact.flatten())


def test_half_precision_images_are_normalized_in_float32_and_rounded_once() -> None:
    images = torch.arange(256, dtype=torch.uint8).view(256, 1, 1, 1).expand(-1, 1, 1, 3)
    exact = (images.double() / 255 - torch.tensor(MEAN)) / torch.tensor(STD)
    found = normalize(images, Plan(dtype=torch.half))[:, :, 0, 0].double()
    torch.testing.assert_close(found, exact[:, 0, 0], rtol=2**-11, atol=1e-6)  # half a last digit


@pytest.mark.parametrize(("seed", "sizes"), [(None, [4, 4, 2]), (3, [4, 4])])
def test_an_epoch_has_as_many_batches_as_its_length_says(seed, sizes) -> None:
    split = Split(images=torch.zeros(10, 8, 8, dtype=torch.uint8), labels=torch.zeros(10))
    batches = Batches(split, torch.Tensor.float, 4, seed)
    assert [len(labels) for _, labels in batches] == sizes
    assert len(batches) == len(sizes)
