"""Styled text: lines of spans that know how to become plain or colored strings. Pure.

Color only ever adds to what the words say. A line is cut to its width before it is colored, so
no escape sequence is ever cut through.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from rich.cells import chop_cells

from hpq.sanitize import CONTROL
from hpq_views.text.text import fit, width

_WORD = re.compile(r"\s+|\S+")


class Style(StrEnum):
    """The style of a span; the value is its name in rich."""

    PLAIN = ""
    BOLD = "bold"
    DIM = "dim"
    RED = "red"
    GREEN = "green"
    YELLOW = "yellow"
    CYAN = "cyan"
    REVERSE = "reverse"


_SGR = dict(zip(Style, ("", "1", "2", "31", "32", "33", "36", "7"), strict=True))


class Span(NamedTuple):
    """A piece of a line; its text is clean already."""

    text: str
    style: Style = Style.PLAIN


Line = Sequence[Span]


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalInfo:
    """The width, height and abilities of the terminal or file that text is written to."""

    columns: int = 80
    rows: int = 24
    tty: bool = False
    color: bool = False


def plain(line: Line) -> str:
    """Return the text of a line."""
    return "".join(span.text for span in line)


def cut(line: Line, terminal: TerminalInfo) -> list[Span]:
    """Cut a line to the terminal's width."""
    text = plain(line)
    if width(text) <= terminal.columns and not CONTROL.search(text):  # most lines of long tables
        return list(line)
    out, left = [], terminal.columns
    for span in line:
        text = fit(CONTROL.sub(" ", span.text), left)
        left -= width(text)
        out.append(Span(text, span.style))
        if left <= 0:
            break
    return out


def paint(line: Line, terminal: TerminalInfo) -> str:
    """Return a line as text: cut to the terminal, colored if the terminal shows color."""
    out = [
        f"\x1b[{_SGR[span.style]}m{span.text}\x1b[0m"
        if terminal.color and span.style and span.text.strip()
        else span.text
        for span in cut(line, terminal)
    ]
    return "".join(out).rstrip(" ")


def flow(items: Sequence[Line], columns: int, gap: str = "  ") -> list[Line]:
    """Join items into as few lines as possible; no item is broken."""
    lines: list[list[Span]] = []
    used = 0
    for item in items:
        size = width(plain(item))
        if lines and used + len(gap) + size <= columns:
            lines[-1] += [Span(gap), *item]
            used += len(gap) + size
        else:
            lines.append(list(item))
            used = size
    return list(lines)


def fold(line: Line, columns: int) -> list[Line]:
    """Break a line into as many as needed, between words if possible.

    Further lines are indented to the last span, which is the value behind a label.
    """
    if width(plain(line)) <= columns:
        return [line]
    begin = width(plain(line[:-1]))
    blanks = " " * (begin if begin <= columns // 2 else 4)
    lines: list[list[Span]] = [[]]
    used = 0
    for span in line:
        for word in _WORD.findall(span.text):
            for piece in chop_cells(word, columns - len(blanks)):
                if used + width(piece) > columns and not piece.isspace():
                    lines.append([Span(blanks)])
                    used = len(blanks)
                elif used + width(piece) > columns:
                    continue
                lines[-1].append(Span(piece, span.style))
                used += width(piece)
    return list(lines)
