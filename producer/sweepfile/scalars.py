"""What an unquoted word of a sweep file means: YAML 1.2's core schema, and two old booleans.

Imported by yamlfile only. `1e-3`, `1e3` and `-.5` are numbers, `010` is ten, `1_000`, `1:30` and
dates are text. on, off, yes and no stay the booleans that W&B's own loader makes of them, so that
W&B's files mean the same here; `OLD_BOOLEANS` lets the caller warn.
"""

from __future__ import annotations

import math
import re

from hpq.trial import JsonScalar

MAX_DIGITS = 300
OLD_BOOLEANS = re.compile(r"(?:on|off|yes|no)\Z", re.IGNORECASE)

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


def _whole(text: str, base: int) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits; write at most {MAX_DIGITS}")
    return int(text, base)
