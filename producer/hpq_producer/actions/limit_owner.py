"""Set the limits of an owner of sweeps, as an administrator."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from hpq.access.session import Session
from hpq.domain.budget import EVERYBODY, HOUR_MS
from hpq.domain.sweep import MAX_PRIORITY
from hpq.errors import Forbidden, UserError
from hpq.notice import plural
from hpq.shell import shell_hint
from hpq_producer.actions.steer import control_of
from hpq_views.text.text import clean, trials_of

STORED = {"priority": "priority", "running": "running", "gpu_hours": "gpu_ms"}  # key → limit
KEYS = {limit: key for key, limit in STORED.items()}


def parse_limits(words: Sequence[str]) -> tuple[dict[str, int], list[str]]:
    """Return the limits that KEY=VALUE words set, as the store holds them, and those they remove.

    Raises:
        UserError: a key is unknown or a value is not allowed.
    """
    limits: dict[str, int] = {}
    gone: list[str] = []
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or key not in STORED:
            close = get_close_matches(key, STORED, n=1, cutoff=0.5)
            hint = f"; did you mean {close[0]}?" if close else ""
            line = f"--limit {word}: write KEY=VALUE, KEY one of {', '.join(STORED)}{hint}"
            raise UserError(line, code="unknown-key")
        stored = STORED[key]
        if stored in (*limits, *gone):
            raise UserError(f"--limit {word}: {key} is given twice", code="conflicting-keys")
        if text == "none":
            gone.append(stored)
            continue
        try:
            limits[stored] = _value(key, text)
        except ValueError as error:
            raise UserError(f"--limit {word}: {error}", code="invalid-value") from None
    return limits, gone


def _value(key: str, text: str) -> int:
    if key == "gpu_hours":
        value = _number(text)
        if not 0 <= value < math.inf:  # also NaN
            raise ValueError("write a number of hours, 0 or more, or none")
        return round(value * HOUR_MS)
    low, high = (-MAX_PRIORITY, MAX_PRIORITY) if key == "priority" else (0, 10**9)
    whole = _number(text)
    if not (whole.is_integer() and low <= whole <= high):
        between = f"from {low} to {high}" if key == "priority" else "0 or more"
        raise ValueError(f"write a whole number, {between}, or none")
    return int(whole)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def limit_owner(
    session: Session, name: str, limits: dict[str, int], gone: Sequence[str]
) -> Iterator[str]:
    """Set limits of an owner, and remove those in `gone`; yield what they mean, for the user.

    Raises:
        Forbidden: this Redis user may not change limits.
    """
    if not name or "\n" in name:
        raise UserError("OWNER: write the owner of a sweep, as `hpq ls` shows it", code="usage")
    owners = session.reader.owners
    if not owners.may_write():
        text = "only an administrator's Redis user changes limits; an administrator runs:"
        words = [word for word in _words(limits, gone) for word in ("--limit", word)]
        command = shell_hint(["hpq", "user", name, *words])
        if session.connection:
            command = f"hpq connect --role admin && {command}"
        raise Forbidden(f"{text} {command}", code="redis-forbidden")
    control_of(session).limit_owner(name, limits, gone)
    known = owners.known()
    if name not in (EVERYBODY, *known):
        close = get_close_matches(name, known, n=1)
        hint = f"; did you mean {clean(close[0])}?" if close else ""
        yield f"note: {clean(name)} has no sweep yet{hint}"
    owner = owners.of([name]).get(name)
    if owner is None:
        return
    if 0 in (limits.get("running"), limits.get("gpu_ms")):
        yield f"no trial of {clean(name)} starts"
    if limits.get("running", owner.running) < owner.running:
        most = limits["running"]
        run = f"{trials_of(owner.running)} {plural(owner.running, 'runs', 'run')} on"
        yield f"{run}; the next starts below {most}"


def _words(limits: dict[str, int], gone: Sequence[str]) -> list[str]:
    shown = {
        name: f"{value / HOUR_MS:.6g}" if name == "gpu_ms" else str(value)
        for name, value in limits.items()
    }
    return [f"{KEYS[name]}={text}" for name, text in (shown | dict.fromkeys(gone, "none")).items()]
