"""Durations as people write them: 90s, 15m, 2h, 1d, or a number of seconds."""

from __future__ import annotations

import re

from hpq.domain.trial import Json

PATTERN = r"[0-9]+(?:\.[0-9]+)?[smhd]"
MAX_SECONDS = 365 * 86_400.0
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds(value: Json) -> float:
    """Return the seconds of a duration; 0 stands for none.

    Raises:
        ValueError: the value is no duration, or longer than a year.
    """
    found = -1.0
    if isinstance(value, int | float) and not isinstance(value, bool):
        found = value
    elif isinstance(value, str) and re.fullmatch(PATTERN, value):
        found = float(value[:-1]) * _UNIT_S[value[-1]]
    if not 0 <= found <= MAX_SECONDS:
        what = f"{value!r} is not a duration; write seconds, or 90s, 15m, 2h (at most a year)"
        raise ValueError(what)
    return float(found)


def text(seconds: float) -> str:
    """Write seconds in the largest unit that leaves no fraction: 2h, 90s."""
    for unit in "dhm":
        if seconds and seconds % _UNIT_S[unit] == 0:
            return f"{seconds / _UNIT_S[unit]:g}{unit}"
    return f"{seconds:.12g}s"
