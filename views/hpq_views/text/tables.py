"""Tables that fit: columns shrink, then the least needed ones go, before a line grows too wide.

Pure. Watch, ls, results, workers and summary lay their rows with it; the caller has cleaned every
text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from hpq_views.text.style import Line, Span, Style, plain
from hpq_views.text.text import abbreviate, fit, is_number, narrowest, pad, rounded, width

GAP = 2
_WORD = 6  # columns of a title that says as much as the whole: state, time, step


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column; if the table is too wide, columns with the lowest `keep` are dropped first.

    `least` is what its words may be cut to, numbers among them are rounded instead; None = its
    cells stay as they are. `short` is its title as it is shown whatever the cells need; "" = the
    title is shortened to the cells. A `sparse` column without any text in a cell is left out.
    """

    title: str
    keep: int = 100
    right: bool = False
    least: int | None = None
    short: str = ""
    sparse: bool = False

    def shortened(self, columns: int) -> str:
        """Return the title as it is shown in this many columns."""
        return self.short or abbreviate(self.title, columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The columns that are shown, and their widths, for every row of a table."""

    columns: Sequence[Column]
    widths: Sequence[int | None]  # None = left out
    is_whole: bool  # nothing is left out, and every value stands as it is

    @property
    def titles(self) -> dict[str, str]:
        """The titles as they are shown, by the full title."""
        sizes = zip(self.columns, self.widths, strict=True)
        return {column.title: column.shortened(size) for column, size in sizes if size}

    def left_out(self, names: Collection[str]) -> int:
        """Count the columns with these titles that did not fit."""
        sizes = zip(self.columns, self.widths, strict=True)
        return sum(size is None and column.title in names for column, size in sizes)

    def header(self) -> Line:
        """Return the titles as a line, shortened to their columns."""
        sizes = zip(self.columns, self.widths, strict=True)
        return self._joined([Span(c.shortened(size or 0), Style.DIM) for c, size in sizes], fit)

    def legend(self, names: Collection[str]) -> str:
        """Explain the shortened titles of these names: `v_loss = val_loss`.

        Columns with the highest `keep` come first: the metric before parameters.
        """
        sizes = [(c, n) for c, n in zip(self.columns, self.widths, strict=True) if n]
        sizes.sort(key=lambda pair: -pair[0].keep)
        short = [(column.shortened(size), column.title) for column, size in sizes]
        return ", ".join(f"{shown} = {title}" for shown, title in short if shown != title in names)

    def row(self, cells: Sequence[Span]) -> Line:
        """Return one row as a line, its cells cut or rounded to their columns."""
        return self._joined(cells, _fitted)

    def _joined(self, cells: Sequence[Span], shorten: Callable[[str, int], str]) -> Line:
        out: list[Span] = []
        for column, size, cell in zip(self.columns, self.widths, cells, strict=True):
            if size is not None:
                gap = [Span(" " * GAP)] if out else []
                text = pad(shorten(cell.text, size), size, right=column.right)
                out += [*gap, Span(text, cell.style)]
        return out

    def table(self, rows: Sequence[Sequence[Span]], picked: int | None) -> list[Line]:
        """Return the titles and the rows as lines; the picked row is reversed."""
        lines = [self.header(), *map(self.row, rows)]
        if picked is not None and 0 <= picked < len(rows):  # its colors would be patches
            lines[1 + picked] = [Span(plain(lines[1 + picked]), Style.REVERSE)]
        return lines


def _fitted(text: str, columns: int) -> str:
    """Return the text; round a number to its column, because a cut would change it."""
    if width(text) <= columns or not is_number(text):
        return text
    short = rounded(text, columns)
    return short if len(short) <= columns else "…"


def _floor(text: str, least: int | None) -> int:
    """Return the smallest width of a cell."""
    if least is None:
        return width(text)
    return narrowest(text) if is_number(text) else min(width(text), least)


def lay(columns: Sequence[Column], rows: Sequence[Sequence[Span]], total: int) -> Layout:
    """Return the layout that fits these rows into `total` columns of a terminal."""
    titles = [width(column.short or column.title) for column in columns]
    cells = [max((width(row[i].text) for row in rows), default=0) for i in range(len(columns))]
    heads = [t if c.short else min(t, 3) for c, t in zip(columns, titles, strict=True)]
    floors = [
        max([1, heads[i], *(_floor(row[i].text, column.least) for row in rows)])
        for i, column in enumerate(columns)
    ]
    shown = every = [i for i, column in enumerate(columns) if cells[i] or not column.sparse]
    while len(shown) > 1 and _size([floors[i] for i in shown]) > total:
        least = min(shown, key=lambda i: (columns[i].keep, -i))
        shown = [i for i in shown if i != least]
    widths = {i: max(titles[i], cells[i]) for i in shown}
    # Shorten long titles first, then long values, short titles last.
    words = {i: max(floors[i], min(titles[i], _WORD)) for i in shown}
    _squeeze(widths, {i: max(cells[i], words[i]) for i in shown}, total)
    _squeeze(widths, words, total)
    _squeeze(widths, {i: floors[i] for i in shown}, total)
    is_whole = len(widths) == len(every) and all(widths[i] >= cells[i] for i in widths)
    _lengthen(widths, columns, cells, total)
    sizes = [widths.get(i) for i in range(len(columns))]
    return Layout(columns=columns, widths=sizes, is_whole=is_whole)


def _size(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * max(0, len(widths) - 1)


def _squeeze(widths: dict[int, int], floors: Mapping[int, int], total: int) -> None:
    """Narrow the columns with the most space above their floors until the table fits."""
    while _size(list(widths.values())) > total:
        spare = [i for i in widths if widths[i] > floors[i]]
        if not spare:
            return
        widths[max(spare, key=lambda i: widths[i])] -= 1


def _lengthen(
    widths: dict[int, int], columns: Sequence[Column], cells: Sequence[int], total: int
) -> None:
    """Give the columns that shortened titles leave free to titles that need them."""
    short = [i for i in widths if not columns[i].short and width(columns[i].title) > widths[i]]
    for i in short:
        widths[i] = max(min(cells[i], widths[i]), width(abbreviate(columns[i].title, widths[i])))
    for i in sorted(short, key=lambda i: -columns[i].keep):
        most = widths[i] + total - _size(list(widths.values()))
        widths[i] = max(widths[i], width(abbreviate(columns[i].title, most)))
