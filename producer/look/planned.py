"""What `hpq plan` says beside the sets: early termination's bands, and hours to expect. Pure."""

from __future__ import annotations

from typing import Any

from hpq.sweep import EarlyTerminate, Rule
from producer.look.text import duration, trials_of
from producer.past import Past

_BANDS = 6


def early_line(early: EarlyTerminate) -> str:
    """The rule and the values of the metric that it looks at."""
    some = ", ".join(map(str, early.bands[:_BANDS]))
    more = ", …" if len(early.bands) > _BANDS else ""
    how = {
        Rule.HYPERBAND: f"eta {early.eta:g}, {'' if early.strict else 'not '}strict",
        Rule.ASHA: f"eta {early.eta:g}",
        Rule.MEDIAN: f"once {early.min_trials} others came so far",
    }
    return f"early_terminate {early.rule} ({how[early.rule]}): looks at value {some}{more}"


def hours_line(past: Past, count: int | None, *, at_most: bool) -> str:
    """What the sweep will take, and from what that is known."""
    whose = "same code" if past.same_code else "same program, edited since"
    known = f"(median of {past.trials} finished, {whose})"
    each = duration(past.median_ms)
    if count is None:
        return f"about {each} a trial {known}"
    about = "at most" if at_most else "about"
    if past.gpus:
        total = f"{past.hours(count):.2g} GPU-hours"
    else:
        total = f"{duration(past.hours(count) * 3_600_000)} of one worker"
    return f"{about} {total}: {trials_of(count)} of {each} {known}"


def past_record(past: Past, count: int | None) -> dict[str, Any]:
    """The same as data."""
    return {
        "trials": past.trials,
        "same_code": past.same_code,
        "median_s": past.median_ms / 1000,
        "gpus": past.gpus,
        "hours": None if count is None else past.hours(count),
    }


def early_record(early: EarlyTerminate) -> dict[str, Any]:
    """The rule as data, with all its bands."""
    return {
        "type": early.rule.value,
        "bands": list(early.bands),
        "eta": early.eta,
        "strict": early.strict,
        "min_trials": early.min_trials,
    }
