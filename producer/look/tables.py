"""Tables that fit: columns shrink, then the least needed ones go, before a line grows too wide.

Pure. Watch, ls, results, workers and summary lay their rows with it; the caller has cleaned every
text.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from producer.look.style import Line, Span, Style
from producer.look.text import abbreviate, pad, width

GAP = 2
_WORD = 6  # columns of a title that says as much as the whole: state, time, step


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: `keep` decides who goes first (low) where the width does not do for all.

    `least` is what its cells may be cut to; None = they are not cut (numbers).
    """

    title: str
    keep: int = 100
    right: bool = False
    least: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which columns are shown and how wide; fits any row of the table."""

    columns: Sequence[Column]
    widths: Sequence[int | None]  # None = left out

    @property
    def left_out(self) -> int:
        """How many columns did not fit."""
        return sum(w is None for w in self.widths)

    def header(self) -> Line:
        """The titles, shortened to their columns."""
        sizes = zip(self.columns, self.widths, strict=True)
        return self.row([Span(abbreviate(c.title, size or 0), Style.DIM) for c, size in sizes])

    def legend(self, names: Collection[str]) -> str:
        """What those names are in the titles that had to be shortened: `v_loss = val_loss`."""
        sizes = zip(self.columns, self.widths, strict=True)
        short = [(abbreviate(c.title, size), c.title) for c, size in sizes if size]
        return ", ".join(f"{shown} = {title}" for shown, title in short if shown != title in names)

    def row(self, cells: Sequence[Span]) -> Line:
        """One row as a line."""
        out: list[Span] = []
        for column, size, cell in zip(self.columns, self.widths, cells, strict=True):
            if size is None:
                continue
            if out:
                out.append(Span(" " * GAP))
            out.append(Span(pad(cell.text, size, right=column.right), cell.style))
        return out


def lay(columns: Sequence[Column], rows: Sequence[Sequence[Span]], total: int) -> Layout:
    """The layout that fits these rows into `total` columns of a terminal."""
    titles = [width(column.title) for column in columns]
    cells = [max((width(row[i].text) for row in rows), default=0) for i in range(len(columns))]
    floors = [
        max(1, min(title, 3), cell if column.least is None else min(cell, column.least))
        for column, title, cell in zip(columns, titles, cells, strict=True)
    ]
    shown = list(range(len(columns)))
    while len(shown) > 1 and _size([floors[i] for i in shown]) > total:
        shown.remove(min(shown, key=lambda i: (columns[i].keep, -i)))
    widths = {i: max(titles[i], cells[i]) for i in shown}
    # Long titles give first, then long values, and short titles only where nothing else is left.
    words = {i: max(floors[i], min(titles[i], _WORD)) for i in shown}
    _squeeze(widths, {i: max(cells[i], words[i]) for i in shown}, total)
    _squeeze(widths, words, total)
    _squeeze(widths, {i: floors[i] for i in shown}, total)
    return Layout(columns=columns, widths=[widths.get(i) for i in range(len(columns))])


def _size(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * max(0, len(widths) - 1)


def _squeeze(widths: dict[int, int], floors: Mapping[int, int], total: int) -> None:
    """Takes from whatever column is widest above its floor until the table fits."""
    while _size(list(widths.values())) > total:
        spare = [i for i in widths if widths[i] > floors[i]]
        if not spare:
            return
        widths[max(spare, key=lambda i: widths[i])] -= 1
