"""Parse the KEY=VALUE arguments of `hpq set`: the limits and labels of a sweep."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches

from hpq.domain.sweep import MAX_PRIORITY
from hpq.errors import UserError
from hpq.store.wire.fields import dumps, number
from hpq_producer.sweepfile.schema import MAX_PARALLEL, MAX_RETRIES, TOP
from hpq_producer.sweepfile.values import UNIT_S, duration, seconds

_TAG = re.compile(r"[A-Za-z0-9_.:-]{1,40}")


def check_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the tags without repetitions.

    Raises:
        UserError: a tag is malformed.
    """
    for tag in tags:
        if not _TAG.fullmatch(tag):
            raise UserError(f"--tag {tag}: use 1 to 40 characters of A-Z a-z 0-9 _ . : -")
    return tuple(dict.fromkeys(tags))


def _whole(low: int, high: int) -> Callable[[str], str]:
    def check(text: str) -> str:
        if not re.fullmatch(r"-?\d+", text) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return text

    return check


def parse_age_s(text: str) -> float:
    """Parse the age of `hpq rm --older` into seconds.

    Raises:
        UserError: it is no duration.
    """
    if duration(value := _number(text)):
        raise UserError(f"--older {text}: write a duration such as 12h or 7d")
    return seconds(value)


def _seconds(text: str) -> str:
    if duration(value := _number(text)):
        raise ValueError("a duration such as 90s, 15m or 2h (0: no limit; at most a year)")
    return number(seconds(value))


def _number(text: str) -> float | str:
    """Return a bare number of seconds as a number."""
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else text


def _tags(text: str) -> str:
    words = [word for word in text.split(",") if word]
    if not all(_TAG.fullmatch(word) for word in words):
        raise ValueError("words of A-Z a-z 0-9 _ . : - separated by commas (empty: no tags)")
    return dumps(list(dict.fromkeys(words)))


_KEYS: Mapping[str, tuple[str, Callable[[str], str]]] = {
    "run_cap": ("run_cap", _whole(0, 2**31)),
    "max_parallel": ("max_parallel", _whole(0, MAX_PARALLEL)),
    "priority": ("priority", _whole(-MAX_PRIORITY, MAX_PRIORITY)),
    "retries": ("retries", _whole(0, MAX_RETRIES)),
    "timeout": ("timeout_s", _seconds),
    "stall": ("stall_s", _seconds),
    "tags": ("tags", _tags),
}

_CLOSE = 0.75  # similarity of a typo; at difflib's 0.6, metric would match retries
_METRIC = frozenset({"metric", "goal"})
_DURATIONS = frozenset({"timeout_s", "stall_s"})


def limits(changes: Sequence[str]) -> dict[str, str]:
    """Return the fields of a sweep that KEY=VALUE words set.

    Raises:
        UserError: a key is unknown or a value is not allowed; the text names the allowed ones.
    """
    fields: dict[str, str] = {}
    for text in changes:
        key, equals, value = text.partition("=")
        if not equals or key not in _KEYS:
            raise _no_limit(text, key)
        name, check = _KEYS[key]
        try:
            fields[name] = check(value)
        except ValueError as error:
            raise UserError(f"{key}={value}: use {error}", code="invalid-value") from None
    if not fields:
        raise UserError(f"no KEY=VALUE: write at least one, KEY one of {', '.join(_KEYS)}")
    return fields


def _no_limit(text: str, key: str) -> UserError:
    if key.partition(".")[0] in _METRIC:
        return UserError(
            f"{text}: a sweep's metric is fixed; change it in the file and run: hpq enqueue FILE"
            " --reuse (which copies the finished trials instead of training them again)",
            code="limit-fixed",
        )
    if key in TOP and key not in _KEYS and key != "name":
        message = f"{text}: {key} is fixed; edit the file and enqueue it: hpq enqueue FILE"
        return UserError(message, code="limit-fixed")
    close = get_close_matches(key, _KEYS, n=1, cutoff=_CLOSE)
    hint = f"; did you mean {close[0]}?" if close else ""
    line = f"{text}: write KEY=VALUE, KEY one of {', '.join(_KEYS)}{hint}"
    return UserError(line, code="unknown-key")


def in_words(fields: Mapping[str, str]) -> str:
    """Return fields of a sweep as KEY=VALUE words: `stall=2h retries=1`."""
    keys = {field: key for key, (field, _) in _KEYS.items()}
    return " ".join(
        f"{keys.get(name, name)}={_duration(text) if name in _DURATIONS else text}"
        for name, text in fields.items()
    )


def _duration(text: str) -> str:
    try:
        seconds = float(text)
    except ValueError:  # written by a newer hpq
        return text
    for unit in "dhm":
        if seconds and seconds % UNIT_S[unit] == 0:
            return f"{seconds / UNIT_S[unit]:g}{unit}"
    return f"{seconds:.12g}s"
