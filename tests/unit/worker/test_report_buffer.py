"""Reports and printed lines between two heartbeats."""

from __future__ import annotations

import pytest

from hpq.domain.sweep import Goal, Metric, ObjectiveValue
from hpq_worker.attempt.printed_metrics import PrintedMetrics
from hpq_worker.lease.report_buffer import ReportBuffer


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("val_loss=0.5", ("val_loss", 0.5)),
        ("  val/loss = 1e-3 ", ("val/loss", 1e-3)),
        ("acc=-.5", ("acc", -0.5)),
        ("loss=nan", ("loss", None)),
        ("lr=0.1", None),
        ("epoch 3: loss=0.5 acc=0.2", None),
        ("x=1.2.3", None),
        ("x=1 2", None),
        ("=3", None),
        ("url=http://1", None),
    ],
)
def test_a_whole_printed_line_is_a_metric_unless_it_names_a_parameter(
    line: str, expected: tuple[str, float | None] | None
) -> None:
    found = PrintedMetrics(None, {"lr": 0.1}).parse(line)
    if expected is None or found is None:
        assert found == expected
    elif expected[1] is None:
        assert found[0] == expected[0] and found[1] != found[1]
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Epoch 8/8: 10 s - loss: 0.2 - val_loss: 0.13", ("val_loss", 0.13)),
        ("train_loss=0.12 val_loss=0.05", ("val_loss", 0.05)),
        ("epoch 3 val_loss=0.5", ("val_loss", 0.5)),
        ("{'eval': 1, 'val_loss': 0.5}", ("val_loss", 0.5)),
        ("val_loss: 0.4, then val_loss: 0.3.", ("val_loss", 0.3)),  # the last one
        ("val_loss: 0.9\rval_loss: 0.5\r 2/2 - val_loss: 0.25\r", ("val_loss", 0.25)),
        ("val_loss: nan", ("val_loss", None)),
        ("Val-Loss: 0.5", ("Val-Loss", 0.5)),  # a near miss is another metric
        ("epoch 3: validation loss=0.5", ("validation loss", 0.5)),
        ("epoch 3: loss=0.5 acc=0.2", None),
        ("train_val_loss: 0.5", None),
        ("best val_loss: 0.5", None),
        ("val_loss: 3/10", None),
        ("val_loss: 10:30", None),
        ("val_loss: 2026-11-22", None),
        ("val_loss: 12s", None),
        ("val_loss is 0.5", None),
        ("val_loss: information", None),
        ("[rank1]: epoch 3 val_loss=0.5", None),
        ("epoch 3 loss=0.5 of val_loss", None),
    ],
)
def test_the_declared_metric_counts_anywhere_on_a_line(
    line: str, expected: tuple[str, float | None] | None
) -> None:
    found = PrintedMetrics(Metric(name="val_loss"), {}).parse(line)
    if expected is not None and found is not None and expected[1] is None:
        assert found[0] == expected[0] and found[1] != found[1]
    else:
        assert found == expected


def test_a_qualified_name_a_parameter_and_text_beside_whole_lines_report_nothing() -> None:
    assert PrintedMetrics(Metric(name="loss"), {}).parse("train loss: 0.5 val loss: 0.3") is None
    assert PrintedMetrics(Metric(name="loss"), {"loss": 1}).parse("with loss=1 now") is None
    assert PrintedMetrics(Metric(name="Loss"), {"loss": 1}).parse("with loss=1 now") is None
    printed = PrintedMetrics(Metric(name="loss"), {})
    lines = ("step 1 loss=0.9", "loss=0.5", "step 2 loss=0.8", "loss=0.4")
    assert [found and found[1] for found in map(printed.parse, lines)] == [0.9, 0.5, None, 0.4]


def test_steps_are_counted_for_each_metric_where_none_is_given() -> None:
    collector = ReportBuffer(None)
    for _ in range(2):
        collector.report({"a": 1.0}, None)
    collector.report({"b": 2.0}, None)
    assert [(p.name, p.step) for p in collector.batch().points] == [("a", 1), ("a", 2), ("b", 1)]


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


def test_the_fifty_first_metric_is_dropped() -> None:
    collector = ReportBuffer(None)
    collector.report({f"m{i}": 1.0 for i in range(60)}, 1)
    assert len(collector.names) == 50


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
