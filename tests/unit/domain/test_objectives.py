"""Several metrics and constraints: bounds, comparability, and what Redis holds of them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from hpq.domain.constraint import Constraint
from hpq.domain.sweep import (
    Goal,
    Launch,
    Metric,
    SweepView,
    is_same_goal,
)
from hpq.errors import DecodeError
from hpq.store.wire.sweep import decode_sweep, encode_sweep
from hpq_producer.sweepfile.load import load

ACC, MS = Metric(name="acc", goal=Goal.MAXIMIZE), Metric(name="ms")
PLAIN = SweepView(id="s", name="s", digest="d", launch=Launch(), metric=ACC)
BOUND = tuple(map(Constraint.parse, ("gb <= 24", '"val acc" >= -.5e1')))
WEIGHED = replace(PLAIN, objectives=(ACC, MS), constraints=BOUND)


def read_back(sweep: SweepView, **edits: str) -> SweepView:
    row = encode_sweep(sweep) | {"state": "open"} | edits
    return decode_sweep("key", "s", {k.encode(): v.encode() for k, v in row.items()}, 0, 0, 0)


@pytest.mark.parametrize(
    ("text", "value", "violation"),
    [
        ("a <= 24", 25.5, 1.5),
        ("a<=24", 24.0, 0.0),
        ("a >= 0.5", 0.75, -0.25),
        ("a >= 0.5", math.inf, -math.inf),
        ("a <= 1", math.inf, math.inf),
        ("a <= 1", math.nan, math.inf),
        ("b <= 1", 0.0, math.inf),
    ],
)
def test_a_violation_is_how_far_the_bound_is_exceeded(text, value, violation) -> None:
    sweep = replace(PLAIN, constraints=(Constraint.parse(text),))
    assert sweep.violations({"a": value}) == (violation,)
    assert sweep.is_feasible({"a": value}) == (violation <= 0)


@pytest.mark.parametrize("text", ["gb <= 24", '"val acc" >= -5.0', "t/ms@p99 <= 1e+90"])
def test_a_constraint_is_written_as_it_is_read(text: str) -> None:
    again = Constraint.parse(str(Constraint.parse(text)))
    assert again == Constraint.parse(text) and (" " in again.metric) == ('"' in text)


def test_redis_returns_metrics_and_constraints_as_they_were() -> None:
    assert read_back(WEIGHED) == WEIGHED
    for field in ("objectives", "constraints"):
        with pytest.raises(DecodeError):
            read_back(WEIGHED, **{field: '["a < 1"]'})


def test_a_sweep_of_one_metric_has_no_field_of_several() -> None:
    idle = replace(PLAIN, idle_s=60.0, idle_below=10.0)
    assert read_back(idle) == idle
    assert not {"objectives", "constraints", "idle_s"} & encode_sweep(PLAIN).keys()


def test_trials_of_other_metrics_or_constraints_are_not_ranked_together() -> None:
    assert is_same_goal(WEIGHED, replace(WEIGHED, id="t"))
    for other in (
        replace(WEIGHED, objectives=(ACC, replace(MS, goal=Goal.MAXIMIZE))),
        replace(WEIGHED, objectives=()),
        replace(WEIGHED, constraints=BOUND[:1]),
    ):
        assert not is_same_goal(WEIGHED, other)


def test_early_termination_compares_by_the_metric_that_it_names(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "program: t.py\nmethod: grid\nparameters: {a: {value: 1}}\n"
        "metrics: [{name: acc, goal: maximize}, {name: ms}]\n"
        "early_terminate: {type: asha, metric: ms}\n"
    )
    spec = load(file)
    assert spec.metric == MS and spec.objectives == (MS, ACC)
