"""When silence is a stall."""

from __future__ import annotations

import pytest

from hpq_worker.runner.stall import StallDetector


def rhythm(*gaps: float, stall_s: float = 0.0) -> StallDetector:
    now, it = 0.0, StallDetector(stall_s, 0.0)
    for gap in gaps:
        now += gap
        it.active(now)
    return it


@pytest.mark.parametrize(
    ("gaps", "limit_s"),
    [
        ((), 900.0),
        ((1.0, 2.0, 3.0), 900.0),
        ((100.0, 120.0, 110.0), 1100.0),
        ((600.0, *[0.01] * 50, 600.0), 6000.0),  # a burst of lines is one movement
    ],
)
def test_the_limit_is_a_quarter_of_an_hour_or_ten_usual_gaps(gaps, limit_s) -> None:
    assert rhythm(*gaps).limit_s == pytest.approx(limit_s)


def test_the_sweeps_own_limit_counts_alone() -> None:
    it = rhythm(500.0, 500.0, stall_s=30.0)
    assert it.limit_s == 30.0 and it.stalled_at == 1030.0
