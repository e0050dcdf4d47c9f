"""examples/cifar10_fast: first layer, moved images, norms, looks at a test, and a training."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")

import torch

from hpq.errors import Diverged
from tests.support.constants import ROOT
from tests.unit.trainers.test_datasets import batches, packed
from tests.unit.trainers.test_loop import Recorded

pytestmark = pytest.mark.torch
SMALL = {"width": 4, "epochs": 2, "batch_size": 8, "train_images": 40, "test_images": 10}


@pytest.fixture
def fast() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "cifar10_fast", ROOT / "examples" / "cifar10_fast" / "train.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = batches(tmp_path / "made" / "cifar-10-batches-py")
    packed(folder, tmp_path / "cifar-10-python.tar.gz")
    return tmp_path


def trained(fast: ModuleType, data: Path, seed: int = 5, **params: object) -> Recorded:
    trial = Recorded(data=data)
    trial.seed = seed
    fast.train({**SMALL, **params}, trial)
    return trial


def test_patches_of_whitened_images_are_uncorrelated_and_of_variance_1(fast) -> None:
    images = torch.randn(40, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    images[:, 1] += images[:, 0]  # correlated channels
    found = torch.nn.functional.conv2d(images, fast.whitening(images).float())
    first = found[:, :12].transpose(0, 1).flatten(1).double()
    torch.testing.assert_close(
        first @ first.T / first.shape[1], torch.eye(12, dtype=torch.float64), rtol=0, atol=0.02
    )
    torch.testing.assert_close(found[:, 12:], -found[:, :12])


def test_images_are_moved_by_at_most_so_many_pixels_and_reflected(fast) -> None:
    image = torch.arange(36.0).view(1, 1, 6, 6)
    torch.manual_seed(0)
    found = fast.shifted(image.expand(400, 1, 6, 6), 1)
    expected = torch.nn.functional.pad(image, (1, 1, 1, 1), mode="reflect")
    views = [expected[..., y : y + 6, x : x + 6] for y in range(3) for x in range(3)]
    counts = [sum(torch.equal(one[None], view) for one in found) for view in views]
    assert sum(counts) == 400 and min(counts) > 0


def test_only_the_last_test_looks_six_times(fast, data, monkeypatch) -> None:
    looks: list[bool] = []
    tested = fast.tested
    monkeypatch.setattr(fast, "tested", lambda *given: looks.append(given[3]) or tested(*given))
    trained(fast, data, epochs=3)
    trained(fast, data, epochs=2, tta="off")
    assert looks == [False, False, True, False, False]
    model, images = fast.FastNet(4).eval(), torch.randn(2, 3, 32, 32)
    assert not torch.allclose(model(images), model.look_six_times(images))


def test_a_bias_of_a_norm_learns_64_times_as_fast(fast) -> None:
    norm, other = fast.Norm(3).eval(), torch.nn.BatchNorm2d(3).eval()
    x = torch.randn(2, 3, 4, 4)
    for one in (norm, other):
        one(x).sum().backward()
    torch.testing.assert_close(norm.bias.grad * 8, other.bias.grad * 64)


def test_a_seed_repeats_and_a_loss_that_is_no_number_diverges(fast, data) -> None:
    first = trained(fast, data).reports
    assert [step for step, _ in first] == [1, 2]
    assert trained(fast, data).reports == first != trained(fast, data, seed=6).reports
    assert first[1][1]["train/loss"] < first[0][1]["train/loss"]
    with pytest.raises(Diverged):
        trained(fast, data, epochs=20, max_learning_rate=1e9)
