"""Print tables and lines on the terminal that a command writes to.

Off a terminal a table is as wide as its content, unless COLUMNS says otherwise, so that `| less -S`
and `| grep` lose nothing.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TextIO

from hpq.notice import Notice
from hpq_producer.terminal.style import Line, Span, Style, TerminalInfo, fold, paint
from hpq_producer.terminal.tables import Column, Layout, lay
from hpq_producer.terminal.text import trials_of


def terminal_info(stream: TextIO, environ: Mapping[str, str]) -> TerminalInfo:
    """What a stream can show. No colour off a terminal, with NO_COLOR or on a dumb one."""
    is_tty = stream.isatty()
    size = shutil.get_terminal_size() if not is_tty else os.get_terminal_size(stream.fileno())
    columns, rows = size.columns or 80, size.lines or 24  # a pty may say 0x0
    colour = is_tty and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    shows = can_show(stream)
    return TerminalInfo(columns=columns, rows=rows, tty=is_tty, colour=colour, unicode=shows)


def can_show(stream: TextIO) -> bool:
    """True where the stream's encoding has the characters of curves and bars."""
    try:
        "▁█…─".encode(stream.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


_ENDLESS = 100_000  # columns
_BLOCK = 500  # rows of a table that decide its widths


def stdout_info() -> TerminalInfo:
    """What stdout can show."""
    terminal = terminal_info(sys.stdout, os.environ)
    if terminal.tty or os.environ.get("COLUMNS", "").isdigit():
        return terminal
    return TerminalInfo(
        columns=_ENDLESS, rows=terminal.rows, colour=False, unicode=terminal.unicode
    )


def show_lines(lines: Iterable[Line], *, whole: bool = False) -> None:
    """Print lines, cut to the terminal; `whole` ones go on in the next line instead."""
    terminal = stdout_info()
    for line in lines:
        for part in fold(line, terminal.columns) if whole else [line]:
            print(paint(part, terminal))


def show_table(
    columns: Sequence[Column], rows: Iterable[Sequence[Span]], *, explain: Collection[str] = ()
) -> None:
    """Print a table as its rows come; the first few hundred decide how wide its columns are.

    Below it stands what those titles are in full that are to be explained and had to be shortened.
    """
    terminal, source = stdout_info(), iter(rows)
    first = list(islice(source, _BLOCK))
    layout = lay(columns, first, terminal.columns)
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


def print_message(text: Notice | str) -> None:
    """Say something that is not data."""
    print(text, file=sys.stderr)


def warn(text: Notice | str) -> None:
    """Print a warning to stderr."""
    print(f"warning: {text}", file=sys.stderr)


def discard_stdout() -> None:
    """Send the rest of stdout to /dev/null: the reader of the pipe has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
