"""The hours that `hpq plan` expects, from what trials took before. Pure."""

from __future__ import annotations

from typing import Any

from hpq.trial import Json
from producer.look.text import clean, duration, trials_of
from producer.past import Past
from producer.sweepfile.scalars import DOUBTFUL, resolve


def hours_line(past: Past, count: int | None, *, at_most: bool) -> str:
    """What the sweep will take, and from what that is known."""
    sweep = past.sweep
    whose = "same code"
    if not past.same_code:
        whose = f"same program, edited since: {sweep.id} of {clean(sweep.owner)}, and older"
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


def said(value: Json) -> Json:
    """A value of a set, in quotes where it is a text that looks like a number or another word."""
    if not isinstance(value, str):
        return value
    try:
        is_text = resolve(value) == value and not DOUBTFUL.match(value)
    except ValueError:
        is_text = False
    return value if is_text else f"'{value}'"


def past_record(past: Past, count: int | None) -> dict[str, Any]:
    """The same as data."""
    return {
        "trials": past.trials,
        "same_code": past.same_code,
        "newest": past.sweep.id,
        "owner": past.sweep.owner,
        "median_s": past.median_ms / 1000,
        "gpus": past.gpus,
        "hours": None if count is None else past.hours(count),
    }
