"""Decode dataclasses from JSON: each value must have the type of its field.

Names that are no fields are ignored.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from hpq.store.wire.fields import loads

T = TypeVar("T")
W = TypeVar("W", bound=StrEnum)


def record(kind: type[T], data: Any) -> T:
    """Decode a dataclass from a mapping, or from the text of one.

    Raises:
        ValueError, TypeError: the data do not fit the dataclass.
    """
    read = loads(data) if isinstance(data, str) else data
    if not isinstance(read, Mapping):
        raise ValueError("not a mapping")
    values = {}
    for name, hint in _typed_fields(kind):  # type: ignore[arg-type]
        if name in read:
            values[name] = _checked(hint, read[name], name)
    return kind(**values)


@cache
def _typed_fields(kind: type[Any]) -> list[tuple[str, Any]]:
    """Return name and type of each field."""
    hints = get_type_hints(kind)
    return [(f.name, hints[f.name]) for f in fields(kind)]


def _checked(hint: Any, value: Any, name: str) -> Any:
    """Return a value as its field holds it.

    Raises:
        ValueError: it has another type (names the field).
    """
    if _is_plain(hint, value):
        return value
    origin, args = _parts(hint)
    if origin in (Union, UnionType):
        kinds = [one for one in args if one is not NoneType]
        if len(kinds) > 1 or (value is None and len(kinds) < len(args)):  # Json may be anything
            return value
        return _checked(kinds[0], value, name)
    if origin is tuple and isinstance(value, list):
        return tuple(_checked(args[0], one, name) for one in value)
    if origin is Mapping and isinstance(value, dict):
        return {key: _checked(args[1], one, name) for key, one in value.items()}
    if is_dataclass(hint):
        return value if is_dataclass(value) else record(hint, value)  # type: ignore[arg-type]
    if isinstance(hint, type) and issubclass(hint, StrEnum) and isinstance(value, str):
        return hint(value)
    raise ValueError(f"{name}: {str(value)[:80]} has the wrong type, or is not finite")


@cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(hint), get_args(hint)


def _is_plain(hint: Any, value: object) -> bool:
    """Return whether a value is the text, truth value, integer or finite number that is wanted."""
    if isinstance(value, bool) or hint in (str, bool):
        return hint in (str, bool) and isinstance(value, hint)
    if hint is float:
        return isinstance(value, int | float) and abs(value) <= sys.float_info.max
    return hint is int and isinstance(value, int)
