"""Escape characters of foreign text that could control a terminal, or mislead a reader."""

from __future__ import annotations

import re
import sys
from typing import Any, TextIO, cast

# C0, DEL, C1, line separators, and marks that reverse the direction of text.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Return the text with such characters as Python writes them (`\\x1b`); line ends stay."""
    return CONTROL.sub(lambda found: found[0] if found[0] == "\n" else ascii(found[0])[1:-1], text)


PAGE_OF_ERRORS = "https://github.com/hpq-project/hpq/blob/main/docs/reference/errors.md"
_LINK = rf"\x1b\]8;;(?:{re.escape(PAGE_OF_ERRORS)}#[a-z0-9-]+)?\x1b\\"
# Colors, line ends and these links, all that lines of hpq need; what conceals text is no color.
_ALLOWED = re.compile(rf"(\x1b\[(?:(?:[0-4]|7|[39][0-7]|4[0-7])(?:;|(?=m)))*m|\t|\r?\n|{_LINK})")


class GuardedStream:
    """A text stream to a terminal that escapes control characters, whoever writes them."""

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream

    def write(self, text: str) -> int:
        """Write a text; line ends, tabs and colors stay."""
        parts = _ALLOWED.split(text)
        parts[::2] = map(visible, parts[::2])
        return self.unguarded.write("".join(parts))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


def guard_terminals() -> None:
    """Guard stdout and stderr where they are terminals."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream.isatty():
            setattr(sys, name, GuardedStream(stream))


def unguarded(stream: TextIO) -> TextIO:
    """Return the stream itself, for a part that moves the cursor and cleans its own text."""
    return cast("TextIO", getattr(stream, "unguarded", stream))
