"""Which values a report takes as metrics."""

from __future__ import annotations

import pytest

from hpq.reporting import flatten


def test_nested_reports_are_joined_with_dots() -> None:
    assert flatten({"val": {"loss": 1, "acc": {"top1": 0.5}}, "n": True}) == {
        "val.loss": 1.0,
        "val.acc.top1": 0.5,
        "n": 1.0,
    }


@pytest.mark.parametrize("bad", [{"a": "x"}, {"": 1}, {"a\n": 1}, {"a": None}, {"x" * 65: 1}])
def test_what_is_no_metric_is_refused_by_name(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="metric"):
        flatten(bad)
