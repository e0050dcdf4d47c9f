"""Checks of single values of a sweep file: what is wrong and what is allowed, or None."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches

from hpq.domain.trial import Json
from hpq_producer.sweepfile.errors import shown
from hpq_producer.sweepfile.yaml_reader import resolve

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])\Z")
UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
MAX_SECONDS = 365 * 86_400.0  # of a duration
# JSON writes NUL as an escape, after an even number of backslashes.
_NO_ARGUMENT = re.compile(r"(?<!\\)(?:\\\\)*\\u0000|[\ud800-\udfff]")


Check = Callable[[Json], str | None]


def integer(low: int, high: int) -> Check:
    """Check an integer: `low` and `high` are included."""

    def problem(value: Json) -> str | None:
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return None
        wrong = f"{shown(value)} is not a whole number from {low:,} to {high:,}"
        return wrong + _unquoted(value)

    return problem


def number(above: float = -math.inf, *, minimum: float = -math.inf) -> Check:
    """Check a finite number: greater than `above` and at least `minimum`."""
    allowed = "a number"
    allowed += f" above {above:g}" if above > -math.inf else ""
    allowed += f" of at least {minimum:g}" if minimum > -math.inf else ""

    def problem(value: Json) -> str | None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and math.isfinite(value) and value > above and value >= minimum:  # type: ignore[arg-type, operator]
            return None
        return f"{shown(value)} is not {allowed}{_unquoted(value)}"

    return problem


def _unquoted(value: Json) -> str:
    """Return how to write a text that looks like a number as one; "" for any other value."""
    if not isinstance(value, str):
        return ""
    bare = value.replace("_", "")
    try:
        is_number = isinstance(resolve(bare), int | float) and not isinstance(resolve(bare), bool)
    except ValueError:
        return ""
    if not is_number:
        return ""
    return "; write it without quotes" if bare == value else f"; write {bare}"


def choice(*words: str) -> Check:
    """Check that a value is one of a few words."""

    def problem(value: Json) -> str | None:
        if isinstance(value, str) and value in words:
            return None
        return f"{shown(value)} is not one of {', '.join(words)}{nearest(value, words)}"

    return problem


def text(rule: re.Pattern[str] | None = None, allowed: str = "", *, empty: bool = False) -> Check:
    """Check text: no NUL, matches the rule, and is not empty unless `empty` is true."""

    def problem(value: Json) -> str | None:
        if not isinstance(value, str):
            return f"{shown(value)} is not text; write it in quotes"
        if not empty and not value.strip():
            return "empty; write some text or remove the key"
        if not is_passable(json.dumps(value, ensure_ascii=False)):
            return f"{shown(value)} contains a character that no program argument can hold"
        if rule is not None and not rule.match(value):
            return f"{shown(value)} is invalid; {allowed}"
        return None

    return problem


def display_text(max_length: int) -> Check:
    """Check text for display: printable, at most `max_length` characters, no space or '-' first."""
    base = text()

    def problem(value: Json) -> str | None:
        wrong = base(value)
        if wrong or not isinstance(value, str):
            return wrong
        if len(value) <= max_length and value.isprintable() and value[0] not in " -":
            return None
        return (
            f"{shown(value)} is invalid; use 1 to {max_length} printable characters, no '-' first"
        )

    return problem


def argument(value: Json) -> str | None:
    """Check a word of a command line: text, or a number, which W&B also writes as text."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return None
    return text()(value)


def flag(value: Json) -> str | None:
    """Check that a value is true or false."""
    return None if isinstance(value, bool) else f"{shown(value)} is not true or false"


def duration(value: Json) -> str | None:
    """Check a duration: seconds as a number, or text such as 90s, 15m, 2h; 0 for none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if 0 <= value <= MAX_SECONDS:
            return None
    elif isinstance(value, str) and _DURATION.match(value) and seconds(value) <= MAX_SECONDS:
        return None
    return f"{shown(value)} is not a duration; write seconds, or 90s, 15m, 2h (at most a year)"


def seconds(value: Json) -> float:
    """Return the seconds of a checked duration; 0 if there is none."""
    if isinstance(value, str):
        match = _DURATION.match(value)
        assert match is not None
        return float(match[1]) * UNIT_S[match[2]]
    return float(value) if isinstance(value, int | float) else 0.0


def list_of(check: Check, allowed: str) -> Check:
    """Check a list: not empty, and each item passes `check`."""

    def problem(value: Json) -> str | None:
        if not isinstance(value, list) or not value:
            return f"{shown(value)} is not a list of {allowed}"
        return next((wrong for item in value if (wrong := check(item))), None)

    return problem


def is_passable(encoded: str) -> bool:
    """Return whether JSON text has no NUL and no half of a surrogate pair: no argument can."""
    return not _NO_ARGUMENT.search(encoded)


def nearest(value: Json, known: Mapping[str, object] | tuple[str, ...], form: str = "{}") -> str:
    """Return '; did you mean …?' if a known word is similar, else "".

    `form` formats the word as the file writes it.
    """
    if not isinstance(value, str):
        return ""
    prefixed = [word for word in known if len(value) > 2 and word.startswith(value)]
    close = prefixed if len(prefixed) == 1 else get_close_matches(value, list(known), n=1)
    return f"; did you mean {form.format(close[0])!r}?" if close else ""
