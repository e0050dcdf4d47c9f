"""`run.summary`: the last value of each name, and what the script sets there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ._history import PLAIN, number_of


class Summary:
    """`run.summary`: the last value of each name, and values that the script sets.

    Items are attributes, too. Nested mappings are kept under names joined by '.', and a part of
    such a name gives the summary below it; `groups` are the names of mappings. `on_set` is called
    with the items that the script sets.
    """

    def __init__(
        self,
        on_set: Callable[[Mapping[str, Any]], None],
        items: dict[str, Any] | None = None,
        prefix: str = "",
        groups: set[str] | None = None,
    ) -> None:
        object.__setattr__(self, "_items", {} if items is None else items)
        object.__setattr__(self, "_groups", set() if groups is None else groups)
        object.__setattr__(self, "_on_set", on_set)
        object.__setattr__(self, "_prefix", prefix)

    def update(self, d: Mapping[str, Any]) -> None:
        new = self._joined(d, self._prefix)
        self._items.update(new)
        self._on_set(new)

    def keys(self) -> list[str]:
        return list(self._as_dict())

    def items(self) -> list[tuple[str, Any]]:
        return list(self._as_dict().items())

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def _as_dict(self) -> dict[str, Any]:
        start, found = self._prefix, {}
        for name in self._items:
            if name.startswith(start):
                ends = (i for i in range(len(start), len(name)) if name[i] == ".")
                end = next((i for i in ends if name[:i] in self._groups), None)
                key = name[len(start) : end]
                found[key] = self[key]
        return found

    def __getitem__(self, key: str) -> Any:
        name = f"{self._prefix}{key}"
        if name in self._items:
            return self._items[name]
        below = f"{name}."
        if any(other.startswith(below) for other in self._items):
            return Summary(self._on_set, self._items, below, self._groups)
        raise _NoItem(key)

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):  # copies look for methods before `_items` is there
            raise AttributeError(key)
        return self[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    __setattr__ = __setitem__

    def __delitem__(self, key: str) -> None:
        del self._items[f"{self._prefix}{key}"]

    def __contains__(self, key: str) -> bool:
        return self.get(key, self) is not self

    def __iter__(self) -> Iterator[str]:
        return iter(self._as_dict())

    def __repr__(self) -> str:
        return str(self._as_dict())

    def _joined(self, data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
        """Return nested mappings as one, with names joined by '.', and numbers as Python's."""
        found: dict[str, Any] = {}
        for key, value in data.items():
            name = f"{prefix}{key}"
            if isinstance(value, Mapping):
                self._groups.add(name)
                found.update(self._joined(value, f"{name}."))
            elif type(value) in PLAIN or number_of(value) is None:
                found[name] = value
            else:
                item = getattr(value, "item", None)
                found[name] = item() if callable(item) else value
        return found

    def _unboxed(self, data: Mapping[str, Any], but: Mapping[str, Any]) -> dict[str, Any]:
        """Return the numbers of logged data; `but` are no numbers."""
        items = self._joined(data).items()
        return {name: value for name, value in items if name not in but and value is not None}


class _NoItem(KeyError, AttributeError):
    """Raised for an item that is not there, also if it is read as an attribute."""
