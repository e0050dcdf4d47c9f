"""Notices: lines for the user, with ids that scripts and tests read; and messages on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

from hpq.error_codes import Code
from hpq.sanitize import PAGE_OF_ERRORS


@dataclass(frozen=True, slots=True)
class Notice:
    """A message for the user: its id, and a line of text with the remedy."""

    code: Code
    text: str

    def __str__(self) -> str:
        return tagged(self.text, self.code)

    def record(self) -> dict[str, str]:
        """Return the notice as `--json` shows it."""
        return {"code": self.code, "message": self.text}


def plural(count: float, noun: str, many: str = "") -> str:
    """Return a noun as it follows a count: `trial` after 1, else `trials`, or `many`."""
    return noun if count == 1 else many or f"{noun}s"


def tagged(text: str, code: Code) -> str:
    """Return a line as it is printed: the text, then the id in brackets."""
    return f"{text} [{code}]"


def has_color(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return False without a terminal, with NO_COLOR, or on a dumb terminal."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def linked(text: Notice | str) -> str:
    """Return a line for stderr; on a terminal with colors, its id links to the page of errors."""
    if not isinstance(text, Notice) or not has_color(sys.stderr, os.environ):
        return str(text)
    return f"{text.text} [\x1b]8;;{PAGE_OF_ERRORS}#{text.code}\x1b\\{text.code}\x1b]8;;\x1b\\]"


def print_message(text: Notice | str) -> None:
    """Print a message to stderr."""
    print(linked(text), file=sys.stderr)


def warn(text: Notice | str) -> None:
    """Print a warning to stderr."""
    print(f"warning: {linked(text)}", file=sys.stderr)
