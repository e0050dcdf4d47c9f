"""TOST of pairs of runs, beside SciPy, and the power that the page states."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("scipy")

from scipy import integrate, stats

from benchmarks.equivalence import MARGIN, PAIRS, compare, interval
from tests.support.constants import ROOT

PAGE = (ROOT / "docs" / "results" / "benchmarks.md").read_text("utf-8")
VALUES = [0.0, 0.1, -0.1, 0.2, 0.05, -0.02]


def found_equal(deviation: float, pairs: int) -> float:
    """The probability that pairs of equal, independent runs are found equal.

    Their mean is normal; the measured deviation, a multiple of the true one, has a chi
    distribution, over which this integrates.
    """
    freedom = pairs - 1
    error = deviation * math.sqrt(2 / pairs)
    t = stats.t.ppf(0.95, freedom)

    def inside(ratio: float) -> float:
        room = max(0.0, MARGIN / error - t * ratio)
        scaled = ratio * math.sqrt(freedom)
        return (2 * stats.norm.cdf(room) - 1) * stats.chi.pdf(scaled, freedom) * math.sqrt(freedom)

    return integrate.quad(inside, 0, MARGIN / error / t)[0]


def test_an_interval_is_that_of_a_t_test_at_ten_percent() -> None:
    for values in (VALUES, [0.01 * (n % 5 - 2) for n in range(PAIRS)]):
        expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.9)
        assert interval(values) == pytest.approx(tuple(expected), abs=1e-4)


@pytest.mark.parametrize(
    ("shift", "scale", "verdict"),
    [
        (0.0, 0.1, "equal"),
        (0.095, 0.1, "undecided"),  # near the margin
        (0.0, 2.0, "undecided"),  # noise
        (0.3, 0.1, "different"),
        (-0.3, 0.1, "different"),
    ],
)
def test_the_verdict_is_that_of_two_one_sided_tests_at_five_percent(
    shift: float, scale: float, verdict: str
) -> None:
    theirs = [90.0 + 0.1 * (n % 3) for n in range(len(VALUES))]
    ours = [a + shift + scale * b for a, b in zip(theirs, VALUES, strict=True)]
    found = compare(ours, theirs)
    lower = stats.ttest_rel(ours, [x - MARGIN for x in theirs], alternative="greater").pvalue
    upper = stats.ttest_rel(ours, [x + MARGIN for x in theirs], alternative="less").pvalue
    assert found["verdict"] == verdict
    assert (found["verdict"] == "equal") == (max(lower, upper) < 0.05)
    assert found["difference"] == pytest.approx(shift + scale * sum(VALUES) / len(VALUES))
    assert found["published_deviation"] == pytest.approx(0.0894, abs=1e-4)


@pytest.mark.parametrize(
    ("percent", "deviation"), [(86, "0.10"), (77, "0.11"), (35, "0.15"), (13, "0.18")]
)
def test_the_page_states_the_power_of_the_planned_pairs(percent: int, deviation: str) -> None:
    assert round(100 * found_equal(float(deviation), PAIRS)) == percent
    assert f"{percent} % at {deviation}" in " ".join(PAGE.split())
    assert f"{PAIRS} pairs" in PAGE
