"""The values of a command's options and arguments, by the types in its signature.

typer would convert them with pydantic, whose import took a quarter of the CPU time of `hpq ls`, and
which is needed for sweep files alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, get_args

from typer.models import ParameterInfo

from hpq.errors import UserError

_EXPECTED: dict[Any, str] = {int: "a whole number, such as 3", float: "a number, such as 0.5"}


@dataclass(frozen=True, slots=True)
class ValueType:
    """The type of an option's value, or of each one of several, and its limits."""

    kind: Any
    low: float | None = None
    high: float | None = None

    @property
    def has_names(self) -> bool:
        """True for an enumeration, whose values are a few names."""
        return hasattr(self.kind, "__members__")

    def read(self, value: Any, name: str) -> Any:
        """Return a value as this type.

        Raises:
            UserError: it is none; the message begins with the option's name.
        """
        try:
            found = self.kind(value)
        except ValueError:
            names = ", ".join(map(str, self.kind)) if self.has_names else ""
            what = _EXPECTED.get(self.kind) or f"one of {names}"
            raise UserError(f"{name}: write {what}") from None
        if self.low is not None and not found >= self.low:  # also NaN
            raise UserError(f"{name}: write {self.low:g} or more")
        if self.high is not None and found > self.high:
            raise UserError(f"{name}: write {self.high:g} or less")
        return found


def value_types(command: Callable[..., Any]) -> dict[str, ValueType]:
    """Return the type of each option and argument of a command's function, by its name."""
    found = {}
    for name, parameter in signature(command, eval_str=True).parameters.items():
        kind = parameter.annotation
        limits = None
        for note in getattr(kind, "__metadata__", ()):  # of Annotated[…, Option(…)]
            if isinstance(note, ParameterInfo):
                limits = note
        while inner := get_args(kind):  # of Annotated, list[…] and … | None
            kind = inner[0]
        found[name] = ValueType(kind, limits.min, limits.max) if limits else ValueType(kind)
    return found
