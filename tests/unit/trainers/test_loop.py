"""The training loop: the article's schedule and sums; stops, resumes, divergence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from torch import nn

from hpq.domain.trainer_specs import BUILT_IN
from hpq.errors import Diverged
from hpq_worker.trainers.data import Batches, Split
from hpq_worker.trainers.loop import fit, rates
from hpq_worker.trainers.step import Batch, Plan, Step
from tests.support.pickles import Runs

pytestmark = pytest.mark.torch
PLAN = Plan(dtype=torch.float64)
SIZE, STEPS = 4, 3


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


def images_and_labels(n: int = SIZE * STEPS) -> Batch:
    generator = torch.Generator().manual_seed(5)
    return (
        torch.randn(n, 6, generator=generator, dtype=torch.float64),
        torch.randint(10, (n,), generator=generator),
    )


def split(n: int = SIZE * STEPS) -> Split:
    images, labels = images_and_labels(n)
    return Split(images=images, labels=labels)


def shuffled(size: int = SIZE, n: int = SIZE * STEPS) -> Batches:
    return Batches(split(n), torch.Tensor.double, size, seed=4)


def in_order() -> Batches:
    return Batches(split(), torch.Tensor.double, SIZE)


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(6, 10)


def dropping() -> nn.Module:
    """A network that draws random numbers of its own, with a norm that counts no batches."""
    torch.manual_seed(3)
    norm = nn.BatchNorm1d(6)
    norm.num_batches_tracked = None
    return nn.Sequential(norm, nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 10))


def fitted(trial: Recorded, model: nn.Module | None = None, train: Any = None, **changes: Any):
    params = {"epochs": 2, "max_learning_rate": 0.1, "momentum": 0.9, "weight_decay": 5e-4}
    params |= {"seed": 4, **changes}
    test = params.pop("test", in_order())
    fit(model or linear(), train or shuffled(), test, trial, params, PLAN)
    return trial


def test_the_schedule_over_24_epochs_is_the_articles() -> None:
    steps = 97
    at = np.arange(24 * steps) / steps
    expected = np.interp(at, [0, 5, 24], [0, 0.4, 0])
    np.testing.assert_allclose(rates(steps, 24, 0.4).flatten(), expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_two_steps_are_nesterovs_on_a_summed_loss_with_decay_times_the_batch(
    momentum: float,
) -> None:
    model, (x, y) = linear().double(), images_and_labels(4)
    weight, buffer = model.weight.detach().clone(), torch.zeros(10, 6, dtype=torch.float64)
    bias, bias_buffer = model.bias.detach().clone(), torch.zeros(10, dtype=torch.float64)
    step = Step(model, PLAN, size=4, momentum=momentum, decay=5e-4)
    for rate in (0.02, 0.05):
        step((x, y), torch.tensor(4 * rate, dtype=torch.float64))
        p = torch.softmax(x @ weight.T + bias, 1) - F.one_hot(y, 10)  # of the sum, not the mean
        grad, bias_grad = p.T @ x + 5e-4 * 4 * weight, p.sum(0) + 5e-4 * 4 * bias
        buffer, bias_buffer = momentum * buffer + grad, momentum * bias_buffer + bias_grad
        weight = weight - rate * (grad + momentum * buffer)
        bias = bias - rate * (bias_grad + momentum * bias_buffer)
    torch.testing.assert_close(model.weight.detach(), weight, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(model.bias.detach(), bias, rtol=1e-12, atol=1e-12)


def test_each_step_has_its_own_rate_divided_by_the_batch_size(monkeypatch) -> None:
    seen: list[float] = []
    call = Step.__call__
    monkeypatch.setattr(
        Step, "__call__", lambda self, *given: (call(self, *given), seen.append(self.lr.item()))
    )
    fitted(Recorded(), train=shuffled(n=48))
    assert seen == pytest.approx((rates(12, 2, 0.1) / 4).flatten().tolist())


def test_an_epoch_reports_means_per_image() -> None:
    model = linear()
    ((step, metrics),) = fitted(Recorded(), model, epochs=1, max_learning_rate=1e-9).reports
    x, y = images_and_labels()
    logits = model(x)
    assert step == 1
    assert metrics["train/loss"] == pytest.approx(F.cross_entropy(logits, y).item(), rel=1e-6)
    assert metrics["test/loss"] == pytest.approx(metrics["train/loss"], rel=1e-6)
    assert metrics["test/acc"] == (logits.argmax(1) == y).double().mean().item()
    assert set(metrics) == {
        "train/loss", "train/acc", "train/time", "test/loss", "test/acc", "test/time", "total/time",
    }  # fmt: skip


def test_the_total_time_is_that_of_training_alone() -> None:
    trial = fitted(Recorded(), epochs=3)
    assert [step for step, _ in trial.reports] == [1, 2, 3]
    total = sum(m["train/time"] for _, m in trial.reports)
    assert trial.reports[-1][1]["total/time"] == pytest.approx(total)


# An epoch asks 6 times: before each of 3 batches of training, and of 3 of testing.
@pytest.mark.parametrize("stop_after", [0, 2, 3, 4, 6, 7, 12])
def test_a_stop_is_obeyed_before_the_next_batch(stop_after: int) -> None:
    model, calls = linear(), list[object]()
    model.register_forward_hook(lambda *_: calls.append(1))
    trial = fitted(Recorded(stop_after=stop_after), model, epochs=5)
    assert len(calls) == stop_after
    assert len(trial.reports) == stop_after // 6


def test_a_loss_that_is_not_finite_ends_the_trial_as_diverged() -> None:
    trial = Recorded()
    with pytest.raises(Diverged, match=r"(train|test)/loss is (nan|inf)\b.*max_learning_rate"):
        fitted(trial, epochs=200, max_learning_rate=1e6, weight_decay=1)
    assert len(trial.reports) < 199


@pytest.mark.parametrize("end", ["low", "high"])
@pytest.mark.parametrize("trainer", BUILT_IN)
def test_the_loop_takes_what_a_sweep_file_may_say(trainer, end) -> None:
    names = "momentum", "max_learning_rate", "weight_decay"
    ends = {name: getattr(BUILT_IN[trainer].params[name], end) for name in names}
    fitted(Recorded(stop_after=0), **ends)


def figures(trial: Recorded) -> list[tuple[int, dict[str, float]]]:
    return [
        (step, {n: v for n, v in metrics.items() if not n.endswith("time")})
        for step, metrics in trial.reports
    ]


# An epoch asks 6 times, so these stops are in training, in a test, and between epochs.
@pytest.mark.parametrize("stops", [[1], [4], [6], [8], [13, 7], [17, 3, 5], [1, 1, 7, 1]])
def test_a_training_that_was_stopped_goes_on_to_the_same_figures(tmp_path, stops) -> None:
    straight, last = dropping(), dropping()
    torch.manual_seed(8)
    whole = fitted(Recorded(), straight, epochs=4)
    parts = Recorded(checkpoint_dir=tmp_path)
    torch.manual_seed(8)
    for stop in stops:
        parts.asked, parts.stop_after = 0, stop
        model = dropping()
        torch.manual_seed(8)  # as each attempt of a trial does
        fitted(parts, model, epochs=4)
    parts.stop_after = 10**9
    torch.manual_seed(8)
    fitted(parts, last, epochs=4)
    assert figures(parts) == figures(whole)
    for one, other in zip(last.parameters(), straight.parameters(), strict=True):
        assert torch.equal(one, other)
    assert parts.reports[-1][1]["total/time"] == pytest.approx(
        sum(m["train/time"] for _, m in parts.reports)
    )


def test_a_stop_during_a_test_discards_no_training(tmp_path) -> None:
    whole, parts = Recorded(), Recorded(checkpoint_dir=tmp_path, stop_after=4)
    fitted(whole, dropping(), epochs=1)
    fitted(parts, dropping(), epochs=1)
    assert not parts.reports
    parts.asked, parts.stop_after = 0, 3  # the three batches of the test
    fitted(parts, dropping(), epochs=1)
    assert figures(parts) == figures(whole)


def test_a_training_that_was_killed_goes_on_from_the_end_of_an_epoch(tmp_path) -> None:
    class Killed(Recorded):
        def report(self, metrics: Mapping[str, float], step: int) -> None:
            super().report(metrics, step)
            if step == 3:
                raise KeyboardInterrupt

    whole, resumed = Recorded(), Recorded(checkpoint_dir=tmp_path)
    fitted(whole, dropping(), epochs=4)
    with pytest.raises(KeyboardInterrupt):
        fitted(Killed(checkpoint_dir=tmp_path, checkpoint_s=0), dropping(), epochs=4)
    torch.manual_seed(17)  # another process
    fitted(resumed, dropping(), epochs=4)
    assert figures(resumed) == figures(whole)[2:]


def test_a_checkpoint_that_cannot_be_written_costs_one_line_with_the_reason(tmp_path, capsys):
    (tmp_path / "training.tmp").symlink_to("/dev/full")
    trial = fitted(Recorded(checkpoint_dir=tmp_path, checkpoint_s=0.0), epochs=1)
    (line,) = capsys.readouterr().err.splitlines()
    assert "No space left" in line and len(trial.reports) == 1
    assert not list(tmp_path.iterdir())


def assert_resumed_after_1(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    """Assert that the one line that was printed names epoch 1 and the checkpoint."""
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("hpq: ") and "epoch 1," in line and str(path) in line


def resumed(trial: Recorded, **changes: Any) -> Recorded:
    return fitted(trial, dropping(), changes.pop("train", None) or shuffled(), **changes)


def test_a_trial_that_goes_on_says_from_where(tmp_path, capsys) -> None:
    every = Recorded(checkpoint_dir=tmp_path, checkpoint_s=0.0)
    resumed(replace(every, stop_after=7))
    assert capsys.readouterr().out == ""
    resumed(every)
    assert_resumed_after_1(capsys, tmp_path / "training.pt")


def test_a_checkpoint_is_saved_when_its_time_has_come_and_not_in_a_short_trial(tmp_path) -> None:
    resumed(Recorded(checkpoint_dir=tmp_path), epochs=3)
    assert not any(tmp_path.iterdir())
    resumed(Recorded(checkpoint_dir=tmp_path, checkpoint_s=0.0), epochs=3)
    (saved,) = tmp_path.iterdir()
    assert torch.load(saved, weights_only=True)["epoch"] == 3


def _with(part: str, value: object) -> Callable[[Path], object]:
    def harm(path: Path) -> None:
        state = torch.load(path, weights_only=True)
        torch.save({**state, part: value}, path)

    return harm


def _short(path: Path) -> None:
    state = torch.load(path, weights_only=True)
    state["velocity"].pop()
    torch.save(state, path)


def _wrong_weight(path: Path) -> None:
    state = torch.load(path, weights_only=True)
    state["model"]["3.bias"] = torch.zeros(3)
    torch.save(state, path)


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.write_bytes(path.read_bytes()[:500]),
        lambda path: path.write_bytes(b"junk\n" * 100),
        lambda path: torch.save({"model": Runs(path.with_name("ran"))}, path),
        _wrong_weight,
        _short,
        _with("order", torch.zeros(3, dtype=torch.uint8)),
        _with("order", None),
        _with("epoch", 99),
        _with("epoch", 1.5),
        _with("random", [torch.zeros(3)]),
        _with("random", []),
        _with("params", None),
    ],
)
def test_a_checkpoint_with_one_wrong_part_is_said_and_changes_nothing(
    tmp_path, capsys, harm
) -> None:
    whole, harmed = resumed(Recorded()), Recorded(checkpoint_dir=tmp_path)
    resumed(Recorded(checkpoint_dir=tmp_path, stop_after=7))
    harm(tmp_path / "training.pt")
    capsys.readouterr()
    assert figures(resumed(harmed)) == figures(whole)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("hpq: ") and "training starts again" in line
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("changes", "said", "also"),
    [
        ({"epochs": 3, "momentum": 0.5}, "'epochs': 2", "'momentum': 0.9"),
        ({"seed": 5}, "training with", "'seed': 4"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_in_words(tmp_path, capsys, changes, said, also):
    resumed(Recorded(checkpoint_dir=tmp_path, stop_after=7))
    whole = resumed(Recorded(), **changes)
    other = resumed(Recorded(checkpoint_dir=tmp_path), **changes)
    assert figures(other) == figures(whole)
    (line,) = capsys.readouterr().out.splitlines()
    assert said in line and also in line and "weight_decay" not in line


def test_a_loss_that_is_no_number_at_a_test_diverges() -> None:
    given = split()
    test = Batches(Split(images=given.images * math.nan, labels=given.labels), torch.Tensor.double)
    with pytest.raises(Diverged, match=r"^epoch 1: test/loss is nan"):
        fitted(Recorded(), test=test, epochs=1)
