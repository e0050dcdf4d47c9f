"""Set the limits of an owner of sweeps, as an administrator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from hpq.access.session import Session
from hpq.domain.owner import RANGES, name_of, stored_value
from hpq.errors import Forbidden, UserError
from hpq.shell import shell_hint
from hpq_producer.actions.steer import control_of


def parse_limits(words: Sequence[str]) -> dict[str, int | None]:
    """Return the limits that KEY=VALUE words set, as the store holds them; None removes one.

    Raises:
        UserError: a key is unknown or a value is not allowed.
    """
    limits: dict[str, int | None] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or key not in RANGES:
            close = get_close_matches(key, RANGES, n=1, cutoff=0.5)
            hint = f"; did you mean {close[0]}?" if close else ""
            line = f"--limit {word}: write KEY=VALUE, KEY one of {', '.join(RANGES)}{hint}"
            raise UserError(line, code="unknown-key")
        if name_of(key) in limits:
            raise UserError(f"--limit {word}: {key} is given twice", code="conflicting-keys")
        limits[name_of(key)] = None if text == "none" else _value(key, text)
    return limits


def _value(key: str, text: str) -> int:
    low, high = RANGES[key]
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    is_whole = key == "gpu_hours" or value.is_integer()
    if not low <= value <= high or not is_whole:  # also NaN
        number = "number of hours" if key == "gpu_hours" else "whole number"
        line = f"--limit {key}={text}: write a {number}, from {low} to {high:,}, or none"
        raise UserError(line, code="invalid-value")
    return stored_value(key, value)


def limit_owner(
    session: Session, name: str, limits: Mapping[str, int | None], words: Sequence[str]
) -> None:
    """Set the limits of an owner that `words` are, and remove those that are None.

    Raises:
        Forbidden: this Redis user may not change limits.
    """
    if not name or "\n" in name:
        raise UserError("OWNER: write the owner of a sweep, as `hpq ls` shows it", code="usage")
    if not session.reader.owners.may_write():
        text = "only an administrator's Redis user changes limits; an administrator runs:"
        flags = [flag for word in words for flag in ("--limit", word)]
        command = shell_hint(["hpq", "user", name, *flags])
        if session.connection:
            command = f"hpq connect --role admin && {command}"
        raise Forbidden(f"{text} {command}", code="redis-forbidden")
    control_of(session).limit_owner(name, limits)
