"""Escape characters of foreign text that could control a terminal, or mislead a reader."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable
from typing import Any, TextIO, cast

from hpq.errors import UserError

# C0, DEL, C1, line separators, and marks that reverse the direction of text.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Return the text with such characters as Python writes them (`\\x1b`); line ends stay."""
    return CONTROL.sub(lambda found: found[0] if found[0] == "\n" else ascii(found[0])[1:-1], text)


_NOT_FOR_SHELLS = re.compile(rf"{CONTROL.pattern}|[\ud800-\udfff]")


def shell_line(words: Iterable[str], remedy: str = "") -> str:
    """Quote words for a line that every POSIX shell reads as these words.

    `remedy` is the command that prints a value which no line holds.

    Raises:
        UserError: a word has control characters, for which POSIX has no notation.
    """
    words = list(words)
    if bad := next(filter(_NOT_FOR_SHELLS.search, words), None):
        more = f"; `{remedy}` prints it as JSON" if remedy else ""
        text = f"{ascii(bad)[:80]}: a shell line cannot hold control characters{more}"
        raise UserError(text, code="value-not-for-shells")
    return " ".join(map(_quoted, words))


def shell_hint(words: Iterable[str]) -> str:
    """Quote the words of a command that a message names, with blanks for control characters."""
    return shell_line(_NOT_FOR_SHELLS.sub(" ", word) for word in words)


def _quoted(word: str) -> str:
    # zsh replaces a bare =ls by the path of ls.
    return f"'{word}'" if re.fullmatch(r"=[\w@%+=:,./-]*", word, re.ASCII) else shlex.quote(word)


# Colours and line ends, all that lines of hpq need; what conceals text is no colour.
_ALLOWED = re.compile(r"(\x1b\[(?:(?:[0-4]|7|[39][0-7]|4[0-7])(?:;|(?=m)))*m|\t|\r?\n)")


class GuardedStream:
    """A text stream to a terminal that escapes control characters, whoever writes them."""

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream

    def write(self, text: str) -> int:
        """Write a text; line ends, tabs and colours stay."""
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
