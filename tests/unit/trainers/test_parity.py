"""The trainer cifar10 against the article's way, which works one image and one step at a time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from benchmarks import article
from hpq_worker.trainers import cifar10, data, device
from hpq_worker.trainers.cifar10 import Augmented, ResNet9
from hpq_worker.trainers.data import DataSet, Split
from hpq_worker.trainers.step import Plan, measure

pytestmark = pytest.mark.torch

N, TESTS, WIDTH = 10, 3, 4  # images; a batch of 4 leaves two of an epoch out
PLAN = Plan(dtype=torch.float64)
_random = np.random.default_rng(0)
ARRAYS = {
    "train_images": _random.integers(0, 256, (N, 32, 32, 3), np.uint8),
    "train_labels": _random.integers(0, 10, N),
    "test_images": _random.integers(0, 256, (TESTS, 32, 32, 3), np.uint8),
    "test_labels": _random.integers(0, 10, TESTS),
}


class Trial:
    """Keeps the reports, without the times."""

    data = checkpoint_dir = None
    cache, checkpoint_s, should_stop = Path(), 60.0, False

    def __init__(self) -> None:
        self.reports: list[dict[str, float]] = []

    def report(self, metrics: Mapping[str, float], step: int) -> None:
        self.reports.append({k: v for k, v in metrics.items() if not k.endswith("time")})

    def phase(self, text: str) -> None: ...


def split(part: str) -> Split:
    images, labels = (torch.from_numpy(ARRAYS[f"{part}_{x}"]) for x in ("images", "labels"))
    return Split(images=images, labels=labels)


@pytest.fixture(autouse=True)
def given(monkeypatch: pytest.MonkeyPatch) -> None:
    both = DataSet(train=split("train"), test=split("test"))
    monkeypatch.setattr(cifar10, "load_data", lambda *_: both)


def ours(plan: Plan = PLAN, **params: object) -> list[dict[str, float]]:
    trial = Trial()
    given = {"width": WIDTH, "train_images": N, "test_images": TESTS, "batch_size": 4, "epochs": 2}
    cifar10.train({**given, **params}, trial, plan)
    return trial.reports


def articles(**params: object) -> list[dict[str, float]]:
    """The article's way on the same weights, with what our generator draws."""
    set_ = {"batch_size": 4, "epochs": 2, "max_learning_rate": 0.4, "momentum": 0.9, **params}
    model, _ = article.network({**set_, "width": WIDTH}, torch.device("cpu"))
    given = Augmented(split("train"), 4, params["data_aug_cutout_size"], 0, PLAN)

    def drawn(n: int, cutout: int) -> article.Draws:
        order = torch.randperm(n, generator=given.generator).tolist()
        by_image = np.argsort(order)  # ours are drawn for places in the order
        drawn = given.draw(torch.arange(n - n % 4)).items()
        choices = {name: np.resize(x.numpy(), n)[by_image] for name, x in drawn}
        return article.Draws(order=order, **choices)

    rows = article.train(model.double(), ARRAYS, set_, torch.float64, drawn)
    return [{k: v for k, v in row.items() if not k.endswith("time")} for row in rows]


@pytest.mark.parametrize(
    ("batch_norm", "cutout", "momentum"), [("on", 5, 0.9), ("on", 0, 0.0), ("off", 12, 0.99)]
)
def test_a_training_gives_the_figures_of_the_articles_way(batch_norm, cutout, momentum) -> None:
    given = {"batch_norm": batch_norm, "data_aug_cutout_size": cutout, "momentum": momentum}
    given["max_learning_rate"] = 0.4 if batch_norm == "on" else 0.01
    found, expected = ours(**given), articles(**given)
    assert len(found) == 2
    for row, other in zip(found, expected, strict=True):
        # The article normalizes in float32.
        assert row == pytest.approx(other, rel=2e-5)


def test_a_seed_gives_the_weights_that_it_gives_the_articles_network() -> None:
    torch.manual_seed(7)
    here = ResNet9(WIDTH)
    torch.manual_seed(7)
    there = article.Network(WIDTH, batch_norm=True)
    for one, other in zip(here.parameters(), there.parameters(), strict=True):
        assert torch.equal(one, other)


def test_forward_and_backward_are_those_of_the_articles_network() -> None:
    torch.manual_seed(7)
    here = device.placed(ResNet9(WIDTH), PLAN)
    there = article.Network(WIDTH, batch_norm=True).double()
    for one, other in zip(there.parameters(), here.parameters(), strict=True):
        one.data.copy_(other.data)
    x = torch.randn(6, 3, 32, 32, dtype=torch.float64)
    y = torch.arange(6)
    for model in (here, there):
        measure(model, (x, y), torch.zeros(2), PLAN).backward()
    torch.testing.assert_close(here(x), there(x), rtol=1e-12, atol=1e-12)
    for one, other in zip(here.parameters(), there.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("at_once", [8, 9, 8_192])
def test_an_epoch_prepared_in_parts_is_the_one_prepared_batch_by_batch(monkeypatch, at_once):
    plain = ours()
    monkeypatch.setitem(data.AT_ONCE, "cpu", at_once)
    assert ours() == plain


def test_the_articles_network_has_its_parameters_and_shape() -> None:
    def size(model: torch.nn.Module) -> int:
        return sum(p.numel() for p in model.parameters())

    convolutions = 3 * 64 + 64 * 128 + 2 * 128**2 + 128 * 256 + 256 * 512 + 2 * 512**2
    norms = 2 * (64 + 3 * 128 + 256 + 3 * 512)
    assert size(ResNet9(64)) == 9 * convolutions + norms + 512 * 10 == 6_573_120
    assert size(ResNet9(64, batch_norm=False)) == 9 * convolutions + 512 * 10
    assert ResNet9(4)(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
