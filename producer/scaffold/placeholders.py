"""Values that `hpq init` left for a person to fill in: the plan warns, enqueue refuses. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from hpq.errors import UserError
from hpq.trial import Json


def unfilled(data: Json | Mapping[str, Json], path: str = "") -> Iterator[str]:
    """The dotted places of a sweep file's data that still hold a placeholder."""
    if isinstance(data, str):
        if data.startswith("<fill in") and data.endswith(">"):
            yield f"{path}: {data}"
    elif isinstance(data, Mapping):
        for key, inner in data.items():
            yield from unfilled(inner, f"{path}.{key}" if path else key)
    elif isinstance(data, list):
        for item in data:
            yield from unfilled(item, path)


def refuse_unfilled(data: Mapping[str, Json], file: Path) -> None:
    """Nothing where every placeholder was filled in.

    Raises:
        UserError: one was not (names the first and its place).
    """
    for place in unfilled(data):
        raise UserError(
            f"{file}: {place} is to be filled in before the sweep can start",
            code="value-to-fill-in",
        )
