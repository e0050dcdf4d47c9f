"""The augmentation of whole batches against the article's, which works on one image at a time."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from hpq_worker.trainers.data import augment
from hpq_worker.trainers.data.augment import MEAN, PAD, STD, Choices, draw
from hpq_worker.trainers.data.batches import augmented
from hpq_worker.trainers.data.datasets import Split
from hpq_worker.trainers.training.device import Plan
from hpq_worker.trainers.training.trial_context import BadParams

pytestmark = pytest.mark.torch


def reference(image: np.ndarray, c: Choices, i: int, cutout: int) -> np.ndarray:
    """Normalise, pad, transpose, crop, flip and cut one image, in the article's order."""
    mean, std = np.array(MEAN), np.array(STD)
    x = (image - mean * 255) / (255 * std)
    x = np.pad(x, [(PAD, PAD), (PAD, PAD), (0, 0)], mode="reflect").transpose(2, 0, 1)
    y0, x0 = int(c.crop_y[i]), int(c.crop_x[i])
    x = x[:, y0 : y0 + 32, x0 : x0 + 32]
    x = x[:, :, ::-1].copy() if c.flip[i] else x.copy()
    y0, x0 = int(c.cut_y[i]), int(c.cut_x[i])
    x[:, y0 : y0 + cutout, x0 : x0 + cutout] = 0
    return x


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@pytest.mark.parametrize("cutout", [0, 5, 12, 32])
def test_a_batch_is_augmented_as_the_article_augments_each_image(
    dtype: torch.dtype, close: float, cutout: int
) -> None:
    images = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (50, 32, 32, 3), np.uint8))
    index = torch.randperm(50, generator=torch.Generator().manual_seed(2))
    choices = draw(50, 32, cutout, torch.Generator().manual_seed(3))

    found = augment.augment(images, index, choices, cutout, dtype)

    expected = [reference(images[index[i]].numpy(), choices, i, cutout) for i in range(50)]
    np.testing.assert_allclose(found.numpy(), np.stack(expected), rtol=0, atol=close * 10)
    assert found.dtype == dtype
    assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("cutout", [1, 5, 12, 32])
def test_every_hole_lies_fully_inside_its_image(cutout: int) -> None:
    # No pixel of these images is 0 after normalisation, so the zeros are the hole.
    images = torch.full((300, 32, 32, 3), 255, dtype=torch.uint8)
    choices = draw(300, 32, cutout, torch.Generator().manual_seed(0))
    found = augment.augment(images, torch.arange(300), choices, cutout, torch.float32)
    assert ((found == 0).sum((1, 2, 3)) == 3 * cutout * cutout).all()


def test_the_choices_reach_both_ends_of_what_they_may_be() -> None:
    c = draw(20_000, 32, 5, torch.Generator().manual_seed(0))
    assert set(c.crop_y.tolist()) == set(c.crop_x.tolist()) == set(range(9))
    assert set(c.cut_y.tolist()) == set(c.cut_x.tolist()) == set(range(28))
    assert 0.48 < c.flip.double().mean() < 0.52
    assert not torch.equal(c.crop_y, c.crop_x)


def test_the_same_generator_draws_the_same_choices_and_then_others() -> None:
    a, b = (torch.Generator().manual_seed(7) for _ in range(2))
    first = draw(100, 32, 5, a)
    assert torch.equal(first.crop_y, draw(100, 32, 5, b).crop_y)
    assert not torch.equal(first.crop_y, draw(100, 32, 5, a).crop_y)


@pytest.mark.parametrize("cutout", [-1, 33])
def test_a_hole_that_does_not_fit_into_an_image_is_said(cutout: int) -> None:
    with pytest.raises(BadParams, match=rf"^cutout: {cutout} .*0 to 32"):
        draw(5, 32, cutout, torch.Generator())


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((6, 48, 64, 3), torch.uint8),
        ((6, 28, 28), torch.uint8),
        ((6, 28, 28, 1), torch.uint8),
        ((6, 32, 32, 3), torch.float32),
    ],
)
def test_images_that_cannot_be_augmented_so_are_said(shape, dtype) -> None:
    images = torch.zeros(shape, dtype=dtype)
    split = Split(images=images, labels=torch.zeros(6, dtype=torch.int64))
    with pytest.raises(BadParams, match=r"\(N, H, H, 3\) of uint8.*\(6"):
        augmented(split, 2, 0, Plan(), torch.Generator())
