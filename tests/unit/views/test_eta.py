"""What is left of a sweep: right in the middle, honest about the range."""

from __future__ import annotations

import heapq
import random

import pytest

from hpq.domain.status import DurationStats
from hpq_views.analysis.eta import TimeLeft, sweep_eta, trial_left_ms


def _halfway(trials: int, slots: int, spread: float, seed: int) -> tuple[float, TimeLeft | None]:
    """Simulates a sweep of trials of about a minute and asks for its estimate halfway."""
    draw = random.Random(seed)
    free, runs = [0.0] * slots, []
    for _ in range(trials):
        start = heapq.heappop(free)
        end = start + max(1_000.0, draw.gauss(60_000, 60_000 * spread))
        runs.append((start, end))
        heapq.heappush(free, end)
    now, over = max(free) / 2, max(free)
    ended = [end - start for start, end in runs if end <= now]
    durations = DurationStats.of_sums(len(ended), sum(ended), sum(d * d for d in ended))
    ages = [now - start for start, end in runs if start <= now < end]
    queued = sum(start > now for start, _ in runs)
    return over - now, sweep_eta(durations, queued, ages, slots)


@pytest.mark.parametrize(("trials", "slots"), [(16, 2), (100, 4), (100, 16), (1000, 8)])
@pytest.mark.parametrize("spread", [0.05, 0.3])
def test_the_estimate_halfway_is_near_and_its_range_holds_mostly(
    trials: int, slots: int, spread: float
) -> None:
    inside, ratio = 0, 0.0
    for seed in range(100):
        left, estimate = _halfway(trials, slots, spread, seed)
        assert estimate is not None
        inside += estimate.low_ms <= left <= estimate.high_ms
        ratio += estimate.left_ms / left / 100
    assert 0.9 < ratio < 1.15
    assert inside >= 60


def test_nothing_is_promised_before_a_trial_has_ended() -> None:
    assert sweep_eta(DurationStats(), queued=5, ages_ms=[1000], slots=2) is None


def test_nothing_is_promised_where_nobody_works() -> None:
    assert sweep_eta(DurationStats(ended=3, mean_ms=1000), queued=5, ages_ms=[], slots=0) is None


def test_more_workers_mean_less_time() -> None:
    durations = DurationStats(ended=10, mean_ms=60_000, sd_ms=1_000)
    few, many = (sweep_eta(durations, 100, [30_000.0] * n, n) for n in (2, 20))
    assert few and many and few.left_ms > 5 * many.left_ms


@pytest.mark.parametrize(
    ("low", "middle", "high", "shown"),
    [
        (120_000, 180_000, 240_000, "about 3m (2–4m)"),
        (50_000, 80_000, 150_000, "about 1m20s (50s–2m)"),
        (63_000, 73_000, 86_000, "about 1m13s (1m03s–1m26s)"),
        (30_000, 40_000, 70_000, "about 40s (30s–1m10s)"),
        (12_000, 20_000, 28_000, "about 20s (12–28s)"),
        (3_000, 3_000, 3_000, "about 3s"),
        (5.4e6, 7.2e6, 9e6, "about 2h (1.5–2.5h)"),
        (0, 100, 900, "about 1s"),
    ],
)
def test_an_estimate_reads_as_a_person_says_it(
    low: float, middle: float, high: float, shown: str
) -> None:
    assert str(TimeLeft(left_ms=middle, low_ms=low, high_ms=high)) == shown


def test_a_trial_goes_by_its_own_pace_the_further_it_is() -> None:
    assert trial_left_ms(20_000, step=10, last_step=10, mean_ms=60_000) == 0
    nearly = trial_left_ms(90_000, step=9, last_step=10, mean_ms=60_000)
    assert nearly == pytest.approx(10_000)  # late for the mean, but its steps tell


def test_without_steps_the_mean_decides_until_it_is_passed() -> None:
    assert trial_left_ms(20_000, 0, None, 60_000) == 40_000
    assert trial_left_ms(70_000, 0, None, 60_000) is None
