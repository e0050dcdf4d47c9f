"""How commands print: tables and lines that fit, JSON as data. Talk goes to stderr.

Off a terminal a table is as wide as its content, unless COLUMNS says otherwise, so that `| less -S`
and `| grep` lose nothing.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from hpq.codes import Notice
from producer.look.style import Line, Look, Span, Style, fold, paint
from producer.look.tables import Column, Layout, lay
from producer.look.terminal import look_of
from producer.look.text import trials_of

_ENDLESS = 100_000  # columns
_BLOCK = 500  # rows of a table that decide its widths


def stdout_look() -> Look:
    """What stdout can show."""
    look = look_of(sys.stdout, os.environ)
    if look.tty or os.environ.get("COLUMNS", "").isdigit():
        return look
    return Look(columns=_ENDLESS, rows=look.rows, colour=False, unicode=look.unicode)


def show_lines(lines: Iterable[Line], *, whole: bool = False) -> None:
    """Print lines, cut to the terminal; `whole` ones go on in the next line instead."""
    look = stdout_look()
    for line in lines:
        for part in fold(line, look.columns) if whole else [line]:
            print(paint(part, look))


def show_table(
    columns: Sequence[Column], rows: Iterable[Sequence[Span]], *, explain: Collection[str] = ()
) -> None:
    """Print a table as its rows come; the first few hundred decide how wide its columns are.

    Below it stands what those titles are in full that are to be explained and had to be shortened.
    """
    look, source = stdout_look(), iter(rows)
    first = list(islice(source, _BLOCK))
    layout = lay(columns, first, look.columns)
    show_lines(_table(layout, chain(first, source)))
    show_legend(layout, explain)


def show_legend(layout: Layout, names: Collection[str]) -> None:
    """Print what these names are in the titles that had to be shortened, and how many are left out.

    Nothing where all are there in full.
    """
    gone, legend = layout.left_out(names), layout.legend(names)
    if words := ", ".join(filter(None, [f"+{trials_of(gone, 'column')}" if gone else "", legend])):
        show_lines([[Span(f"({words})", Style.DIM)]], whole=True)


def _table(layout: Layout, rows: Iterable[Sequence[Span]]) -> Iterator[Line]:
    yield layout.header()
    for row in rows:
        yield layout.row(row)


def show_json(value: Any) -> None:
    """Print one JSON value, in ASCII: nothing in it can act on a terminal."""
    print(json.dumps(value, indent=2, allow_nan=False))


def show_json_rows(rows: Iterable[Any]) -> None:
    """Print a JSON array, an element a line, as the elements come."""
    ends = "["
    for row in rows:
        print(ends + "\n" + json.dumps(row, allow_nan=False), end="")
        ends = ","
    print("[]" if ends == "[" else "\n]")


def talk(text: str) -> None:
    """Say something that is not data."""
    print(text, file=sys.stderr)


def warn(text: Notice | str) -> None:
    """Print a warning to stderr."""
    print(f"warning: {text}", file=sys.stderr)
