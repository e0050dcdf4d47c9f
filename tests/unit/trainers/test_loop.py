"""The training loop: the article's schedule, update rule and sums; stopping and diverging."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch import nn

from hpq.domain.trainer_specs import SHIPPED
from hpq_worker.trainers.networks import ResNet9
from hpq_worker.trainers.training.device import Plan
from hpq_worker.trainers.training.loop import Recipe, Task, fit, learning_rate, rates
from hpq_worker.trainers.training.optimizer import Nesterov
from hpq_worker.trainers.training.step import Batch, forget, train_step
from hpq_worker.trainers.training.trial_context import BadParams, Diverged

pytestmark = pytest.mark.torch


@dataclass(kw_only=True)
class Recorded:
    """A trial that keeps its reports and stops after so many questions."""

    stop_after: int = 10**9
    asked: int = 0
    reports: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    data: Path | None = None
    cache: Path = Path()
    checkpoint_dir: Path | None = None
    checkpoint_s: float = 60.0

    @property
    def should_stop(self) -> bool:
        self.asked += 1
        return self.asked > self.stop_after

    def report(self, metrics: Mapping[str, float], step: int) -> None:
        self.reports.append((step, dict(metrics)))

    def phase(self, text: str) -> None: ...


def recipe(**changes: float) -> Recipe:
    base = {
        "seed": 0, "epochs": 2, "batch_size": 4, "momentum": 0.9,
        "max_learning_rate": 0.1, "weight_decay": 5e-4,
    }  # fmt: skip
    return Recipe(**{**base, **changes})  # type: ignore[arg-type]


def images_and_labels(n: int, features: int = 6) -> Batch:
    generator = torch.Generator().manual_seed(5)
    return (
        torch.randn(n, features, generator=generator, dtype=torch.float64),
        torch.randint(10, (n,), generator=generator),
    )


def linear(features: int = 6) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(features, 10).double()


def task(model: nn.Module, steps: int = 3, size: int = 4) -> Task:
    images, labels = images_and_labels(steps * size)

    def batches() -> Iterator[Batch]:
        return zip(images.split(size), labels.split(size), strict=True)

    return Task(model=model, train=batches, test=batches, train_images=steps * size)


def test_the_schedule_over_24_epochs_is_the_articles() -> None:
    steps = 97
    at = np.arange(24 * steps) / steps
    expected = np.interp(at, [0, 5, 24], [0, 0.4, 0]) / 512
    np.testing.assert_allclose(rates(steps, 24, 0.4, 512).numpy(), expected, rtol=0, atol=1e-15)


def test_the_schedule_of_fewer_epochs_keeps_its_shape() -> None:
    points = torch.tensor([0, 5 / 24, 14.5 / 24, 1], dtype=torch.float64)
    assert learning_rate(points, 0.6).tolist() == pytest.approx([0, 0.6, 0.3, 0])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_two_steps_are_nesterovs_on_a_summed_loss_with_decay_times_the_batch(
    momentum: float,
) -> None:
    model, (x, y) = linear(), images_and_labels(4)
    weight, buffer = model.weight.detach().clone(), torch.zeros(10, 6, dtype=torch.float64)
    bias, bias_buffer = model.bias.detach().clone(), torch.zeros(10, dtype=torch.float64)
    update = Nesterov(model)
    update.reset(momentum=momentum, decay=5e-4 * 4)
    for rate in (0.02, 0.05):
        update.rate.fill_(rate)
        train_step(model, update, (x, y), torch.zeros(3, dtype=torch.float64))

        p = torch.softmax(x @ weight.T + bias, 1) - F.one_hot(y, 10)  # of the sum, not the mean
        grad, bias_grad = p.T @ x + 5e-4 * 4 * weight, p.sum(0) + 5e-4 * 4 * bias
        buffer, bias_buffer = momentum * buffer + grad, momentum * bias_buffer + bias_grad
        weight = weight - rate * (grad + momentum * buffer)
        bias = bias - rate * (bias_grad + momentum * bias_buffer)
    torch.testing.assert_close(model.weight.detach(), weight, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(model.bias.detach(), bias, rtol=1e-12, atol=1e-12)


def test_each_step_has_its_own_rate_divided_by_the_batch_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[float] = []
    step = Nesterov.step

    def spy(self: Nesterov) -> None:
        seen.append(self.rate.item())
        step(self)

    monkeypatch.setattr(Nesterov, "step", spy)
    fit(task(linear(), steps=12), recipe(epochs=2), Recorded())
    assert seen == pytest.approx(rates(12, 2, 0.1, 4).tolist())


def test_the_network_is_trained_where_a_captured_one_stood_in_for_it() -> None:
    plain, stood_in_for = linear(), linear()
    fit(task(plain), recipe(), Recorded())
    keyed = replace(task(stood_in_for), key="linear")
    fit(keyed, recipe(), Recorded(), Plan(graph=True))
    forget()
    assert torch.equal(plain.weight, stood_in_for.weight)
    assert not torch.equal(plain.weight, linear().weight)


def test_an_epoch_reports_means_per_image() -> None:
    model, trial = linear(), Recorded()
    fit(task(model), recipe(epochs=1, max_learning_rate=1e-9), trial)
    (step, metrics) = trial.reports[0]
    x, y = images_and_labels(12)
    logits = model(x)
    assert step == 1
    assert metrics["train/loss"] == pytest.approx(F.cross_entropy(logits, y).item(), rel=1e-6)
    assert metrics["test/loss"] == pytest.approx(metrics["train/loss"], rel=1e-6)
    assert metrics["test/acc"] == (logits.argmax(1) == y).double().mean().item()
    assert set(metrics) == {
        "train/loss", "train/acc", "train/time", "test/loss", "test/acc", "test/time", "total/time",
    }  # fmt: skip


def test_the_total_time_is_that_of_training_alone() -> None:
    trial = Recorded()
    fit(task(linear()), recipe(epochs=3), trial)
    assert [step for step, _ in trial.reports] == [1, 2, 3]
    total = sum(m["train/time"] for _, m in trial.reports)
    assert trial.reports[-1][1]["total/time"] == pytest.approx(total)


@pytest.mark.parametrize("stop_after", [0, 2, 4, 7])
def test_a_stop_is_obeyed_before_the_next_batch(stop_after: int) -> None:
    model, trial = linear(), Recorded(stop_after=stop_after)
    calls: list[object] = []
    model.register_forward_hook(lambda *_: calls.append(1))
    fit(task(model), recipe(epochs=5), trial)  # 3 batches of training, then 3 of testing
    assert len(calls) == stop_after
    assert len(trial.reports) == stop_after // 6


def test_a_loss_that_is_not_finite_ends_the_trial_as_diverged() -> None:
    trial = Recorded()
    with pytest.raises(Diverged, match=r"(train|test)/loss is (nan|inf)\b.*max_learning_rate"):
        fit(task(linear()), recipe(epochs=200, max_learning_rate=1e6, weight_decay=1), trial)
    assert len(trial.reports) < 199


def test_a_batch_larger_than_the_training_set_is_named() -> None:
    with pytest.raises(BadParams, match=r"^batch_size: 64 .*\b12\b"):
        fit(task(linear()), recipe(batch_size=64), Recorded())


@pytest.mark.parametrize("name", ["epochs", "batch_size"])
@pytest.mark.parametrize("value", [0, -1, 2.5, 4.0, "4", True, None, math.nan])
def test_a_recipe_without_whole_numbers_of_epochs_and_images_is_named(name, value) -> None:
    with pytest.raises(BadParams) as caught:
        fit(task(linear()), recipe(**{name: value}), Recorded())
    assert str(caught.value).startswith(f"{name}: {value!r} ")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("max_learning_rate", [0, -0.1, math.inf, math.nan, "0.1", True]),
        ("momentum", [-0.1, 1, 2, math.nan, "0.9"]),
        ("weight_decay", [-1e-4, math.inf, math.nan, None]),
    ],
)
def test_a_recipe_that_cannot_train_is_named(name, values) -> None:
    for value in values:
        with pytest.raises(BadParams) as caught:
            fit(task(linear()), recipe(**{name: value}), Recorded())
        assert str(caught.value).startswith(f"{name}: {value!r} ")


@pytest.mark.parametrize("end", ["low", "high"])
@pytest.mark.parametrize("trainer", SHIPPED)
def test_the_loop_takes_what_a_sweep_file_may_say(trainer, end) -> None:
    names = "momentum", "max_learning_rate", "weight_decay"
    ends = {name: getattr(SHIPPED[trainer].params[name], end) for name in names}
    fit(task(linear()), recipe(**ends), Recorded(stop_after=0))


def assert_resumed_at_2(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    """Assert that the one line that was printed names epoch 2 and the checkpoint."""
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("hpq: ") and "epoch 2 " in line and str(path) in line


def test_numbers_of_numpy_are_numbers_and_go_into_a_checkpoint(tmp_path, capsys) -> None:
    given = recipe(epochs=np.int64(2), batch_size=np.int64(4), max_learning_rate=np.float32(0.1))
    fit(shuffled_task(), given, Recorded(checkpoint_dir=tmp_path, stop_after=8))
    fit(shuffled_task(), given, Recorded(checkpoint_dir=tmp_path))
    assert_resumed_at_2(capsys, tmp_path / "training.pt")


@pytest.mark.parametrize("model", [linear().requires_grad_(False), nn.Flatten()])
def test_a_network_with_nothing_to_train_is_said(model: nn.Module) -> None:
    with pytest.raises(BadParams, match=r"^the network: .*requires_grad"):
        fit(task(model), recipe(), Recorded())


def test_a_test_set_without_images_is_said() -> None:
    with pytest.raises(BadParams, match=r"^the test set: "):
        fit(replace(task(linear()), test=list), recipe(), Recorded())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"size": 3}, ["batch_size: 4", "3 labels"]),
        ({"kind": torch.int32}, ["torch.int32"]),
        ({"count": 0}, ["no batch"]),
        (
            {"count": 2},
            ["2 batches", "3"],
        ),
        (
            {"count": 4},
            ["more than 3", "drop_last=True"],
        ),
    ],
)
def test_batches_that_are_not_the_recipes_are_said_in_one_line(changes, words) -> None:
    size, kind = changes.get("size", 4), changes.get("kind", torch.int64)
    one = torch.zeros(size, 6, dtype=torch.float64), torch.zeros(size, dtype=kind)
    wrong = replace(task(linear()), train=lambda: [one] * changes.get("count", 3))
    with pytest.raises(BadParams) as caught:
        fit(wrong, recipe(), Recorded())
    assert all(word in str(caught.value) for word in words), caught.value


def test_each_epoch_is_drawn_once() -> None:
    drawn: list[int] = []
    whole = task(linear())
    fit(replace(whole, begin=drawn.append), recipe(epochs=3), Recorded())
    assert drawn == [1, 2, 3]


def test_the_articles_network_has_its_parameters_and_shape() -> None:
    def size(model: nn.Module) -> int:
        return sum(p.numel() for p in model.parameters())

    convolutions = 3 * 64 + 64 * 128 + 2 * 128**2 + 128 * 256 + 256 * 512 + 2 * 512**2
    norms = 2 * (64 + 3 * 128 + 256 + 3 * 512)
    assert size(ResNet9(64)) == 9 * convolutions + norms + 512 * 10 == 6_573_120
    assert size(ResNet9(64, batch_norm=False)) == 9 * convolutions + 512 * 10
    assert ResNet9(4)(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_the_logits_are_an_eighth_of_the_linear_layer() -> None:
    model = ResNet9(4).eval()
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(model(x), model.linear(model.features(x)) / 8)


def shuffled_task(steps: int = 3, size: int = 4) -> Task:
    """A network with dropout on batches in random order: two streams of random numbers."""
    images, labels = images_and_labels(steps * size)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 10)).double()
    generator = torch.Generator().manual_seed(4)

    def batches() -> Iterator[Batch]:
        for index in torch.randperm(len(labels), generator=generator).split(size):
            yield images[index], labels[index]

    def test() -> Iterator[Batch]:
        return zip(images.split(size), labels.split(size), strict=True)

    return Task(
        model=model, train=batches, test=test, train_images=steps * size, generator=generator
    )


def figures(trial: Recorded) -> list[tuple[int, dict[str, float]]]:
    return [
        (step, {n: v for n, v in metrics.items() if not n.endswith("time")})
        for step, metrics in trial.reports
    ]


# An epoch asks 6 times: before each of 3 batches of training, then of testing.
@pytest.mark.parametrize("stops", [[1], [5], [6], [9, 2], [13, 3, 5], [1, 1, 1, 1]])
def test_a_training_that_was_stopped_goes_on_to_the_same_figures(tmp_path, stops) -> None:
    whole, parts = Recorded(), Recorded(checkpoint_dir=tmp_path)
    straight = shuffled_task()
    fit(straight, recipe(epochs=4), whole)
    for stop in stops:
        parts.asked, parts.stop_after = 0, stop
        fit(shuffled_task(), recipe(epochs=4), parts)
    parts.stop_after = 10**9
    last = shuffled_task()
    fit(last, recipe(epochs=4), parts)
    assert figures(parts) == figures(whole)
    for one, other in zip(last.model.parameters(), straight.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert parts.reports[-1][1]["total/time"] == pytest.approx(
        sum(m["train/time"] for _, m in parts.reports)
    )


def test_a_checkpoint_is_saved_when_its_time_has_come_and_not_in_a_short_trial(tmp_path) -> None:
    fit(shuffled_task(), recipe(epochs=3), Recorded(checkpoint_dir=tmp_path))
    assert not any(tmp_path.iterdir())
    fit(shuffled_task(), recipe(epochs=3), Recorded(checkpoint_dir=tmp_path, checkpoint_s=0.0))
    (saved,) = tmp_path.iterdir()
    assert torch.load(saved, weights_only=True)["progress"]["epoch"] == 4


@pytest.mark.parametrize("harm", ["torn", "other", "code", "junk"])
def test_a_checkpoint_that_does_not_fit_is_said_and_training_starts_anew(
    tmp_path, capsys, harm
) -> None:
    whole, harmed = Recorded(), Recorded(checkpoint_dir=tmp_path)
    fit(shuffled_task(), recipe(), whole)
    fit(shuffled_task(), recipe(), Recorded(checkpoint_dir=tmp_path, stop_after=8))
    (path,) = tmp_path.iterdir()
    if harm == "torn":
        path.write_bytes(path.read_bytes()[:500])
    elif harm == "other":
        state = torch.load(path, weights_only=True)
        state["model"]["2.bias"] = torch.zeros(3)
        torch.save(state, path)
    elif harm == "junk":
        path.write_bytes(b"junk\n" * 100)
    else:
        torch.save({"model": Recorded}, path)  # a pickle that names code
    fit(shuffled_task(), recipe(), harmed)
    assert figures(harmed) == figures(whole)
    assert str(path) in capsys.readouterr().out  # named as what cannot be used


def _without(part: str) -> Callable[[dict[str, Any]], object]:
    return lambda state: state["progress"].pop(part)


def _with(part: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda state: state["progress"].update({part: value})


@pytest.mark.parametrize(
    "harm",
    [
        _without("order"),
        _without("epoch"),
        _without("step"),
        lambda state: state.update(progress=None),
        _with("sums", None),
        _with("sums", torch.zeros(2)),
        _with("order", torch.zeros(3, dtype=torch.uint8)),
        _with("order", None),
        _with("step", 100),
        _with("epoch", 99),
        _with("epoch", 1.5),
        _with("total_s", None),
        lambda state: state.update(random=torch.zeros(3)),
        lambda state: state["optimizer"]["velocity"].pop(),
        lambda state: state.pop("run"),
    ],
)
def test_a_checkpoint_with_one_wrong_part_changes_nothing(tmp_path, capsys, harm) -> None:
    whole, harmed = Recorded(), Recorded(checkpoint_dir=tmp_path)
    fit(shuffled_task(), recipe(), whole)
    fit(shuffled_task(), recipe(), Recorded(checkpoint_dir=tmp_path, stop_after=8))
    (path,) = tmp_path.iterdir()
    state = torch.load(path, weights_only=True)
    harm(state)
    torch.save(state, path)
    capsys.readouterr()
    fit(shuffled_task(), recipe(), harmed)
    assert figures(harmed) == figures(whole)
    said = capsys.readouterr().out
    assert said.startswith("hpq: ")
    assert said.count("\n") == 1


def test_a_checkpoint_of_another_run_is_refused_in_words(tmp_path, capsys) -> None:
    fit(shuffled_task(), recipe(epochs=4), Recorded(checkpoint_dir=tmp_path, stop_after=8))
    whole, other = Recorded(), Recorded(checkpoint_dir=tmp_path)
    fit(shuffled_task(size=6), recipe(batch_size=6), whole)
    fit(shuffled_task(size=6), recipe(batch_size=6), other)
    assert figures(other) == figures(whole)
    said = capsys.readouterr().out
    assert "epochs 4, batch_size 4" in said and "epochs 2, batch_size 6" in said


@pytest.mark.parametrize("name", ["max_learning_rate", "momentum", "weight_decay"])
def test_a_checkpoint_of_another_rate_momentum_or_decay_is_refused(tmp_path, capsys, name) -> None:
    fit(shuffled_task(), recipe(), Recorded(checkpoint_dir=tmp_path, checkpoint_s=0.0))
    whole, other = Recorded(), Recorded(checkpoint_dir=tmp_path)
    fit(shuffled_task(), recipe(**{name: 0.5}), whole)
    fit(shuffled_task(), recipe(**{name: 0.5}), other)
    assert figures(other) == figures(whole)
    was = getattr(recipe(), name)
    said = capsys.readouterr().out
    assert f"{name} {was}" in said and f"{name} 0.5" in said


def test_a_checkpoint_of_a_version_that_did_not_keep_the_rate_is_gone_on_from(
    tmp_path, capsys
) -> None:
    every = Recorded(checkpoint_dir=tmp_path)
    fit(shuffled_task(), recipe(), replace(every, stop_after=8))
    (path,) = tmp_path.iterdir()
    state = torch.load(path, weights_only=True)
    state["run"] = {name: state["run"][name] for name in ("epochs", "steps", "batch_size")}
    torch.save(state, path)
    fit(shuffled_task(), recipe(), every)
    assert_resumed_at_2(capsys, path)


def test_a_trial_that_goes_on_says_from_where(tmp_path, capsys) -> None:
    every = Recorded(checkpoint_dir=tmp_path, checkpoint_s=0.0)
    fit(shuffled_task(), recipe(), replace(every, stop_after=8))
    assert capsys.readouterr().out == ""
    fit(shuffled_task(), recipe(), every)
    assert_resumed_at_2(capsys, tmp_path / "training.pt")
    fit(shuffled_task(), recipe(), every)
    (line,) = capsys.readouterr().out.splitlines()
    assert f"{tmp_path}/training.pt" in line and "epoch 2" not in line
