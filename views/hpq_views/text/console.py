"""Print tables and lines on the terminal that a command writes to.

Without a terminal a table is as wide as its content, or as COLUMNS, so that `| less -S` and
`| grep` lose nothing.
"""

from __future__ import annotations

import codecs
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from io import TextIOWrapper
from itertools import chain, islice
from typing import Any, TextIO

from hpq.notice import has_color
from hpq.sanitize import unguarded
from hpq_views.text.style import Line, Span, Style, TerminalInfo, fold, paint
from hpq_views.text.tables import Column, Layout, lay
from hpq_views.text.text import to_ascii, trials_of


def terminal_info(stream: TextIO, environ: Mapping[str, str]) -> TerminalInfo:
    """Describe a stream; `hpq.notice.has_color` decides the color."""
    is_tty = stream.isatty()
    size = shutil.get_terminal_size() if not is_tty else os.get_terminal_size(stream.fileno())
    columns, rows = size.columns or 80, size.lines or 24  # a pty may report 0x0
    return TerminalInfo(columns=columns, rows=rows, tty=is_tty, color=has_color(stream, environ))


def replace_unknown_characters() -> None:
    """Print characters that the encoding of stdout lacks as similar ones of ASCII."""
    codecs.register_error("hpq-ascii", _similar)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="hpq-ascii")


def _similar(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return to_ascii(error.object[error.start : error.end]), error.end


_ENDLESS = 100_000  # columns
_BLOCK = 500  # rows of a table that decide its widths


def stdout_info() -> TerminalInfo:
    """Describe stdout."""
    terminal = terminal_info(sys.stdout, os.environ)
    if terminal.tty or os.environ.get("COLUMNS", "").isdigit():
        return terminal
    return TerminalInfo(columns=_ENDLESS, rows=terminal.rows, color=False)


def show_lines(lines: Iterable[Line], *, whole: bool = False) -> None:
    """Print lines, cut to the terminal; `whole` wraps them instead."""
    terminal = stdout_info()
    for line in lines:
        for part in fold(line, terminal.columns) if whole else [line]:
            print(paint(part, terminal))


def show_table(
    columns: Sequence[Column], rows: Iterable[Sequence[Span]], *, explain: Collection[str] = ()
) -> None:
    """Print a table as the iterator yields its rows; the first 500 decide the columns' widths.

    A legend below the table has the full titles of `explain` that had to be shortened.
    """
    terminal, source = stdout_info(), iter(rows)
    first = list(islice(source, _BLOCK))
    layout = lay(columns, first, terminal.columns)
    show_lines(chain([layout.header()], map(layout.row, chain(first, source))))
    show_legend(layout, explain)


def show_legend(layout: Layout, names: Collection[str]) -> None:
    """Print the full names of shortened titles, and how many columns were dropped, if any."""
    gone, legend = layout.left_out(names), layout.legend(names)
    if words := ", ".join(filter(None, [f"+{trials_of(gone, 'column')}" if gone else "", legend])):
        show_lines([[Span(f"({words})", Style.DIM)]], whole=True)


def discard_stdout() -> None:
    """Send the rest of stdout to /dev/null if it cannot be written: a closed pipe, a full disk."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_LATE_S = 0.3  # work that ends sooner needs no bar, nor the 0.1 s that rich takes to import


@contextmanager
def progress_bar(total: int | None, what: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows how many of `total` are done; leaving takes the bar away."""
    draws_at = time.monotonic() + _LATE_S if sys.stderr.isatty() else math.inf
    bar: Any = None
    with ExitStack() as stack:

        def show(count: int) -> None:
            nonlocal bar
            if bar is None and time.monotonic() >= draws_at:
                rich = import_module("rich.progress")
                columns = rich.TextColumn("{task.description}"), rich.BarColumn(30)
                bar = rich.Progress(
                    *columns, rich.MofNCompleteColumn(), transient=True, redirect_stdout=False,
                    console=import_module("rich.console").Console(file=unguarded(sys.stderr)),
                )  # fmt: skip
                bar.add_task(what, total=total)
                stack.enter_context(bar)
            if bar is not None:
                bar.update(bar.task_ids[0], completed=count)

        yield show
