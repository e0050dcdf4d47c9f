"""Durations as people write them: 90s, 15m, 2h, 1d, or a number of seconds; times."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from hpq.domain.trial import Json

PATTERN = r"[0-9]+(?:\.[0-9]+)?[smhd]"
MAX_SECONDS = 365 * 86_400.0
_CLOCK = re.compile(r"(?:[01]?[0-9]|2[0-3]):[0-5][0-9]")
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


def until_ms(value: Json) -> int:
    """Return the time of +8h from now, of the next 08:00 on this machine, or of a date with a zone.

    Raises:
        ValueError: the value is no such time, or is in the past.
    """
    now = datetime.now()
    if isinstance(value, str) and re.fullmatch(r"\+" + PATTERN, value):
        return int(1000 * (now + timedelta(seconds=seconds(value[1:]))).timestamp())
    if isinstance(value, str) and _CLOCK.fullmatch(value):
        hour, minute = map(int, value.split(":"))
        found = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
        return int(1000 * (found + timedelta(days=found <= now)).timestamp())
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError:
        found = now
    if not isinstance(value, str) or found.tzinfo is None:
        what = "write +8h, a time of day in quotes, '08:00', or a date with a time and a zone"
        raise ValueError(f"{value!r} is not a time; {what}, '2027-01-31T08:00+01:00'")
    if not now.astimezone() < found < now.astimezone() + timedelta(days=36_500):
        raise ValueError(f"{value} is in the past or too far away; write another time")
    return int(1000 * found.timestamp())


def text(seconds: float) -> str:
    """Write seconds in the largest unit that leaves no fraction: 2h, 90s."""
    for unit in "dhm":
        if seconds and seconds % _UNIT_S[unit] == 0:
            return f"{seconds / _UNIT_S[unit]:g}{unit}"
    return f"{seconds:.12g}s"


def iso(ms: int) -> str | None:
    """Format a time in milliseconds for programs, as ISO 8601 in UTC; None for 0."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat("T", "milliseconds") if ms else None


def clock(ms: int) -> str:
    """Format a time for people, by this machine's clock with the distance to UTC; "" for 0."""
    return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(" ", "minutes") if ms else ""
