"""A metric that is misspelled in the sweep file is reported while its first trial runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpq.domain.metric_spelling import metric_warning, near_miss
from hpq.domain.sweep import Metric
from hpq.domain.trial import Failure, FailureKind, TrialState, TrialView
from hpq_views.analysis.trial_row import TrialRow
from hpq_views.command_output.show import sweep_lines, trial_lines
from hpq_views.text.style import plain
from hpq_worker.lease.report_buffer import ReportBuffer
from tests.support.views import sweep_view, trial_view

SWEEP = sweep_view(metric=Metric(name="val_loss"))


def _trial(step: int, **metrics: float) -> TrialView:
    names = {name.replace("__", "/"): value for name, value in metrics.items()}
    return trial_view(state=TrialState.RUNNING, step=step, metrics=names)


def test_only_a_near_miss_of_the_metric_is_warned_of_while_the_trial_runs() -> None:
    near = _trial(5, train__loss=0.5, Val__Loss=0.3)
    warning = metric_warning(SWEEP, [near])
    assert warning.startswith("#1 ") and " val_loss " in warning and "train/loss" not in warning
    assert "'Val/Loss' as metric.name" in warning
    assert not metric_warning(SWEEP, [_trial(4, Val__Loss=0.3)]), "too few reports"
    assert not metric_warning(SWEEP, [_trial(1000, train__loss=0.3, lr=0.1)]), (
        "the metric may come at the end of the epoch"
    )
    assert not metric_warning(SWEEP, [near, _trial(1, val_loss=0.2)]), (
        "another trial knows the name"
    )
    assert not metric_warning(SWEEP, [near], best=[near])
    lines = [plain(line) for line in trial_lines(TrialRow(trial=near, sweep=SWEEP), {}, {}, "")]
    assert any(line.startswith("!") and warning in line for line in lines)
    assert any(warning in plain(line) for line in sweep_lines(SWEEP, "no", unmet=warning))


@pytest.mark.parametrize(
    ("metric", "name", "is_near"),
    [
        ("val_loss", "val/loss", True),
        ("val_loss", "Val-Loss", True),
        ("val_loss", "validation.loss", True),
        ("valLoss", "val_loss", True),
        ("accuracy", "acc", True),
        ("val_acc", "validation/accuracy", True),
        ("val_accuracy", "val_acuracy", True),
        ("val/loss", "train/loss", False),
        ("val/loss", "test/loss", False),
        ("test/acc", "train/acc", False),
        ("loss", "val_loss", False),
        ("val_loss", "loss", False),
        ("val_loss", "value_loss", False),
        ("acc@1", "acc@5", False),
        ("acc@100", "acc@1000", False),
        ("rmse", "mse", False),
        ("auc", "acc", False),
        ("val_loss", "lr", False),
        ("@", "%", False),
    ],
)
def test_a_near_miss_is_another_spelling_of_the_same_metric(
    metric: str, name: str, is_near: bool
) -> None:
    assert (near_miss(metric, ["epoch", name]) == name) is is_near
    assert near_miss(metric, [name, metric]) == ""


def test_a_trial_that_finished_without_the_metric_is_warned_of() -> None:
    why = Failure(kind=FailureKind.UNREPORTED, message="the metric was never reported")
    over = replace(_trial(9, acc=0.5), state=TrialState.FINISHED, failure=why)
    assert metric_warning(SWEEP, [over]) == "#1: the metric was never reported"
    lines = [plain(line) for line in trial_lines(TrialRow(trial=over, sweep=SWEEP), {}, {}, "")]
    assert any("never reported" in line and line.startswith("!") for line in lines)
    assert not any(line.startswith("failed") for line in lines)
    for state in (TrialState.FAILED, TrialState.CANCELLED):
        assert not metric_warning(SWEEP, [replace(over, state=state)])


def test_a_worker_finds_a_near_miss_after_five_reports_unless_the_metric_is_among_them() -> None:
    near, right, other = (ReportBuffer(Metric(name="val_loss")) for _ in range(3))
    for _ in range(5):
        assert not near.near_miss
        near.report({"val/loss": 0.5}, None)
        right.report({"val/loss": 0.5, "val_loss": 1.0}, None)
        other.report({"train/loss": 0.5}, None)
    assert near.near_miss == "val/loss" and not right.near_miss and not other.near_miss
