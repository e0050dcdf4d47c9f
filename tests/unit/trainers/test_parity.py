"""The trainer cifar10 against the article's way, which works one image and one step at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from benchmarks import article
from hpq_worker.trainers import cifar10
from hpq_worker.trainers.data.augment import draw
from hpq_worker.trainers.data.datasets import DataSet, Split
from hpq_worker.trainers.networks import ResNet9, fill_stem
from hpq_worker.trainers.training import step
from hpq_worker.trainers.training.device import Plan, placed

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


@pytest.fixture(autouse=True)
def given(monkeypatch: pytest.MonkeyPatch) -> None:
    def split(part: str) -> Split:
        images, labels = (torch.from_numpy(ARRAYS[f"{part}_{x}"]) for x in ("images", "labels"))
        return Split(images=images, labels=labels)

    data = DataSet(train=split("train"), test=split("test"))
    monkeypatch.setattr(cifar10, "load_data", lambda *_: data)
    monkeypatch.setattr(step, "_kept", type(step._kept)())


def ours(plan: Plan = PLAN, **params: object) -> list[dict[str, float]]:
    trial = Trial()
    given = {"width": WIDTH, "train_images": N, "test_images": TESTS, "batch_size": 4, "epochs": 2}
    cifar10.train({**given, **params}, trial, plan)
    return trial.reports


def articles(**params: object) -> list[dict[str, float]]:
    """The article's way on the same weights, with what our generator draws."""
    set_ = {"batch_size": 4, "epochs": 2, "max_learning_rate": 0.4, "momentum": 0.9, **params}
    model, _ = article.network({**set_, "width": WIDTH}, torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)

    def drawn(n: int, cutout: int) -> article.Draws:
        order = torch.randperm(n, generator=generator).tolist()
        c = draw(n - n % 4, 32, cutout, generator)
        by_image = np.argsort(order)  # ours are drawn for places in the order
        names = ("crop_y", "crop_x", "flip", "cut_y", "cut_x")
        choices = {k: np.resize(getattr(c, k).numpy(), n)[by_image] for k in names}
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
        # The article normalises in float32.
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
    here = placed(ResNet9(WIDTH), torch.device("cpu"), PLAN)
    there = article.Network(WIDTH, batch_norm=True).double()
    for one, other in zip(there.parameters(), here.parameters(), strict=True):
        one.data.copy_(other.data)
    x = torch.randn(6, 3, 32, 32, dtype=torch.float64)
    y = torch.arange(6)
    for model in (here, there):
        step.forward(model, (x, y), torch.zeros(3)).backward()
    torch.testing.assert_close(here(x), there(x), rtol=1e-12, atol=1e-12)
    for one, other in zip(here.parameters(), there.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-9, atol=1e-12)


def test_images_filled_up_with_zero_channels_change_nothing() -> None:
    assert ours(replace(PLAN, fill=8)) == [pytest.approx(row, rel=1e-9) for row in ours()]
    model = ResNet9(WIDTH)
    fill_stem(model, 8)
    assert next(model.parameters()).shape == (WIDTH, 3, 3, 3)


@pytest.mark.parametrize(
    "plan",
    [
        replace(PLAN, graph=True),
        replace(PLAN, graph=True, whole_epoch=True, dtype=torch.float32),
    ],
)
def test_a_step_between_buffers_gives_bit_for_bit_what_a_plain_one_gives(plan: Plan) -> None:
    plain = replace(PLAN, dtype=plan.dtype)
    sets = [{}, {"momentum": 0.99, "max_learning_rate": 0.6, "seed": 3}, {}]
    assert [ours(plan, **s) for s in sets] == [ours(plain, **s) for s in sets]


def test_the_last_four_shapes_are_kept_and_no_more() -> None:
    model, plan = torch.nn.Linear(6, 10), replace(PLAN, graph=True)

    def of(batch_size: int) -> step.Bench:
        return step.bench(model, (torch.zeros(batch_size, 6), torch.zeros(batch_size)), "x", plan)

    first, second = of(8), of(9)
    of(10), of(11)
    assert of(8) is first
    of(12)  # 9 was used longest ago
    assert of(8) is first
    assert of(9) is not second
    assert len(step._kept) == step.KEPT
