"""The trainer cifar10-fast: first layer, norms, epochs, looks at a test, and that it learns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch import nn

from hpq.domain.trainer_specs import SHIPPED
from hpq_worker.trainers import cifar10_fast
from hpq_worker.trainers.cifar10_fast import Alternating, Cifar10Fast, FastNet, Norm, whitening
from hpq_worker.trainers.data import augment
from hpq_worker.trainers.data.datasets import DataSet, Split
from hpq_worker.trainers.training import step
from hpq_worker.trainers.training.device import Plan
from hpq_worker.trainers.training.optimizer import Nesterov
from hpq_worker.trainers.training.trial_context import BadParams
from tests.recorded_graph import Gpu

pytestmark = pytest.mark.torch
N = 40
SMALL = {"width": 4, "epochs": 2, "batch_size": 10, "train_images": N, "test_images": N}


@dataclass(kw_only=True)
class Trial:
    """Keeps the reports, without the times; stops after so many questions."""

    checkpoint_dir: Path | None = None
    stop_after: int = 10**9
    data: Path | None = None
    cache: Path = Path()
    checkpoint_s: float = 60.0
    reports: list[dict[str, float]] = field(default_factory=list)

    @property
    def should_stop(self) -> bool:
        self.stop_after -= 1
        return self.stop_after < 0

    def report(self, metrics: Mapping[str, float], step: int) -> None:
        self.reports.append({k: v for k, v in metrics.items() if not k.endswith("time")})

    def phase(self, text: str) -> None: ...


def split() -> Split:
    """Ten classes that differ in colour, with noise."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(N) % 10
    colours = torch.randint(40, 216, (10, 1, 1, 3), generator=generator)
    noise = torch.randint(-40, 40, (N, 32, 32, 3), generator=generator)
    return Split(images=(colours[labels] + noise).to(torch.uint8), labels=labels)


@pytest.fixture(autouse=True)
def given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar10_fast, "load_data", lambda *_: DataSet(train=split(), test=split()))
    monkeypatch.setattr(step, "_kept", type(step._kept)())


def trained(plan: Plan | None = None, trial: Trial | None = None, **changes: object) -> Trial:
    trial = trial or Trial()
    cifar10_fast.train({**SMALL, **changes}, trial, plan)  # type: ignore[dict-item]
    return trial


def params(**changes: object) -> Cifar10Fast:
    return Cifar10Fast(**SHIPPED["cifar10-fast"].fill({**SMALL, **changes}))  # type: ignore[arg-type]


def test_the_first_layer_whitens_the_patches_it_was_computed_from() -> None:
    images = augment.normalise(split().images, torch.float64)
    images = F.avg_pool2d(images, 3, stride=1)  # neighbours that have something in common
    filters = whitening(images)
    out = F.conv2d(images, filters).transpose(0, 1).flatten(1)
    found = out[:12] @ out[:12].T / out.shape[1]
    patches = F.unfold(images, 2).transpose(0, 1).flatten(1)
    variances = torch.linalg.eigvalsh(patches @ patches.T / patches.shape[1])
    torch.testing.assert_close(
        found, torch.diag(variances / (variances + 5e-4)), rtol=1e-4, atol=1e-4
    )
    assert torch.equal(out[12:], -out[:12])


def test_the_first_layer_sees_all_classes_also_where_images_lie_class_by_class(monkeypatch) -> None:
    plain, seen = split(), []
    order = plain.labels.argsort(stable=True)
    by_class = Split(images=plain.images[order], labels=plain.labels[order])
    monkeypatch.setattr(cifar10_fast, "load_data", lambda *_: DataSet(train=by_class, test=plain))
    monkeypatch.setattr(cifar10_fast, "_SEEN", 10)
    monkeypatch.setattr(
        cifar10_fast, "whitening", lambda images: (seen.append(images), whitening(images))[1]
    )
    trained(epochs=1)
    (images,) = seen
    colours = images.mean((2, 3)).round(decimals=1).unique(dim=0)  # noise ends in its mean
    assert len(images) == 10 and len(colours) == 10


def test_a_norms_bias_learns_64_times_as_fast_and_decays_as_a_weight_does() -> None:
    x = torch.randn(6, 3, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ours, plain = Norm(3).double(), nn.BatchNorm2d(3, momentum=0.4, affine=False).double()
    with torch.no_grad():
        ours.bias.fill_(0.25)
    bias = torch.full((3,), 2.0, dtype=torch.float64, requires_grad=True)
    other = plain(x) + bias[:, None, None]
    update = Nesterov(ours)
    update.reset(momentum=0.0, decay=0.3)
    update.rate.fill_(0.01)
    out = ours(x)
    torch.testing.assert_close(out, other)
    out.square().sum().backward()
    other.square().sum().backward()
    update.step()
    expected = bias - 0.01 * (64 * bias.grad + 0.3 * bias)
    torch.testing.assert_close(ours.bias * 8, expected.detach())
    torch.testing.assert_close(ours.running_var, plain.running_var)
    assert torch.equal(ours.weight, torch.ones_like(ours.weight))


def test_two_epochs_show_each_image_both_ways_whatever_came_before() -> None:
    def shown(epoch: int) -> dict[int, int]:
        p, generator = params(translate=0), torch.Generator().manual_seed(epoch)
        images = Alternating(split=some, params=p, plan=Plan(), generator=generator)
        images.begin(epoch)
        normal = augment.normalise(some.images, torch.float32)
        found = {}
        for batch, _ in images.batches():
            for image in batch:
                both = torch.stack([normal, normal.flip(3)])
                way, number = (both == image).all((2, 3, 4)).nonzero()[0].tolist()
                found[number] = way
        return found

    some = split()
    first, second, third = (shown(epoch) for epoch in (1, 2, 3))
    assert set(first) == set(range(N))
    assert all(first[i] != second[i] for i in range(N))
    assert first == third and 0 < sum(first.values()) < N


def test_an_image_is_shifted_by_at_most_so_many_pixels() -> None:
    one = Split(images=split().images[:1].repeat(N, 1, 1, 1), labels=torch.zeros(N).long())
    images = Alternating(
        split=one, params=params(translate=1), plan=Plan(), generator=torch.Generator()
    )
    images._mirrored.zero_()
    around = F.pad(augment.normalise(one.images[:1], torch.float32), (1,) * 4, mode="reflect")
    allowed = [around[0, :, y : y + 32, x : x + 32] for y in range(3) for x in range(3)]
    found = set()
    for batch, _ in images.batches():
        for image in batch:
            found |= {i for i, other in enumerate(allowed) if torch.equal(image, other)}
    assert found == set(range(9))


def test_a_test_takes_the_mean_of_six_looks_and_training_takes_one() -> None:
    torch.manual_seed(0)
    model = FastNet(4, looks_again=True).double()
    x = torch.randn(3, 3, 32, 32, dtype=torch.float64)
    once = FastNet(4, looks_again=False).double().eval()
    once.load_state_dict(model.state_dict())
    near = F.pad(x, (1,) * 4, mode="reflect")
    looks = [x, x, near[..., :32, :32], near[..., 2:, 2:]]
    expected = torch.stack([once(i) + once(i.flip(3)) for i in looks]).mean(0) / 2
    torch.testing.assert_close(model.eval()(x), expected)
    assert torch.equal(model.train()(x), once.train()(x))


def test_it_learns_and_a_seed_gives_the_same_figures_again() -> None:
    few = {"epochs": 10, "width": 8, "max_learning_rate": 0.3}
    rows = trained(**few).reports
    assert rows[-1]["train/loss"] < rows[0]["train/loss"] - 0.4
    assert max(row["test/acc"] for row in rows) > 0.4
    assert trained(**few).reports == rows
    assert trained(**few, seed=1).reports != rows


def test_smoothing_is_of_the_training_loss_alone() -> None:
    rate = {"max_learning_rate": 1e-9, "epochs": 1, "translate": 0, "tta": "off"}
    (plain,) = trained(label_smoothing=0.0, **rate).reports
    (smooth,) = trained(label_smoothing=0.5, **rate).reports
    assert plain["test/loss"] == pytest.approx(smooth["test/loss"], rel=1e-5)
    assert plain["train/loss"] != pytest.approx(smooth["train/loss"], rel=1e-4)


def test_a_trial_that_was_stopped_goes_on_to_the_same_figures(tmp_path: Path) -> None:
    whole = trained(epochs=3).reports
    before = trained(epochs=3, trial=Trial(checkpoint_dir=tmp_path, stop_after=8)).reports
    after = trained(epochs=3, trial=Trial(checkpoint_dir=tmp_path)).reports
    assert (len(before), before + after) == (1, whole)


def test_the_captured_step_gives_bit_for_bit_what_the_plain_one_gives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu, plain = Gpu(monkeypatch), Plan(whole_epoch=True)
    sets = [{}, {"label_smoothing": 0.0, "momentum": 0.5}, {"weight_decay": 0.0}, {"seed": 2}]
    graph = replace(plain, graph=True)
    found = [trained(graph, **s).reports for s in sets]
    assert found == [trained(plain, **s).reports for s in sets]
    assert gpu.graphs == 2  # with smoothing and without


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data_aug_cutout_size": 5}, "data_aug_cutout_size: "),
        ({"translate": 5}, "translate: 5 "),
        ({"tta": True}, "tta: "),
        ({"batch_size": 41}, "batch_size: 41 "),
    ],
)
def test_bad_parameters_are_named(changes: dict[str, object], said: str) -> None:
    with pytest.raises(BadParams) as caught:
        trained(**changes)
    assert str(caught.value).startswith(said)
