"""Problems of a file and their positions, one line each.

A path is a tuple such as ("parameters", "lr", "values", 2). The position of a mapping's entry is
that of its key; an override's position is its command-line flag. Every line is
`position: path: what is wrong; what is allowed`, without control characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from hpq.error_codes import Code
from hpq.errors import SweepFileError
from hpq.notice import Notice

KeyPath = tuple[str | int, ...]
Position = tuple[int, int]  # line and column, from 1
Located = tuple[Position, Notice]

MAX_LINES = 10
MAX_SHOWN = 60
# JSON writes NUL as an escape, after an even number of backslashes.
_NO_ARGUMENT = re.compile(r"(?<!\\)(?:\\\\)*\\u0000|[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMap:
    """A file's name, the position of each path in it, and the flags that override paths."""

    file: str
    positions: Mapping[KeyPath, Position] = field(default_factory=dict)
    flags: Mapping[KeyPath, str] = field(default_factory=dict)

    def find(self, path: KeyPath) -> tuple[Position, str]:
        """Return the position, also as text, of the path or its nearest known parent.

        Flags sort first: their position is (0, 0). A dict of Python has no positions.
        """
        for end in range(len(path), -1, -1):
            if path[:end] in self.flags:
                return (0, 0), self.flags[path[:end]]
            if path[:end] in self.positions:
                line, col = self.positions[path[:end]]
                return (line, col), f"{self.file}:{line}:{col}"
        return (1, 1), f"{self.file}:1:1" if self.positions else self.file


@dataclass(slots=True)
class Problems:
    """Collect the errors and warnings of a file, so that one reading reports all of them."""

    source_map: SourceMap
    errors: list[Located] = field(default_factory=list)
    warnings: list[Located] = field(default_factory=list)

    def add(self, path: KeyPath, text: str, *, code: Code = "invalid-value") -> None:
        """Add an error at a path."""
        self.errors.append(self._located(path, text, code))

    def add_missing(self, path: KeyPath, text: str) -> None:
        """Add the error of a missing key."""
        self.add(path, text, code="missing-key")

    def add_conflict(self, path: KeyPath, text: str) -> None:
        """Add the error of a key that another key excludes."""
        self.add(path, text, code="conflicting-keys")

    def warn(self, path: KeyPath, text: str, *, code: Code) -> None:
        """Add a warning: hpq accepts the value, but the user probably meant another."""
        self.warnings.append(self._located(path, text, code))

    def drop_warnings(self, path: KeyPath, code: Code) -> None:
        """Drop the warnings of an id at a path and below it."""
        place = f": {dotted(path)}"
        self.warnings = [w for w in self.warnings if w[1].code != code or place not in w[1].text]

    def raise_errors(self) -> None:
        """Raise the errors, if there are any.

        Raises:
            SweepFileError: the first ten errors in the file's order, one per line; with their id if
                all errors have the same.
        """
        if not self.errors:
            return
        found = _in_order(self.errors)
        codes = {one.code for one in found}
        if len(found) > MAX_LINES:
            more = f"{self.source_map.file}: and {len(found) - MAX_LINES} more"
            found[MAX_LINES:] = [Notice("more-problems", more)]
        raise SweepFileError(problems=found, code=codes.pop() if len(codes) == 1 else None)

    def sorted_warnings(self) -> tuple[Notice, ...]:
        """Return the warnings in the file's order, without repeats."""
        return tuple(_in_order(self.warnings))

    def _located(self, path: KeyPath, text: str, code: Code) -> Located:
        position, label = self.source_map.find(path)
        is_named = not path or label.startswith(f"{dotted(path)}=")
        where = label if is_named else f"{label}: {dotted(path)}"
        return position, Notice(code, printable(f"{where}: {text}"))


def _in_order(found: Iterable[Located]) -> list[Notice]:
    ordered = sorted(found, key=lambda located: (located[0], located[1].text))
    return list(dict.fromkeys(notice for _, notice in ordered))


def dotted(path: KeyPath) -> str:
    """Format a path: parameters.lr.values[2]."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def printable(text: str) -> str:
    """Escape newlines and every other character that a terminal would act on."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(value: object) -> str:
    """Format a value as in YAML, cut to MAX_SHOWN characters."""
    words = {True: "true", False: "false", None: "null"}
    text = words[value] if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


def is_passable(encoded: str) -> bool:
    """Return whether JSON text has no NUL and no half of a surrogate pair: no argument can."""
    return not _NO_ARGUMENT.search(encoded)


def nearest(value: object, known: Iterable[str], form: str = "{}") -> str:
    """Return '; did you mean …?' if a known word is similar, else "".

    `form` formats the word as the file writes it.
    """
    if not isinstance(value, str):
        return ""
    words = tuple(known)
    prefixed = [word for word in words if len(value) > 2 and word.startswith(value)]
    close = prefixed if len(prefixed) == 1 else get_close_matches(value, words, n=1)
    return f"; did you mean {form.format(close[0])!r}?" if close else ""
