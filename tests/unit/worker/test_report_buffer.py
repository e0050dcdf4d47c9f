"""Reports and printed lines between two heartbeats."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpq.domain.sweep import Goal, Metric, ObjectiveValue
from hpq.domain.trial import Checkpoint
from hpq.reporting import MAX_NAMES
from hpq_worker.files.history_file import NAME, HistoryFile
from hpq_worker.lease.report_buffer import ReportBuffer


def test_steps_are_counted_for_each_metric_where_none_is_given() -> None:
    collector = ReportBuffer(None)
    for _ in range(2):
        collector.report({"a": 1.0}, None)
    collector.report({"b": 2.0}, None)
    assert [(p.name, p.step) for p in collector.batch().points] == [("a", 1), ("a", 2), ("b", 1)]


def test_a_trial_with_many_metrics_keeps_fewer_points_of_each_and_drops_names_beyond_300() -> None:
    reports = ReportBuffer(Metric(name="loss"))
    reports.report({f"m{n}": 0.5 for n in range(50)}, 1)
    assert reports.batch().curve_points == 1_000 and not reports.dropped
    reports.acknowledge(reports.batch())
    reports.report({f"m{n}": 0.5 for n in range(400)} | {"loss": 0.1}, 2)
    batch = reports.batch()
    assert reports.dropped == "m300" and reports.objective == 0.1
    assert len({p.name for p in batch.points}) == 301 and batch.curve_points * 301 <= 50_000


def test_a_batch_stays_the_same_until_it_is_acknowledged() -> None:
    collector = ReportBuffer(None)
    collector.report({"a": 1.0}, 1)
    first = collector.batch()
    collector.report({"a": 2.0}, 2)
    assert collector.batch() is first
    collector.acknowledge(collector.batch())
    assert [p.step for p in collector.batch().points] == [2] and collector.batch().seq == 2


def test_no_output_is_no_news() -> None:
    collector = ReportBuffer(None)
    collector.log(b"")
    assert collector.is_empty


def test_a_late_answer_to_an_older_batch_leaves_the_newer_one() -> None:
    collector = ReportBuffer(None)
    collector.report({"a": 1.0}, 1)
    first = collector.batch()
    collector.acknowledge(first)
    collector.report({"a": 2.0}, 2)
    second = collector.batch()
    collector.acknowledge(first)
    assert collector.batch() is second


@pytest.mark.parametrize(
    ("take", "expected"), [(ObjectiveValue.LAST, 0.7), (ObjectiveValue.BEST, 0.9)]
)
def test_the_objective_is_the_last_value_or_the_best(take: ObjectiveValue, expected: float) -> None:
    collector = ReportBuffer(Metric(name="acc", goal=Goal.MAXIMIZE, take=take))
    for value in (0.5, 0.9, 0.7):
        collector.report({"acc": value}, None)
    assert collector.objective == expected


def test_a_last_value_that_is_not_finite_is_no_objective() -> None:
    collector = ReportBuffer(Metric(name="loss"))
    collector.report({"loss": 1.0}, None)
    collector.report({"loss": float("nan")}, None)
    assert collector.objective is None


@pytest.mark.parametrize(
    ("most", "values", "is_diverged"),
    [
        (3, "nan nan nan", True), (3, "1 nan inf -inf", True), (3, "nan nan 1 nan nan", False),
        (1, "nan", True), (1, "nan 1", False), (0, "nan nan nan", False), (2, "1 2", False),
    ],
)  # fmt: skip
def test_as_many_values_in_a_row_as_the_file_says_that_are_not_finite_are_a_divergence(
    most: int, values: str, is_diverged: bool
) -> None:
    got = ReportBuffer(Metric(name="loss", terminate_on_nan=most), further=["acc"])
    for value in values.split():
        got.report({"acc": float("nan")}, None)  # counts for the objective alone
        got.report({"loss": float(value)}, 1)
    assert got.is_diverged is is_diverged


def test_a_checkpoint_says_how_many_finite_values_of_the_metric_it_has_behind_it() -> None:
    got = ReportBuffer(Metric(name="loss"))
    for value in (0.5, float("nan"), float("inf"), 0.25):
        got.report({"loss": value, "other": 1.0}, None)
    got.report({"loss": 0.25}, 4)  # at the step of the one before: it takes its place
    position = got.position()
    assert (position.logged, position.counts["loss"], position.best) == (2, 5, 0.25)
    again = ReportBuffer(Metric(name="loss"))
    again.resume(position)
    again.report({"loss": 0.1}, None)
    assert again.position().logged == 3


def test_a_batch_divides_no_report() -> None:
    buffer = ReportBuffer(None)
    for step in range(200):
        buffer.report(dict.fromkeys("abcdefg", 0.5), step)
    first = buffer.batch()
    assert len(first.points) == 994 and {p.step for p in first.points} == set(range(142))
    buffer.acknowledge(first)
    assert len(buffer.batch().points) == 406


def test_a_report_that_fills_a_batch_is_divided() -> None:
    buffer = ReportBuffer(None)
    for _ in range(1_500):
        buffer.report({"loss": 0.5}, 7)
    assert len(buffer.batch().points) == 1_000


def test_a_trial_that_reports_nothing_has_no_history_file(tmp_path: Path) -> None:
    history = HistoryFile(tmp_path / "out")
    assert history.add({}) == "" and not (tmp_path / "out" / NAME).exists()
    assert history.add({3: {"loss": 0.5}}) == ""
    assert (tmp_path / "out" / NAME).read_text().startswith('{"loss": 0.5, "_step": 3,')


def test_the_metrics_that_a_result_needs_are_kept_beyond_the_limit_and_over_a_resume() -> None:
    got = ReportBuffer(Metric(name="loss"), ["ms", "gb"])
    got.report({f"m{n}": 0.0 for n in range(MAX_NAMES)}, None)
    got.report({"loss": 1.0, "ms": 3.0, "gb": float("inf"), "x": 2.0}, None)
    assert got.dropped == "x" and got.lasts == {"loss": 1.0, "ms": 3.0, "gb": float("inf")}
    assert got.position().further == {"ms": 3.0}
    again = ReportBuffer(Metric(name="loss"), ["ms", "gb"])
    again.resume(got.position())
    assert again.lasts["ms"] == 3.0 and again.objective == 1.0


def test_a_resumed_trial_that_begins_again_keeps_what_it_reported_before_the_resume() -> None:
    reports = ReportBuffer(Metric(name="loss"))
    reports.resume(Checkpoint(store="s", path="p", step=3, last=0.5, best=0.5, counts={"loss": 3}))
    reports.report({"loss": 0.1, "only": 1.0}, 4)
    assert reports.begin_again("why")
    batch = reports.batch()
    assert (batch.restarted, batch.kept_step, batch.points) == ("why", 3, ())
    assert reports.objective == 0.5 and reports.names == ("loss",)


def test_the_history_of_a_trial_that_begins_again_has_what_it_resumed_and_the_new_rows(
    tmp_path: Path,
) -> None:
    (tmp_path / NAME).write_text('{"resumed": 1}\n')
    history, reports = HistoryFile(tmp_path), ReportBuffer(None)
    reports.keep, reports.forget = history.add, history.rewind
    reports.report({"a": 1.0}, 1)
    assert reports.begin_again("why") and not reports.begin_again("why")
    reports.report({"b": 2.0}, 1)
    resumed, new = (tmp_path / NAME).read_text().splitlines()
    assert resumed == '{"resumed": 1}' and new.startswith('{"b": 2.0,')
