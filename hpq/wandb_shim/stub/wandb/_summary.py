"""`run.summary`: the last value of each metric, and what the script sets itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any


class Summary:
    """A mapping whose items are attributes, too; `told` hears what the script sets."""

    def __init__(self, told: Callable[[Mapping[str, Any]], None]) -> None:
        object.__setattr__(self, "_items", {})
        object.__setattr__(self, "_told", told)

    def _note(self, values: Mapping[str, Any]) -> None:
        """Take what was logged."""
        self._items.update(values)

    def update(self, d: Mapping[str, Any]) -> None:
        self._items.update(d)
        self._told(d)

    def keys(self) -> list[str]:
        return list(self._items)

    def items(self) -> list[tuple[str, Any]]:
        return list(self._items.items())

    def get(self, key: str, default: Any = None) -> Any:
        return self._items.get(key, default)

    def _as_dict(self) -> dict[str, Any]:
        return dict(self._items)

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __getattr__(self, key: str) -> Any:
        try:
            return self.__dict__["_items"][key]
        except KeyError:
            raise AttributeError(f"the summary has no {key!r} yet") from None

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    __setattr__ = __setitem__

    def __delitem__(self, key: str) -> None:
        del self._items[key]

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __repr__(self) -> str:
        return str(self._items)
