"""What an unquoted word of a sweep file means: YAML 1.2's core schema, and two old booleans.

Imported by yamlfile only. `1e-3`, `1e3` and `-.5` are numbers, `010` is ten, `1_000`, `1:30` and
dates are text. on, off, yes and no stay the booleans that W&B's own loader makes of them, so that
W&B's files mean the same here; `DOUBTFUL` lets the caller warn, with `reading`.
"""

from __future__ import annotations

import math
import re
from functools import reduce

from hpq.trial import JsonScalar

MAX_DIGITS = 300
_OLD_BOOLEANS = re.compile(r"(?:on|off|yes|no)\Z", re.IGNORECASE)
_GROUPED = re.compile(r"[-+]?[0-9]+(?:_[0-9]+)+(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?\Z")
_BY_SIXTY = re.compile(r"[-+]?[1-9][0-9]*(?::[0-5]?[0-9])+\Z")
_OCTAL = re.compile(r"[-+]?0+[1-9][0-9]*\Z")
# What YAML 1.1 (W&B's loader) reads in another way, or people do.
DOUBTFUL = re.compile(
    "|".join(f"(?:{p.pattern})" for p in (_GROUPED, _BY_SIXTY, _OCTAL)) + r"|(?:on|off|yes|no)\Z",
    re.IGNORECASE,
)

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {
    form: truth
    for word, truth in (
        ("true", True), ("on", True), ("yes", True),
        ("false", False), ("off", False), ("no", False),
    )
    for form in (word, word.capitalize(), word.upper())
}  # fmt: skip
_WHOLE = re.compile(r"[-+]?[0-9]+\Z")
_BASED = re.compile(r"0(?:o[0-7]+|x[0-9a-fA-F]+)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_INFINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z")
_NAN = frozenset({".nan", ".NaN", ".NAN"})


def resolve(text: str) -> JsonScalar:
    """The value of an unquoted scalar.

    Raises:
        ValueError: the text is a number that no float and no sensible integer can hold.
    """
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _WHOLE.match(text):
        return _whole(text, 10)
    if _BASED.match(text):
        return _whole(text, 0)
    if _FLOAT.match(text):
        value = float(text)
        if math.isinf(value):
            raise ValueError(f"{text} is too large; numbers go up to 1.8e308")
        return value
    if text in _NAN:
        return math.nan
    if _INFINITE.match(text):
        return -math.inf if text.startswith("-") else math.inf
    return text


def reading(text: str) -> str:
    """How an unquoted scalar that is `DOUBTFUL` is read, and what to write instead."""
    if _OLD_BOOLEANS.match(text):
        value = "true" if text.lower() in ("on", "yes") else "false"
        return f"{text} without quotes is the boolean {value}; write '{text}' for the word"
    if _GROUPED.match(text):
        return f"{text} is text here; write {text.replace('_', '')}, or '{text}' for the text"
    if _BY_SIXTY.match(text):
        sign, digits = ("-" if text[0] == "-" else ""), text.lstrip("+-")
        seconds = reduce(lambda all_, part: 60 * all_ + int(part), digits.split(":"), 0)
        return f"{text} is text here (W&B reads the number {sign}{seconds});" \
               f" write '{text}' for the text"  # fmt: skip
    ten = int(text)
    other = "" if set(text) & {"8", "9"} else f" (W&B reads {int(text, 8)})"
    return f"{text} is the number {ten}{other}; write {ten}, or '{text}' for the text"


def _whole(text: str, base: int) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits; write at most {MAX_DIGITS}")
    return int(text, base)
