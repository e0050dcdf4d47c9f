"""examples/cifar10_fast: first layer, norms, epochs, looks at a test, and that it trains."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from hpq_worker.trainers.data import DataSet, Split
from hpq_worker.trainers.step import Plan
from tests.support.constants import ROOT
from tests.unit.trainers.test_loop import Recorded, figures

pytestmark = pytest.mark.torch
SMALL = {"width": 4, "epochs": 2, "batch_size": 4, "train_images": 12, "test_images": 6}


@pytest.fixture(scope="module")
def fast() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "cifar10_fast", ROOT / "examples" / "cifar10_fast" / "train.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def split(n: int) -> Split:
    images = np.random.default_rng(n).integers(0, 256, (n, 32, 32, 3), np.uint8)
    return Split(images=torch.from_numpy(images), labels=torch.arange(n) % 10)


def test_patches_of_whitened_images_are_uncorrelated_and_of_variance_1(fast) -> None:
    images = torch.randn(40, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    images[:, 1] += images[:, 0]  # correlated channels
    found = torch.nn.functional.conv2d(images, fast.whitening(images).float())
    first = found[:, :12].transpose(0, 1).flatten(1).double()
    torch.testing.assert_close(
        first @ first.T / first.shape[1], torch.eye(12, dtype=torch.float64), rtol=0, atol=0.02
    )
    torch.testing.assert_close(found[:, 12:], -found[:, :12])


def test_an_image_is_mirrored_in_every_other_epoch_half_of_them_in_the_first(fast) -> None:
    train = fast.Alternating(split(12), 4, 2, 3, Plan())
    order, flips = torch.randperm(12), []
    for epoch in (1, 2, 3):
        train.set_epoch(epoch)
        drawn = train.draw(order)
        flips.append(drawn["flip"])
        assert set(drawn["crop_x"].flatten().tolist()) <= {2, 3, 4, 5, 6}
    assert torch.equal(flips[0], 1 - flips[1]) and torch.equal(flips[0], flips[2])
    assert 0 < flips[0].sum() < 12


def test_a_test_looks_six_times_and_a_bias_of_a_norm_learns_64_times_as_fast(fast) -> None:
    images = torch.randn(2, 3, 32, 32)
    plain, again = (fast.FastNet(4, looks_again=on) for on in (False, True))
    again.load_state_dict(plain.state_dict())
    torch.testing.assert_close(plain(images), again(images))  # in training
    plain.eval(), again.eval()
    assert not torch.allclose(plain(images), again(images))
    norm, other = fast.Norm(3).eval(), torch.nn.BatchNorm2d(3).eval()
    x = torch.randn(2, 3, 4, 4)
    for one in (norm, other):
        one(x).sum().backward()
    torch.testing.assert_close(norm.bias.grad * 8, other.bias.grad * 64)


def test_it_trains_and_a_stopped_trial_resumes_to_the_same_figures(
    fast, monkeypatch, tmp_path
) -> None:
    data = DataSet(train=split(12), test=split(6))
    monkeypatch.setattr(fast, "load_data", lambda *_: data)

    def trained(trial: Recorded) -> Recorded:
        trial.seed = 5
        fast.train(SMALL, trial)
        return trial

    parts = Recorded(checkpoint_dir=tmp_path, stop_after=6)
    trained(parts)
    parts.stop_after = 10**9
    assert len(figures(trained(parts))) == 2 and figures(parts) == figures(trained(Recorded()))
