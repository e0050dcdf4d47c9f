"""Where things stand in a sweep file, and what is wrong with them, one line each.

A path is a tuple such as ("parameters", "lr", "values", 2). An entry of a mapping stands where its
key begins, an item of a list where it begins; what came from the command line stands at its flag.
Every line is `place: path: what is wrong, what is allowed` and holds no control characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hpq.codes import Code
from hpq.errors import SweepFileError
from hpq.notice import Notice

KeyPath = tuple[str | int, ...]
Position = tuple[int, int]  # line and column, from 1
Placed = tuple[Position, Notice]

MAX_LINES = 10
MAX_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """A file's name, where each path stands in it, and the flags that set some paths instead."""

    file: str
    positions: Mapping[KeyPath, Position] = field(default_factory=dict)
    flags: Mapping[KeyPath, str] = field(default_factory=dict)

    def find(self, path: KeyPath) -> tuple[Position, str]:
        """The nearest known place at or above the path: its position (flags first) and text."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.flags:
                return (0, 0), self.flags[path[:end]]
            if path[:end] in self.positions:
                line, col = self.positions[path[:end]]
                return (line, col), f"{self.file}:{line}:{col}"
        return (1, 1), f"{self.file}:1:1"


@dataclass(slots=True)
class Problems:
    """Collects what is wrong with a file, so that one reading tells all of it."""

    places: Places
    errors: list[Placed] = field(default_factory=list)
    warnings: list[Placed] = field(default_factory=list)

    def add(self, path: KeyPath, text: str, *, code: Code = "invalid-value") -> None:
        """Note an error at a path."""
        self.errors.append(self._placed(path, text, code))

    def warn(self, path: KeyPath, text: str, *, code: Code) -> None:
        """Note something that is taken but is probably not what was meant."""
        self.warnings.append(self._placed(path, text, code))

    def check(self) -> None:
        """Nothing where no error was noted.

        Raises:
            SweepFileError: the first ten errors in the file's order, one a line.
        """
        if not self.errors:
            return
        found = _in_order(self.errors)
        if len(found) > MAX_LINES:
            more = f"{self.places.file}: and {len(found) - MAX_LINES} more"
            found[MAX_LINES:] = [Notice("more-problems", more)]
        raise SweepFileError(problems=found)

    def warned(self) -> tuple[Notice, ...]:
        """The warnings in the file's order, without repeats."""
        return tuple(_in_order(self.warnings))

    def _placed(self, path: KeyPath, text: str, code: Code) -> Placed:
        position, place = self.places.find(path)
        where = f"{place}: {dotted(path)}" if path else place
        return position, Notice(code, printable(f"{where}: {text}"))


def _in_order(found: Iterable[Placed]) -> list[Notice]:
    ordered = sorted(found, key=lambda one: (one[0], one[1].text))
    return list(dict.fromkeys(notice for _, notice in ordered))


def dotted(path: KeyPath) -> str:
    """A path as text: parameters.lr.values[2]."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def printable(text: str) -> str:
    """The text on one line, with what a terminal would act on written as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(value: object) -> str:
    """A value as the file would write it, cut to fit a line."""
    words = {True: "true", False: "false", None: "null"}
    text = words[value] if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"
