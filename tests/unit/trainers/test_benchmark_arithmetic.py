"""The arithmetic of the GPU benchmark: operations, intervals and bounds."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks.figures import Figure
from benchmarks.gpu.arithmetic import _student, interval, training_flop
from benchmarks.gpu.sections import _difference

pytestmark = pytest.mark.torch


def test_a_training_of_the_articles_network_is_2_7_petaflop() -> None:
    assert 24 * 50_000 * training_flop(64) == pytest.approx(2.726e15, rel=1e-3)


def test_the_interval_of_two_means_is_welchs() -> None:
    # scipy.stats.ttest_ind(…, equal_var=False).confidence_interval(0.9)
    middle, half = interval([94.1, 94.3, 94.0, 94.2], [94.0, 94.2, 93.9])
    assert middle == pytest.approx(0.116667, abs=1e-5)
    assert half == pytest.approx(0.23368, rel=1e-3)  # of 5 degrees of freedom
    assert interval([10.0, 10.0], [10.0, 10.0]) == (0.0, 0.0)
    for freedom, quantile in ((1, 6.3138), (2, 2.9200), (3.5, 2.2224), (48, 1.6772)):
        assert _student(freedom) == pytest.approx(quantile, rel=1e-3)


def test_a_difference_whose_interval_leaves_its_bounds_is_marked() -> None:
    for ours, over in (([94.0, 94.05, 94.1], False), ([94.2, 94.25, 94.3], True)):
        row = _difference(ours, [94.0, 94.05, 94.1])
        assert isinstance(row, Figure) and row.is_over is over
