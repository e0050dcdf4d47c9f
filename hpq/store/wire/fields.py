"""Decode the fields of a Redis hash, and encode texts, numbers and the named fields of scripts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cache
from typing import Any, TypeVar

from hpq.domain.identity import SWEEP_ID
from hpq.domain.sweep import Counts
from hpq.errors import DecodeError

T = TypeVar("T")
Row = Mapping[bytes, bytes]
MOST_TEXT = 1_000

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


@cache
def _plain_fields(kind: type[Any]) -> list[tuple[str, bytes, Callable[..., Any], Any]]:
    """Return name, field, parser and default of each."""
    parsers: dict[Any, Callable[..., Any]] = {"str": cut, "int": int, "float": float}
    found = [(field.name, parsers[field.type]) for field in fields(kind) if field.type in parsers]
    return [(name, name.encode(), parse, parse()) for name, parse in found]


@contextmanager
def decoding(key: str) -> Iterator[None]:
    """Name the key in an error about what it holds.

    Raises:
        DecodeError: a field is missing, or not the number that it should be.
    """
    try:
        yield
    except (KeyError, ValueError) as error:
        raise DecodeError(f"{key}: {error}") from None


class Reader:
    """Reads the fields of one hash; an error names the key and the field."""

    def __init__(self, key: str, row: Row) -> None:
        self.key, self.row = key, row

    def _take(self, field: str, default: T, parse: Callable[[str], T]) -> T:
        raw = self.row.get(field.encode())
        if raw is None or raw == b"":
            return default
        try:
            return parse(raw.decode())
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DecodeError(f"{self.key}: field {field}: {raw[:60]!r}: {error}") from None

    def text(self, field: str) -> str:
        return self._take(field, "", cut)

    def whole(self, field: str) -> int:
        return self._take(field, 0, int)

    def real(self, field: str) -> float:
        return self._take(field, 0.0, float)

    def plain(self, kind: type[Any], but: Sequence[str]) -> dict[str, Any]:
        """Return the fields of a dataclass that are texts, integers or floats, except `but`."""
        found = _plain_fields(kind)  # type: ignore[arg-type]
        return {
            name: self._take(name, default, parse) if field in self.row else default
            for name, field, parse, default in found
            if name not in but
        }

    def counts(self, queued: int, running: int, dropped: int) -> Counts:
        """Return a sweep's counts, from its hash and the sizes of its sorted sets."""
        counts = Counts(
            queued=queued,
            running=running,
            finished=self.whole("n_finished"),
            failed=self.whole("n_failed"),
            pruned=self.whole("n_pruned"),
            cancelled=self.whole("n_cancelled") + dropped,
            diverged=self.whole("n_diverged"),
        )
        if not self.text("sampler") or self.text("no_more"):
            return counts
        cap = self.whole("run_cap")
        return replace(counts, to_come=max(0, cap - counts.total) if cap else math.inf)

    def json(self, field: str, default: Any) -> Any:
        return self._take(field, default, json.loads)

    def parse(self, field: str, default: T, parse: Callable[[str], T]) -> T:
        return self._take(field, default, parse)

    def reals(self, prefix: bytes) -> dict[str, float]:
        """Return every field that begins with a prefix, named by the rest of its name."""
        names = [name.decode() for name in self.row if name.startswith(prefix)]
        return {name[len(prefix) :]: self.real(name) for name in names}


def trial_numbers(key: str, members: Iterable[bytes | int]) -> list[int]:
    """Decode the numbers of trials that a key holds; raises as `decoding`."""
    with decoding(key):
        return [int(n) for n in members]


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
