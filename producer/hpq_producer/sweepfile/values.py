"""Rules for single values of a sweep file: what is wrong with one, and the same as JSON Schema.

A rule and its JSON Schema stand together, so that an editor and `hpq enqueue` say the same.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from hpq.domain.trial import Json
from hpq_producer.sweepfile.errors import shown
from hpq_producer.sweepfile.yaml_reader import resolve

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smh])\Z")
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
MOST_SECONDS = 365 * 86_400.0  # of a duration
# JSON writes NUL as an escape, after an even number of backslashes.
_NO_ARGUMENT = re.compile(r"(?<!\\)(?:\\\\)*\\u0000|[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Check:
    """One rule. Called with a value: what is wrong and what is allowed; None where it is fine."""

    problem: Callable[[Json], str | None]
    schema: Mapping[str, Json]

    def __call__(self, value: Json) -> str | None:
        """What is wrong with the value and what is allowed; None where it is fine."""
        return self.problem(value)


def whole(low: int, high: int) -> Check:
    """An integer within limits, both included."""

    def problem(value: Json) -> str | None:
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return None
        wrong = f"{shown(value)} is not a whole number from {low:,} to {high:,}"
        return wrong + _unquoted(value)

    return Check(problem, {"type": "integer", "minimum": low, "maximum": high})


def number(above: float = -math.inf, *, least: float = -math.inf) -> Check:
    """A finite number, above a limit or at least one."""
    allowed = "a number"
    allowed += f" above {above:g}" if above > -math.inf else ""
    allowed += f" of at least {least:g}" if least > -math.inf else ""
    limits = {"exclusiveMinimum": above, "minimum": least}

    def problem(value: Json) -> str | None:
        fine = isinstance(value, int | float) and not isinstance(value, bool)
        if fine and math.isfinite(value) and value > above and value >= least:  # type: ignore[arg-type, operator]
            return None
        return f"{shown(value)} is not {allowed}{_unquoted(value)}"

    return Check(problem, {"type": "number", **{k: v for k, v in limits.items() if v > -math.inf}})


def _unquoted(value: Json) -> str:
    """How a text that looks like a number becomes one; nothing for any other value."""
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


def word(*words: str) -> Check:
    """One of a few words."""

    def problem(value: Json) -> str | None:
        if isinstance(value, str) and value in words:
            return None
        return f"{shown(value)} is not one of {', '.join(words)}{nearest(value, words)}"

    return Check(problem, {"enum": list(words)})


def text(rule: re.Pattern[str] | None = None, allowed: str = "", *, empty: bool = False) -> Check:
    """Text that has no NUL, follows a rule and is not empty (unless that stands for none)."""

    def problem(value: Json) -> str | None:
        if not isinstance(value, str):
            return f"{shown(value)} is not text; write it in quotes"
        if not empty and not value.strip():
            return "empty; write some text or remove the key"
        if not is_passable(json.dumps(value, ensure_ascii=False)):
            return f"{shown(value)} holds a character that no program can be given"
        if rule is not None and not rule.match(value):
            return f"{shown(value)} cannot be used; {allowed}"
        return None

    pattern = r"\S" if rule is None else "^" + rule.pattern.replace(r"\Z", "$")
    return Check(problem, {"type": "string"} if empty else {"type": "string", "pattern": pattern})


def title(most: int) -> Check:
    """Text to be shown: printable, at most so long, neither a space nor '-' first."""
    base = text()

    def problem(value: Json) -> str | None:
        wrong = base(value)
        if wrong or not isinstance(value, str):
            return wrong
        if len(value) <= most and value.isprintable() and value[0] not in " -":
            return None
        return f"{shown(value)} cannot be used; use 1 to {most} printable characters, no '-' first"

    return Check(problem, {"type": "string", "minLength": 1, "maxLength": most})


def argument(value: Json) -> str | None:
    """A word of a command line: text, or a number, which W&B writes as text, too."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return None
    return text()(value)


def flag(value: Json) -> str | None:
    """true or false."""
    return None if isinstance(value, bool) else f"{shown(value)} is not true or false"


def duration(value: Json) -> str | None:
    """Seconds as a number, or text such as 90s, 15m, 2h; 0 for none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if 0 <= value <= MOST_SECONDS:
            return None
    elif isinstance(value, str) and _DURATION.match(value) and seconds(value) <= MOST_SECONDS:
        return None
    return f"{shown(value)} is not a duration; write seconds, or 90s, 15m, 2h (at most a year)"


def seconds(value: Json) -> float:
    """The seconds of a duration that was checked; 0 where there is none."""
    if isinstance(value, str):
        match = _DURATION.match(value)
        assert match is not None
        return float(match[1]) * _UNIT_S[match[2]]
    return float(value) if isinstance(value, int | float) else 0.0


def listing(check: Check, allowed: str) -> Check:
    """A list, not empty, each item of which passes a check."""

    def problem(value: Json) -> str | None:
        if not isinstance(value, list) or not value:
            return f"{shown(value)} is not a list of {allowed}"
        return next((wrong for item in value if (wrong := check(item))), None)

    return Check(problem, {"type": "array", "minItems": 1, "items": dict(check.schema)})


def is_passable(encoded: str) -> bool:
    """False where JSON text holds what no argument can: a NUL, or half of a surrogate pair."""
    return not _NO_ARGUMENT.search(encoded)


def nearest(value: Json, known: Mapping[str, object] | tuple[str, ...], form: str = "{}") -> str:
    """'; did you mean …?' where one of the known words is close, else nothing.

    `form` is how the word is written in the file.
    """
    if not isinstance(value, str):
        return ""
    begun = [word for word in known if len(value) > 2 and word.startswith(value)]
    close = begun if len(begun) == 1 else get_close_matches(value, list(known), n=1)
    return f"; did you mean {form.format(close[0])!r}?" if close else ""


FLAG = Check(flag, {"type": "boolean"})
DURATION = Check(
    duration,
    {
        "anyOf": [
            {"type": "number", "minimum": 0, "maximum": MOST_SECONDS},
            {"type": "string", "pattern": "^" + _DURATION.pattern.replace(r"\Z", "$")},
        ]
    },
)
ARGUMENT = Check(argument, {"type": ["string", "number"]})
