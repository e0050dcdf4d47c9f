"""What the end of an attempt means, and what a trial that never reported its metric is told."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import pytest

from hpq.domain.constraint import Constraint
from hpq.domain.sweep import EarlyTerminate, Launch, Metric, SweepView, TerminationRule
from hpq.domain.trial import Checkpoint, Failure, FailureKind, TrialState
from hpq_worker.attempt.outcome import outcome_of
from hpq_worker.lease.report_buffer import ReportBuffer
from hpq_worker.process.protocol import AttemptEnd, Halt

METRIC = Metric(name="val_loss")


def _failure(
    tail: str,
    launch: Launch,
    *,
    reports: bool = False,
    reported: str = "",
    method: str = "grid",
    early: EarlyTerminate | None = None,
    in_terminal: bool = False,
) -> Failure:
    sweep = SweepView(
        id="s-00000",
        name="s",
        digest="",
        launch=launch,
        metric=METRIC,
        method=method,
        early=early,
    )
    got = ReportBuffer(METRIC)
    if reported:
        got.report({reported: 0.5}, None)
    end = AttemptEnd(tail=tail, reports=reports, in_terminal=in_terminal)
    outcome = outcome_of(end, sweep, got)
    assert outcome is not None and outcome.failure is not None and outcome.objective is None
    is_needed = method == "bayes" or early is not None
    assert outcome.state is (TrialState.FAILED if is_needed else TrialState.FINISHED)
    return outcome.failure


EARLY = EarlyTerminate(rule=TerminationRule.HYPERBAND, bands=(3,))


@pytest.mark.parametrize(("method", "early"), [("grid", EARLY), ("bayes", None), ("random", None)])
def test_only_a_search_that_needs_the_metric_fails_a_trial_without_it(
    method: str, early: EarlyTerminate | None
) -> None:
    failure = _failure("", Launch(program="train.py"), method=method, early=early)
    assert failure.kind is FailureKind.UNREPORTED and "val_loss" in failure.message


@pytest.mark.parametrize(
    ("line", "is_near"),
    [
        ("Epoch 1 val_loss = about 0.3", True),
        ("val_loss tensor(0.3)", True),
        ("epoch 3 val-loss 0.3", True),
        ("best val_loss 0.3", False),
        ("val_loss is not known yet", False),
        ("loss=0.3", False),
    ],
)
def test_a_program_that_nearly_reported_is_shown_its_line(line: str, is_near: bool) -> None:
    failure = _failure(f"hello\n{line}\nbye\n", Launch(program="train.py"))
    assert failure.kind is FailureKind.UNREPORTED
    assert "val_loss=0.31" in failure.message and "hpq.report" in failure.message
    assert (repr(line) in failure.message) == is_near
    # The breaker knows trials that fail alike by this; the line differs from trial to trial.
    assert failure.fingerprint and line not in failure.fingerprint


def test_a_trainer_is_told_its_own_ways_to_report() -> None:
    failure = _failure("", Launch(trainer="mine:train"))
    assert failure.kind is FailureKind.UNREPORTED and "trial.report" in failure.message


def test_a_script_that_reports_is_told_to_log_and_not_that_its_line_is_none() -> None:
    failure = _failure("val_loss=0.3\n", Launch(program="train.py"), reports=True)
    assert failure.kind is FailureKind.UNREPORTED and "wandb.log" in failure.message
    assert "val_loss=0.3" not in failure.message


@pytest.mark.parametrize(
    ("python", "named"),
    [
        (sys.executable, [f"{sys.executable} -m pip install ", "HPQ_PYTHON"]),
        ("/other/python3", ["/other/python3 -m pip install ", sys.executable, "HPQ_PYTHON"]),
        ("/a b/python3", ["'/a b/python3' -m pip install ", "HPQ_PYTHON"]),
        ("/some/tool", []),
    ],
)
def test_a_missing_module_is_told_with_whose_python_it_was_and_the_way_to_another(
    python: str, named: list[str]
) -> None:
    end = AttemptEnd(
        status=1,
        tail="ModuleNotFoundError: No module named 'torch'\n",
        argv=("/usr/bin/env", python, "train.py"),
    )
    sweep = SweepView(id="s-00000", name="s", digest="", launch=Launch(program="train.py"))
    outcome = outcome_of(end, sweep, ReportBuffer(None))
    assert outcome is not None and outcome.failure is not None
    said = outcome.failure.message
    assert "ModuleNotFoundError" in said and "'torch'" in said
    assert all(name in said for name in named) and ("HPQ_PYTHON" in said) == bool(named)
    assert "start workers" not in said, "users of hpq run start none"


def test_a_name_that_is_close_to_the_metrics_is_named() -> None:
    for launch in (Launch(program="train.py"), Launch(trainer="mine:train")):
        failure = _failure("", launch, reports=bool(launch.program), reported="valid_loss")
        assert failure.kind is FailureKind.UNREPORTED
        assert "'valid_loss'" in failure.message and "--reuse" in failure.message


def test_results_can_be_reused_except_those_of_hpq_try_which_stores_none() -> None:
    launch = Launch(program="train.py")
    stored = _failure("", launch, reported="valid_loss").message
    tried = _failure("", launch, reported="valid_loss", in_terminal=True).message
    assert stored.startswith(tried) and "--reuse" in stored and "--reuse" not in tried
    assert "hpq run" in stored and "hpq enqueue" in stored


def test_a_name_of_another_metric_is_listed_and_not_proposed() -> None:
    failure = _failure("", Launch(program="train.py"), reported="train_loss")
    assert "reported train_loss;" in failure.message and "did you mean" not in failure.message
    assert "val_loss=0.31" in failure.message


@pytest.mark.parametrize(
    ("end", "state"),
    [(AttemptEnd(), "finished"), (AttemptEnd(stopped=True), "pruned"),
     (AttemptEnd(status=143), "pruned"), (AttemptEnd(has_last_message=False), "pruned")],
)  # fmt: skip
def test_what_was_told_to_stop_is_pruned_unless_it_came_to_its_end(
    end: AttemptEnd, state: str
) -> None:
    got = ReportBuffer(METRIC)
    got.report({"val_loss": 0.5}, None)
    sweep = SweepView(
        id="s-00000", name="s", digest="", launch=Launch(trainer="digits"), metric=METRIC
    )
    outcome = outcome_of(replace(end, halt=Halt.PRUNED), sweep, got)
    assert outcome is not None and (outcome.state.value, outcome.objective) == (state, 0.5)


SEVERAL = SweepView(
    id="s-00000", name="s", digest="", launch=Launch(program="train.py"), metric=METRIC,
    method="bayes", objectives=(METRIC, Metric(name="ms")),
    constraints=(Constraint.parse("gb <= 24"),),
)  # fmt: skip


@pytest.mark.parametrize(
    ("reported", "ends", "values", "violations", "infeasible"),
    [
        ({"val_loss": 0.5, "ms": 7.0, "gb": 16.0}, "finished", (0.5, 7.0), (-8.0,), False),
        ({"val_loss": 0.5, "ms": 7.0, "gb": 32.0}, "finished", (0.5, 7.0), (8.0,), True),
        ({"val_loss": 0.5, "gb": 16.0}, "unreported", (), (-8.0,), False),
        ({"val_loss": 0.5, "ms": 7.0}, "unreported", (0.5, 7.0), (), True),
        ({"val_loss": 0.5, "ms": math.inf, "gb": 16.0}, "diverged", (), (-8.0,), False),
        ({"val_loss": 0.5, "ms": 7.0, "gb": math.nan}, "diverged", (0.5, 7.0), (), True),
        ({}, "unreported", (), (), True),
    ],
)
def test_a_result_has_a_value_of_each_metric_and_meets_constraints(
    reported, ends, values, violations, infeasible
) -> None:
    """B6: a metric of a constraint is needed as any metric of the sweep."""
    got = ReportBuffer(METRIC, SEVERAL.further_metrics)
    got.report(reported, None)
    outcome = outcome_of(AttemptEnd(), SEVERAL, got)
    assert outcome is not None
    kind = outcome.failure.kind.value if outcome.failure else outcome.state.value
    scores = (outcome.values, outcome.violations, outcome.infeasible)
    assert (kind, *scores) == (ends, values, violations, infeasible)
    assert (outcome.objective is None) == (not values)
    lacking = [name for name in ("val_loss", "ms", "gb") if name not in reported]
    if kind == "unreported":
        assert outcome.failure is not None and repr(lacking[0]) in outcome.failure.message


def test_a_trial_that_reported_another_metric_is_told_where_its_name_is_written() -> None:
    sweep = SweepView(
        id="s-00000", name="s", digest="", launch=Launch(program="train.py"), metric=METRIC
    )
    told = {}
    for names in ((), ("accuracy",)):
        got = ReportBuffer(METRIC)
        got.report(dict.fromkeys(names, 0.5), None)
        outcome = outcome_of(AttemptEnd(), sweep, got)
        assert outcome is not None and outcome.failure is not None
        told[names] = outcome.failure.message
    assert "metric.name" in told["accuracy",] and "hpq run FILE --reuse" in told["accuracy",]
    assert "metric.name" not in told[()]


@pytest.mark.parametrize(
    ("own", "kind"),
    [({}, "unreported"), ({"acc": 0.5}, "unreported"), ({"val_loss": math.nan}, "diverged"),
     ({"val_loss": 0.5}, "")],
)  # fmt: skip
def test_what_the_trial_of_the_start_reported_is_no_report_of_a_continued_trial(
    own: dict[str, float], kind: str
) -> None:
    sweep = SweepView(
        id="s-00000", name="s", digest="", launch=Launch(program="train.py"), metric=METRIC
    )
    start = Checkpoint(store="", path="checkpoint", step=5, counts={"val_loss": 5, "acc": 5})
    got = ReportBuffer(METRIC)
    got.resume(start, start)
    if own:
        got.report(own, 6)
    outcome = outcome_of(AttemptEnd(), sweep, got)
    assert outcome is not None
    assert (outcome.failure.kind if outcome.failure else "") == kind
    assert ("after step 5" in (outcome.failure.message if outcome.failure else "")) == (not own)


def test_a_continued_trial_that_diverged_and_was_resumed_from_its_own_checkpoint_has_diverged() -> (
    None
):
    sweep = SweepView(
        id="s-00000", name="s", digest="", launch=Launch(program="train.py"), metric=METRIC
    )
    start = Checkpoint(store="", path="start", step=5, counts={"val_loss": 5})
    got = ReportBuffer(METRIC)
    got.resume(replace(start, path="own", step=6, counts={"val_loss": 6}), start)
    outcome = outcome_of(AttemptEnd(), sweep, got)
    assert outcome is not None and outcome.failure is not None
    assert outcome.failure.kind is FailureKind.DIVERGED
