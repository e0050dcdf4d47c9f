"""Print messages to stderr, which are no data of a command."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TextIO

from hpq.notice import Notice
from hpq.sanitize import PAGE_OF_ERRORS


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
