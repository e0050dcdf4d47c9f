"""Escape characters of foreign text that could control a terminal, or mislead a reader."""

from __future__ import annotations

import re

# C0, DEL, C1, line separators, and marks that reverse the direction of text.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Return the text with such characters as Python writes them (`\\x1b`); line ends stay."""
    return CONTROL.sub(lambda found: found[0] if found[0] == "\n" else ascii(found[0])[1:-1], text)
