"""Quote words for POSIX shells: dash, bash, zsh and busybox sh read the same words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from hpq.errors import UserError
from hpq.sanitize import CONTROL

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
