"""Read metrics from one printed line. A number is read as a whole, or not at all."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from typing import NamedTuple

from hpq.domain.metric_spelling import QUALIFIERS, spellings

_SPACES = "\u00a0\u2009\u202f"  # no-break, thin and narrow no-break space
_GROUPS_BY = (",", "_", "'’", _SPACES)
_GROUPED = r"[1-9]\d{0,2}(?:" + "|".join(rf"(?:[{by}]\d{{3}})+" for by in _GROUPS_BY) + ")"
_DIGITS = rf"(?:(?:{_GROUPED}|\d+)(?:\.\d*)?|\.\d+)(?:e[-+−]?\d+)?"
_NUMBER = rf"[-+−]?(?:{_DIGITS}|inf(?:inity)?|nan|∞)"
# What makes a number a part of something else.
_CALCULATED = (
    r"\s*[×*/]\s*\d|\s*[·x]\s*10[*^⁺⁻⁰-⁹¹²³]|\s+e[-+−]\d"  # 98 / 100, 1.5 x 10^-3, 1.5 e-3
    r"|\s*(?:[-=]+>|→)\s*[-+−.]?\d"  # 0.5 -> 0.4
    r"|(?:\s+[-+−]\s+[\d.]+)+\s+=\s*"  # 0.5 + 0.25 = 0.75
)
_NO_PART = (
    r"(?!\w|[./:*^'’~–—-]+\d|,[-+−]?\.?\d|[⁺⁻]"  # 12ms, 3/10, 10:30, 1.2.3, 0.5-0.7, 3,4, 10⁻³
    rf"|[{_SPACES}]\d|\.?#|\+[\d.]+j"  # 1.#INF, 1+2j
    rf"|[./+-][^\W\d]|{_CALCULATED})"  # the file 0.5.pt or 0.5-v1.pt, the version 2.1+cu118
)
# 1 002.5 and 1 002, but not 1 200 steps: a plain space may also end a number.
_NOT_SPACED = r"(?![-+−]?[1-9]\d{0,2}(?: \d{3})*(?: 0\d\d| \d{3}[.,]\d| \d{3}(?=[\])},;|]|\s*\Z)))"
_REST = rf"(?:\S|[ {_SPACES}](?=\d{{3}}(?!\d)))*"
_QUOTE = "[\"']?"
# repr() of a number of numpy, torch or decimal
_WRAPPED = rf"(?:(?:\w+\.)?(?:(?:b?float|u?int)\d*|tensor|array|decimal)\({_QUOTE})?"
_VALUE = (
    rf"\s*[=:：]\s*{_QUOTE}{_WRAPPED}"
    rf"(?:{_NOT_SPACED}(?P<value>{_NUMBER}){_NO_PART}|(?P<unread>[-+−]?[.,]?\d{_REST}(?:(?:{_CALCULATED})\S*)?))"
)
_MARKS = str.maketrans({"−": "-", "∞": "inf"} | dict.fromkeys(f",_'’{_SPACES}", ""))
# A word before a name that makes it another metric, or a declaration of a variable.
_BEFORE = QUALIFIERS | frozenset(
    "lowest highest minimum maximum previous prev target const let mut var float double".split()
)
_JOINS = frozenset("and then now with but".split())
_WORD_BEFORE = re.compile(
    r"(?P<word>\w*[^\W\d_]\w*)(?:[ -]so[ -]far)?[)\]\"']*\s*(?P<opens>[:(\[]?)\s*\Z"
)
_BEFORE_LENGTH = 64

_WORD = r"[A-Za-z_][A-Za-z0-9_./-]*"  # in "Epoch 3 loss=0.5", "3" makes the line text
_PAIR = re.compile(
    rf"\s*(?P<name>{_WORD}(?: +{_WORD})*)\s*=\s*(?P<value>{_NUMBER})(?:\s*[,;|]|\s|\Z)\s*",
    re.IGNORECASE,
)
_LONGEST_NAME = 64


class Unread(NamedTuple):
    """A metric in a line whose number cannot be read as a whole."""

    name: str
    text: str


def metrics_of_line(line: str) -> dict[str, float]:
    """Return the values of a line that consists of `name=number`; {} if it has other text."""
    at, found = 0, dict[str, float]()
    while at < len(line):
        pair = _PAIR.match(line, at)
        if pair is None or len(pair["name"]) > _LONGEST_NAME:
            return {}
        found[pair["name"]] = _number(pair["value"])
        at = pair.end()
    return found


def metrics_in_text(declared: Collection[str], line: str) -> tuple[dict[str, float], Unread | None]:
    """Return the values of declared metrics inside other text, and one that cannot be read.

    The last `name=number` or `name: number` of each counts, or else that of a near miss, under its
    own name. In `top5 acc: 0.9`, acc is no name if `top5 acc` is declared.
    """
    values: dict[str, float] = {}
    unread: Unread | None = None
    taken: set[int] = set()  # where the names end
    for metric in sorted(declared, key=len, reverse=True):
        found = [one for one in _find(metric, _VALUE, line) if one.end("name") not in taken]
        exact = [one for one in found if one["name"] == metric]
        taken.update(one.end("name") for one in exact)
        near = [one for one in found if one["name"] not in declared and one["value"]]
        for one in (exact or near)[:1]:
            if one["value"]:
                values[one["name"]] = _number(one["value"])
            else:
                unread = Unread(metric, one["unread"])
    return values, unread


def mentions(metric: str, line: str) -> bool:
    """Return whether a line has the metric in any spelling, and then a number: `val-loss 0.3`."""
    last = max((at for at, character in enumerate(line) if character.isdigit()), default=0)
    return any(found.end() <= last for found in _find(metric, r"(?!\w)", line))


def _number(text: str) -> float:
    return float(text.translate(_MARKS))


@cache
def _pattern(metric: str, value: str) -> re.Pattern[str]:
    name = f"(?P<name>{re.escape(metric)}|{spellings(metric).pattern})"
    return re.compile(rf"(?<![\w./-]){name}{_QUOTE}{value}", re.IGNORECASE)


def _find(metric: str, value: str, line: str) -> list[re.Match[str]]:
    """Find a name before a pattern, unless it is part of another name.

    From the end of a line, but those with a word before it, such as `aux loss: 0.1`, at last.
    """
    plain: list[re.Match[str]] = []
    others: list[re.Match[str]] = []
    for found in reversed(list(_pattern(metric, value).finditer(line))):
        word = _word_before(line, found.start())
        if word in _BEFORE:
            continue
        is_plain = not word or word in _JOINS
        (plain if is_plain else others).append(found)
    return plain + others


def _word_before(line: str, end: int) -> str:
    """Return the word that belongs to the name at a place: best in `(best) loss`; "" without one.

    `val: loss=0.3` has none, `best: loss=0.3` has one: it repeats an earlier value.
    """
    before = _WORD_BEFORE.search(line[max(0, end - _BEFORE_LENGTH) : end].lower())
    if before is None or (before["opens"] and before["word"] != "best"):
        return ""
    return before["word"]
