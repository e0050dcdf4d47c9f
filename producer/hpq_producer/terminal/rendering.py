"""Draw lines and tables with rich. Pure; the layout decides columns and widths."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from hpq.sanitize import CONTROL
from hpq_producer.terminal.style import Line, Span, TerminalInfo, cut
from hpq_producer.terminal.tables import GAP, Layout
from hpq_producer.terminal.text import pad


def text_of(line: Line, terminal: TerminalInfo) -> Text:
    """Return a line, cut to the terminal; its markup stays text."""
    out = Text(no_wrap=True, overflow="crop")
    for span in cut(line, terminal):
        out.append(span.text, span.style or None)
    return out


def table_of(
    layout: Layout, rows: Sequence[Sequence[Span]], terminal: TerminalInfo, picked: int | None
) -> Table:
    """Return a table in this layout; the picked row is reversed."""
    # Cells bring their padding: rich takes twice the time to pad and to align them.
    table = Table(box=None, padding=0, pad_edge=False, header_style="bold")
    shown = [(c, n) for c, n in zip(layout.columns, layout.widths, strict=True) if n is not None]
    sizes = [(n + GAP * (i < len(shown) - 1), n, c.right) for i, (c, n) in enumerate(shown)]
    for (wide, size, right), title in zip(sizes, layout.titles(), strict=True):
        table.add_column(_cell(title, wide, size, right, terminal), width=wide, no_wrap=True)
    for place, row in enumerate(rows):
        cells = zip(layout.fitted(row), sizes, strict=True)
        style = "reverse" if place == picked else None
        # Reversed colours would be patches.
        plain = ((Span(cell.text) if style else cell, size) for cell, size in cells)
        table.add_row(*(_cell(cell, *size, terminal) for cell, size in plain), style=style)
    return table


@dataclass(frozen=True, slots=True)
class _Cell:
    """A padded cell of one line; a Text would be wrapped and measured once more."""

    text: str
    style: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Segment(self.text, console.get_style(self.style) if self.style else None)


def _cell(cell: Span, wide: int, size: int, right: bool, terminal: TerminalInfo) -> _Cell:
    text = pad(pad(CONTROL.sub(" ", cell.text), size, right=right), wide)
    return _Cell(text, cell.style)


def lines_of(frame: RenderableType, terminal: TerminalInfo) -> list[str]:
    """Render a frame as lines without trailing blanks."""
    console = Console(
        width=terminal.columns, height=10_000, force_terminal=terminal.colour, markup=False,
        color_system="standard" if terminal.colour else None, legacy_windows=False, emoji=False,
        highlight=False, file=io.StringIO(),
    )  # fmt: skip
    with console.capture() as captured:
        console.print(frame, end="")
    return [line.rstrip() for line in captured.get().rstrip("\n").split("\n")]


def print_frame(frame: RenderableType, terminal: TerminalInfo) -> None:
    """Print a frame on the normal screen, once."""
    for line in lines_of(frame, terminal):
        print(line)
