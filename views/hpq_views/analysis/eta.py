"""Estimate the time left of a sweep or of one trial. Pure; times in milliseconds.

Each free slot starts the next trial, as workers do; that gives the estimate. The spread and the
number of the ended trials give its range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hpq.domain.status import DurationStats
from hpq_views.text.text import duration

_Z = 1.28  # an 80 % range
_MIN_SPREAD = 0.1  # of the mean: workers start and stop, machines are shared
_GUESSED_SPREAD = 0.4  # of the mean, while fewer than three trials have ended


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLeft:
    """The estimated time left, with its 80 % range."""

    left_ms: float
    low_ms: float
    high_ms: float

    def __str__(self) -> str:
        if self.high_ms < 1000:
            return "about 1s"
        low, middle, high = map(coarse_duration, (self.low_ms, self.left_ms, self.high_ms))
        if low == high:
            return f"about {middle}"
        if low[-1] == high[-1] and "m" not in high[:-1]:
            low = low[:-1]
        return f"about {middle} ({low}–{high})"


def sweep_eta(
    durations: DurationStats, queued: int, ages_ms: Sequence[float], slots: int
) -> TimeLeft | None:
    """Estimate the time left of a sweep with `queued` trials, and others running for `ages_ms`.

    None if no trial has ended yet or the sweep has no workers.
    """
    if durations.ended < 1 or (not ages_ms and not queued):
        return None
    slots = max(slots, len(ages_ms))
    if slots < 1:
        return None
    mean, spread = _uncensored(durations, ages_ms)
    # The rest of a trial that is beyond the mean is never 0.
    busy = [max(mean - age, min(spread, mean) / 2) for age in ages_ms]
    free = sorted(busy + [0.0] * (slots - len(busy)))
    each, more = divmod(queued, slots)
    shares = [each + 1] * more + [each] * (slots - more)
    middle = max(start + share * mean for start, share in zip(free, shares, strict=True))
    rounds = shares[0] + (1 if ages_ms else 0)
    used = min(slots, queued + len(ages_ms))
    slowest = spread * math.sqrt(2 * math.log(used)) if used > 1 else 0.0  # of the last round
    middle += slowest * (0.9 if rounds == 1 else 0.6)
    noise = spread * math.sqrt(rounds / used**0.3)
    doubt = rounds * spread / math.sqrt(durations.ended)
    reach = _Z * math.hypot(noise, doubt, _MIN_SPREAD * mean)
    return TimeLeft(left_ms=middle, low_ms=max(0.0, middle - reach), high_ms=middle + reach)


def _uncensored(durations: DurationStats, ages_ms: Sequence[float]) -> tuple[float, float]:
    """Return mean and spread of a trial, corrected for long trials that are still running."""
    mean = durations.mean_ms
    spread = (
        durations.sd_ms if durations.ended >= 3 else max(durations.sd_ms, _GUESSED_SPREAD * mean)
    )
    unseen = sum(ages_ms) / durations.ended
    share = min(1.0, durations.sd_ms / mean) if mean > 0 else 0.0  # 1: durations are exponential
    late = share * share * unseen
    return mean + late, spread + late


def trial_left_ms(
    age_ms: float, step: int, last_step: int | None, mean_ms: float | None
) -> float | None:
    """Estimate the time left of a running trial; None if nothing is known.

    The estimate is the mean of the ended trials. If they all ended at `last_step`, the trial's own
    pace counts more, the further it is.
    """
    usual = mean_ms - age_ms if mean_ms is not None else None
    if last_step and 0 < step <= last_step:
        own = age_ms / step * (last_step - step)
        share = 1.0 if usual is None or usual < 0 else step / last_step
        return share * own + (1 - share) * (usual or 0.0)
    return None if usual is None or usual < 0 else usual


def coarse_duration(ms: float) -> str:
    """Format a duration as an estimate: from 90 s on in one unit."""
    s = round(ms / 1000)
    if s < 90:
        return duration(1000 * s)
    for unit, size, below in (("m", 60, 90), ("h", 3600, 48), ("d", 86400, math.inf)):
        if s / size < below:
            whole = s / size
            digits = 1 if unit in "hd" and whole < 10 else 0
            return f"{whole:.{digits}f}".removesuffix(".0") + unit
    raise AssertionError("unreachable")
