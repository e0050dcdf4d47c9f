"""The one table of what a sweep file may hold: keys, kinds, limits, and what is refused and why.

Imported by whatever reads a sweep file. W&B's keys mean what they mean there; hpq's own say what
W&B cannot. `check` reports every unknown key (with the nearest known one) and every wrong value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches

from hpq.report import METRIC_NAME
from hpq.sweep import NAME_RULE, Goal, Take
from hpq.trial import Json
from producer.sweepfile.problems import Path, Problems, shown

Check = Callable[[Json], str | None]  # what is wrong and what is allowed; None where it is fine

DISPLAY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,99}\Z")
PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}\Z")
NOT_A_NAME = "not a parameter name; use 1 to 100 of A-Z a-z 0-9 _ . -, a letter or _ first"
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smh])\Z")
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
_MAX_S = 365 * 86_400.0
# JSON writes NUL as an escape, after an even number of backslashes.
_NO_ARGUMENT = re.compile(r"(?<!\\)(?:\\\\)*\\u0000|[\ud800-\udfff]")
_VARIABLE = re.compile(r"(?!HPQ_)[A-Za-z_][A-Za-z0-9_]*\Z")


def whole(low: int, high: int) -> Check:
    """An integer within limits, both included."""

    def problem(value: Json) -> str | None:
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return None
        return f"{shown(value)} is not a whole number from {low:,} to {high:,}"

    return problem


def number(above: float = -math.inf, *, least: float = -math.inf) -> Check:
    """A finite number, above a limit or at least one."""
    allowed = "a number"
    allowed += f" above {above:g}" if above > -math.inf else ""
    allowed += f" of at least {least:g}" if least > -math.inf else ""

    def problem(value: Json) -> str | None:
        fine = isinstance(value, int | float) and not isinstance(value, bool)
        if fine and math.isfinite(value) and value > above and value >= least:  # type: ignore[arg-type, operator]
            return None
        return f"{shown(value)} is not {allowed}"

    return problem


def word(*words: str) -> Check:
    """One of a few words."""

    def problem(value: Json) -> str | None:
        if isinstance(value, str) and value in words:
            return None
        return f"{shown(value)} is not one of {', '.join(words)}{nearest(value, words)}"

    return problem


def text(rule: re.Pattern[str] | None = None, allowed: str = "") -> Check:
    """Text that is not empty, has no NUL and follows a rule."""

    def problem(value: Json) -> str | None:
        if not isinstance(value, str):
            return f"{shown(value)} is not text; write it in quotes"
        if not value.strip():
            return "empty; write some text or remove the key"
        if not is_passable(json.dumps(value, ensure_ascii=False)):
            return f"{shown(value)} holds a character that no program can be given"
        if rule is not None and not rule.match(value):
            return f"{shown(value)} cannot be used; {allowed}"
        return None

    return problem


def flag(value: Json) -> str | None:
    """true or false."""
    return None if isinstance(value, bool) else f"{shown(value)} is not true or false"


def duration(value: Json) -> str | None:
    """Seconds as a number, or text such as 90s, 15m, 2h; 0 for none."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MAX_S:
        return None
    if isinstance(value, str) and _DURATION.match(value) and seconds(value) <= _MAX_S:
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

    return problem


def method(value: Json) -> str | None:
    """How sets are chosen."""
    if value == "custom":
        return "custom is for engines inside W&B; write grid, random or bayes"
    return word("grid", "random", "bayes")(value)


def anything(value: Json) -> str | None:
    """Checked elsewhere."""
    return None


def is_passable(encoded: str) -> bool:
    """False where JSON text holds what no argument can: a NUL, or half of a surrogate pair."""
    return not _NO_ARGUMENT.search(encoded)


_NAME = text(DISPLAY_NAME, "use 1 to 100 of A-Z a-z 0-9 space . _ -, a letter or digit first")
_QUEUE = text(NAME_RULE, "use 1 to 63 of a-z, 0-9 and '-', no '-' at the ends")
_ENV = text(_VARIABLE, "use names of environment variables, but not hpq's own (HPQ_…)")

TOP: Mapping[str, Check] = {
    "method": method,
    "parameters": anything,
    "program": text(),
    "command": listing(text(), 'words, such as ["${env}", "python", "${program}", "${args}"]'),
    "metric": anything,
    "early_terminate": anything,
    "run_cap": whole(1, 2**31),
    "name": _NAME,
    "description": text(),
    "project": text(),
    "entity": text(),
    "apiVersion": text(),
    "kind": word("sweep"),
    "trainer": text(),
    "code": text(),
    "queue": _QUEUE,
    "owner": text(re.compile(r"[^\x00-\x20\x7f]{1,64}\Z"), "use 1 to 64 characters, no spaces"),
    "seed": whole(0, 2**63 - 1),
    "order": word("grid", "shuffle"),
    "priority": whole(-1000, 1000),
    "max_parallel": whole(0, 100_000),
    "retries": whole(0, 100),
    "timeout": duration,
    "stall": duration,
    "keep": anything,
    "pass_env": listing(_ENV, "names of environment variables"),
    "resident": flag,
    "replicates": anything,
    "when": anything,
    "exclude": anything,
    "points": anything,
}
METRIC: Mapping[str, Check] = {
    "name": text(METRIC_NAME, "use 1 to 64 of A-Z a-z 0-9 _ . / - and space"),
    "goal": word(*(goal.value for goal in Goal)),
    "target": number(),
    "impute": word("latest", "best", "worst"),
    "impute_while_running": lambda value: (
        None if value is False else word("latest", "best", "worst", "false")(value)
    ),
    "value": word(*(take.value for take in Take)),
}
KEEP: Mapping[str, Check] = {"best": whole(0, 10_000), "last": whole(0, 10_000)}
PARAMETER: Mapping[str, Check] = {
    "distribution": anything,
    "value": anything,
    "values": anything,
    "probabilities": listing(number(least=0), "numbers of at least 0"),
    "min": number(),
    "max": number(),
    "mu": number(),
    "sigma": number(least=0),
    "q": number(0),
    "a": number(0),
    "b": number(0),
    "parameters": anything,
}
LATER = frozenset({"replicates", "when", "exclude", "points"})
REFUSED: Mapping[str, str] = {
    "scheduler": "hpq is the scheduler; remove it",
    "job": "W&B Launch jobs are not run; name a program or a trainer",
    "image_uri": "a worker's image is chosen where the worker is deployed; remove it",
    "controller": "hpq needs no W&B controller; remove it",
    "metrics": "a sweep has one metric; write metric: {name: …, goal: …}",
}


def check(data: Mapping[str, Json], table: Mapping[str, Check], path: Path, out: Problems) -> None:
    """Note every key that the table lacks and every value that it does not allow."""
    for key, value in data.items():
        here = (*path, key)
        if key in table:
            wrong = table[key](value)
            if wrong:
                out.add(here, wrong)
        elif not path and key in REFUSED:
            out.add(here, f"not taken: {REFUSED[key]}")
        else:
            out.add(here, f"unknown key{nearest(key, table) or '; allowed: ' + ', '.join(table)}")


def nearest(value: Json, known: Mapping[str, object] | tuple[str, ...]) -> str:
    """'; did you mean …?' where one of the known words is close, else nothing."""
    close = get_close_matches(value, list(known), n=1) if isinstance(value, str) else []
    return f"; did you mean {close[0]!r}?" if close else ""
