"""Decode dataclasses from JSON, by a table that names the reader of each field.

A reader takes a value of JSON and returns it as the field holds it. It raises ValueError for a
value of another type. Names in the data that are no fields are ignored.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any, Generic, TypeVar

from hpq.store.wire.fields import loads

T = TypeVar("T")
W = TypeVar("W", bound=StrEnum)
Read = Callable[[Any], T]


class Record(Generic[T]):
    """Decodes one dataclass. A field that the data lack has the default of the dataclass."""

    def __init__(self, kind: type[T], /, **readers: Read[Any]) -> None:
        """`readers` has the reader of each field, by name.

        Raises:
            TypeError: a field has no reader, or a reader no field.
        """
        names = {one.name for one in fields(kind)}  # type: ignore[arg-type]
        if wrong := sorted(names ^ readers.keys()):
            raise TypeError(f"{kind.__name__}: no field, or no reader: {', '.join(wrong)}")
        self._kind = kind
        self._readers = readers

    def __call__(self, data: Any) -> T:
        """Decode a mapping.

        Raises:
            ValueError, TypeError: the data do not fit the dataclass (names the field).
        """
        if not isinstance(data, Mapping):
            raise ValueError("not a mapping")
        values = {}
        for name, read in self._readers.items():
            if name in data:
                try:
                    values[name] = read(data[name])
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from None
        return self._kind(**values)

    def parse(self, text: str) -> T:
        """Decode the text of a mapping; raises as a call, or RecursionError."""
        return self(loads(text))

    def values(self, one: T) -> dict[str, Any]:
        """Return the fields of a dataclass by name, as `dumps` encodes them."""
        return {name: getattr(one, name) for name in self._readers}


def text(value: object) -> str:
    """Return a text."""
    if isinstance(value, str):
        return value
    raise _wrong(value)


def flag(value: object) -> bool:
    """Return a truth value."""
    if isinstance(value, bool):
        return value
    raise _wrong(value)


def whole(value: object) -> int:
    """Return a whole number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _wrong(value)


def real(value: object) -> float:
    """Return a finite number; a whole one as it is, so that 10 and 10.0 stay different."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and abs(value) <= sys.float_info.max:  # type: ignore[arg-type]
        return value  # type: ignore[return-value]
    raise _wrong(value)


def anything(value: Any) -> Any:
    """Return a value of a field that may hold any JSON."""
    return value


def word(kind: type[W]) -> Read[W]:
    """Return the reader of a word of an enumeration."""
    return lambda value: kind(text(value))


def optional(read: Read[T]) -> Read[T | None]:
    """Return the reader of a value or null."""
    return lambda value: None if value is None else read(value)


def several(read: Read[T]) -> Read[tuple[T, ...]]:
    """Return the reader of a list of values."""

    def of(value: object) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise _wrong(value)
        return tuple(map(read, value))

    return of


def by_name(read: Read[T]) -> Read[dict[str, T]]:
    """Return the reader of values by name."""

    def of(value: object) -> dict[str, T]:
        if not isinstance(value, dict):
            raise _wrong(value)
        return {name: read(one) for name, one in value.items()}

    return of


def _wrong(value: object) -> ValueError:
    return ValueError(f"{str(value)[:80]} has the wrong type, or is not finite")
