"""A metric that is misspelt in the sweep file is noticed while its first trial runs."""

from __future__ import annotations

from dataclasses import replace

from hpq.domain.metric_check import metric_warning
from hpq.domain.sweep import Launch, Metric, Sweep
from hpq.domain.trial import Failure, FailureKind, TrialId, TrialState, TrialView
from hpq_producer.reports.show import sweep_lines, trial_lines
from hpq_producer.terminal.style import plain
from hpq_worker.lease.report_buffer import ReportBuffer

SWEEP = Sweep(id="s-00000", name="s", digest="", metric=Metric(name="val_loss"), launch=Launch())


def _trial(step: int, **metrics: float) -> TrialView:
    names = {name.replace("__", "/"): value for name, value in metrics.items()}
    trial = TrialId(sweep="s-00000", number=1)
    return TrialView(id=trial, state=TrialState.RUNNING, params={}, step=step, metrics=names)


def test_other_names_are_told_once_there_were_some_reports_and_the_right_one_ends_it() -> None:
    strange = _trial(5, loss__val=0.3, val__acc=0.5)
    said = metric_warning(SWEEP, [strange])
    assert said.startswith("#1 ") and " val_loss " in said and "loss/val, val/acc" in said
    assert not metric_warning(SWEEP, [_trial(4, loss__val=0.3)])
    near = metric_warning(SWEEP, [_trial(1, acc=0.5, Val__Loss=0.3)])
    assert "'Val/Loss' as metric.name" in near, "a near miss is reported at once"
    assert not metric_warning(SWEEP, [strange, _trial(1, val_loss=0.2)]), (
        "another trial knows the name"
    )
    assert not metric_warning(SWEEP, [strange], best=[strange])
    lines = [plain(line) for line in trial_lines(strange, SWEEP, {}, {}, "")]
    assert any(line.startswith("!") and said in line for line in lines)
    assert any(said in plain(line) for line in sweep_lines(SWEEP, "no", unmet=said))


def test_a_trial_that_finished_without_the_metric_is_warned_of() -> None:
    why = Failure(kind=FailureKind.UNREPORTED, message="the metric was never reported")
    over = replace(_trial(9, acc=0.5), state=TrialState.FINISHED, failure=why)
    assert metric_warning(SWEEP, [over]) == "#1: the metric was never reported"
    lines = [plain(line) for line in trial_lines(over, SWEEP, {}, {}, "")]
    assert any("never reported" in line and line.startswith("!") for line in lines)
    assert not any(line.startswith("failed") for line in lines)
    for state in (TrialState.FAILED, TrialState.CANCELLED):
        assert not metric_warning(SWEEP, [replace(over, state=state)])


def test_a_worker_hears_of_strange_names_after_five_reports_unless_the_metric_is_among_them() -> (
    None
):
    strange, right = ReportBuffer(Metric(name="val_loss")), ReportBuffer(Metric(name="val_loss"))
    for _ in range(5):
        assert not strange.unexpected_names
        strange.report({"loss/val": 0.5}, None)
        right.report({"loss/val": 0.5, "val_loss": 1.0}, None)
    assert strange.unexpected_names == ("loss/val",) and not right.unexpected_names
    strange.report({"valid_loss": 0.5}, None)
    near = ReportBuffer(Metric(name="val_loss"))
    near.report({"Val_Loss": 0.5}, None)
    assert near.unexpected_names == ("Val_Loss",), "a near miss is reported at once"
