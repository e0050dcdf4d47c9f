"""Decode the fields of a Redis hash, and encode texts, numbers and the named fields of scripts.

Any client of Redis may have written what is decoded. Whatever that is, the result is a value as hpq
writes it, or a DecodeError: `decoding` and `Reader` turn every error of a decoder into one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from hpq.domain.identity import SWEEP_ID
from hpq.domain.sweep import Counts
from hpq.errors import DecodeError

T = TypeVar("T")
Row = Mapping[bytes, bytes]
MOST_TEXT = 1_000
_LARGEST = 2**63 - 1  # of whole numbers: pandas and numpy hold no larger one
MOST = 10**14  # of what is counted, and of the milliseconds that a trial runs
_LAST_MS = 253_402_300_799_999  # the end of the year 9999, the last that `datetime` has
_MOST_SECONDS = 1e9  # a sweep file has at most a year
_DEEPEST = 100  # levels of JSON: a sweep file has at most 20
_DIGITS = 308  # of a whole number in JSON, which then fits a float
_WHY = 200  # characters of an error, which may quote what it could not read
_MISREAD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

# A named argument of a script, sent in JSON. Numbers are text, because Lua would round them to
# doubles. None is omitted: the script reads nil.
Field = str | int | float | Sequence[str] | Mapping[str, "Field"] | None


def encode_fields(named: Mapping[str, Field]) -> bytes:
    """Encode named fields for a script: a JSON object of texts, booleans, lists and objects."""
    return json.dumps(_plain(named), ensure_ascii=False, separators=(",", ":")).encode()


def _plain(value: Field) -> object:
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items() if one is not None}
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return repr(value) if is_number else value


def cut(text: str = "") -> str:
    """Return a text of at most 1,000 characters, as a longer one would flood every view."""
    return f"{text[:MOST_TEXT]}…" if text[MOST_TEXT:] else text


@contextmanager
def decoding(where: str) -> Iterator[None]:
    """Name the place, a key or a field, in an error about what it holds.

    Raises:
        DecodeError: the block, which decodes, failed.
    """
    try:
        yield
    except _MISREAD as error:
        raise _unreadable(where, error) from None


def _unreadable(where: str, error: Exception) -> DecodeError:
    return DecodeError(f"{where}: {str(error)[:_WHY]}")


def whole(text: str | bytes | int) -> int:
    """Decode a whole number of 64 bits.

    Raises:
        ValueError: the text is none.
    """
    number = int(text.encode() if isinstance(text, str) else text)  # of bytes, ASCII digits alone
    if abs(number) > _LARGEST:
        raise ValueError("the number has more than 64 bits")
    return number


def count(text: str | bytes | int) -> int:
    """Decode a whole number from 0 to 10^14; raises as `whole`."""
    number = whole(text)
    if not 0 <= number <= MOST:
        raise ValueError("the number is negative or too large")
    return number


def moment(text: str | bytes | int) -> int:
    """Decode a time in milliseconds since 1970, until the year 9999; raises as `whole`."""
    number = whole(text)
    if not 0 <= number <= _LAST_MS:
        raise ValueError("the time is not from 1970 to 9999")
    return number


def real(text: str | bytes) -> float:
    """Decode a finite number.

    Raises:
        ValueError: the text is none.
    """
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("the number is not finite")
    return value


def seconds(text: str) -> float:
    """Decode a limit of time, 0: none; raises as `real`."""
    found = real(text)
    if not 0 <= found <= _MOST_SECONDS:
        raise ValueError("no limit of time")
    return found


def _digits(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"a number has {len(text)} digits")
    return int(text)


_JSON = json.JSONDecoder(parse_float=real, parse_int=_digits, parse_constant=real)


def loads(text: str) -> Any:
    """Decode JSON as hpq writes it: finite numbers, at most 100 levels, no half of a character.

    Raises:
        ValueError, RecursionError: the text is not that.
    """
    data = _JSON.decode(text)
    if text.count("[") + text.count("{") > _DEEPEST:
        _check_depth(data)
    if "\\u" in text:  # half of a surrogate pair is no text that can be printed
        json.dumps(data, ensure_ascii=False).encode()
    return data


def _check_depth(data: Any) -> None:
    level = [data]
    for _ in range(_DEEPEST):
        below = [one.values() if isinstance(one, dict) else one for one in level]
        level = [inner for some in below for inner in some if isinstance(inner, dict | list)]
        if not level:
            return
    raise ValueError(f"more than {_DEEPEST} levels")


def mapping(text: str) -> dict[str, Any]:
    """Decode a JSON object; raises as `loads`."""
    data = loads(text)
    if not isinstance(data, dict):
        raise ValueError("not a mapping")
    return data


class Reader:
    """Reads the fields of one hash; an error names the key and the field.

    A field that is missing or empty has the value of a new record: "", 0 or a given default.
    """

    def __init__(self, key: str, row: Row) -> None:
        self.key, self.row = key, row

    def parse(self, field: str, default: T, parse: Callable[[str], T]) -> T:
        """Return a field as `parse` decodes it.

        Raises:
            DecodeError: `parse` failed.
        """
        raw = self.row.get(field.encode())
        if not raw:
            return default
        try:
            return parse(raw.decode())
        except _MISREAD as error:
            raise _unreadable(f"{self.key}: field {field}: {raw[:60]!r}", error) from None

    def text(self, field: str) -> str:
        return self.parse(field, "", cut)

    def whole(self, field: str) -> int:
        return self.parse(field, 0, whole)

    def count(self, field: str) -> int:
        return self.parse(field, 0, count)

    def moment(self, field: str) -> int:
        return self.parse(field, 0, moment)

    def real(self, field: str) -> float:
        return self.parse(field, 0.0, real)

    def seconds(self, field: str) -> float:
        return self.parse(field, 0.0, seconds)

    def counts(self, queued: int, running: int, dropped: int) -> Counts:
        """Return a sweep's counts, from its hash and the sizes of its sorted sets."""
        counts = Counts(
            queued=queued,
            running=running,
            finished=self.count("n_finished"),
            failed=self.count("n_failed"),
            pruned=self.count("n_pruned"),
            cancelled=self.count("n_cancelled") + dropped,
            diverged=self.count("n_diverged"),
        )
        if not self.text("sampler") or self.text("no_more"):
            return counts
        cap = self.count("run_cap")
        return replace(counts, to_come=max(0, cap - counts.total) if cap else math.inf)

    def named(self, prefix: bytes, parse: Callable[[str], T]) -> dict[str, T]:
        """Return every field that begins with a prefix, by the rest of its name.

        Raises:
            DecodeError: a name is no text, or `parse` failed.
        """
        found = {}
        for name, raw in self.row.items():
            if name.startswith(prefix):
                with decoding(f"{self.key}: field {name[:60]!r}: {raw[:60]!r}"):
                    found[cut(name[len(prefix) :].decode())] = parse(raw.decode())
        return found


def trial_numbers(key: str, members: Iterable[bytes | int]) -> list[int]:
    """Decode the numbers of trials that a key holds; raises as `decoding`."""
    with decoding(key):
        return [count(n) for n in members]


def sweep_id(raw: bytes) -> str:
    """Decode a sweep's id: paths and messages contain it.

    Raises:
        DecodeError: hpq gives no sweep such an id.
    """
    text = raw.decode("utf-8", "replace")
    if SWEEP_ID.match(text):
        return text
    raise DecodeError(f"{raw[:60]!r} is not the id of a sweep")


def dumps(value: Any) -> str:
    """Encode as compact JSON with sorted keys; NaN raises ValueError."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def dumps_in_order(value: Any) -> str:
    """Encode as compact JSON with keys in their order; NaN raises ValueError."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def number(value: float) -> str:
    """Encode a float as the shortest text that decodes to the same float."""
    return repr(float(value))


def numbers(values: Iterable[float]) -> str:
    """Encode floats as one text, separated by spaces."""
    return " ".join(map(number, values))


def flatten(pairs: Mapping[str, str] | Sequence[tuple[str, str]]) -> list[str]:
    """Return [k, v, k, v, …], as scripts take the fields of a hash."""
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    return [part for pair in items for part in pair]
