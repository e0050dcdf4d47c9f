"""`hpq diff`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from typer import Argument

from hpq.access.session import open_session
from hpq.domain.trial import Json
from hpq.errors import UserError
from hpq.shell import shell_hint
from hpq_producer.commands.common_flags import Output
from hpq_producer.commands.inspect.compare import Section, compare, directory_side, side_of
from hpq_views.targets import complete_sweep_ids, find_target
from hpq_views.text.console import show_lines, show_table, stdout_info
from hpq_views.text.output import Format, show_data
from hpq_views.text.style import Span, Style, paint
from hpq_views.text.tables import Column, lay
from hpq_views.text.text import clean, value

_MOST = 100  # lines of a diff, or rows of a table, on a terminal
_STYLES = {"+": Style.GREEN, "-": Style.RED, "@": Style.CYAN, "d": Style.BOLD}


def diff(
    one: Annotated[
        str | None,
        Argument(
            metavar="A",
            help="Sweep or trial: SWEEP/7, or 7 of your last sweep. Default: your last sweep.",
            autocompletion=complete_sweep_ids,
        ),
    ] = None,
    other: Annotated[
        str | None,
        Argument(
            metavar="B",
            help="Another of the same kind. Default: the working directory.",
            autocompletion=complete_sweep_ids,
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Compare two sweeps or two trials: sweep file, code, packages, machine, results.

    One alone is compared with the working directory: sweep file and code as they are now. The exit
    code is 0 whether or not they differ, as with git diff; -o json has `equal`. A terminal shows
    the first 100 lines of each diff, a pipe shows all.

    Examples:
      hpq diff digits-3f2a1 digits-9c0de
      hpq diff digits-3f2a1/7 digits-3f2a1/9
      hpq diff
    """
    with open_session() as session:
        reader, user = session.reader, session.settings.user
        found = find_target(reader, one, user)
        old = side_of(session, found)
        if other is None:
            sid = found if isinstance(found, str) else found.sweep
            new = directory_side(session.settings, reader.sweeps.get(sid), old)
        else:
            second = find_target(reader, other, user)
            if isinstance(found, str) != isinstance(second, str):
                text = f"{found} and {second} are a sweep and a trial; name two sweeps, or two"
                raise UserError(f"{text} trials such as SWEEP/7")
            new = side_of(session, second)
    sections = compare(old, new)
    if output.is_data:
        record = {one.title.replace(" ", "_"): one.record() for one in sections}
        return show_data({"a": old.name, "b": new.name, **record}, output)
    names = (("a", old.name), ("b", new.name))
    show_lines([Span(f"{side}  ", Style.DIM), Span(clean(name))] for side, name in names)
    for section in sections:
        _show(section, shell_hint(["hpq", "diff", *filter(None, (one, other))]))


def _show(section: Section, command: str) -> None:
    """Print a section: one line if it is equal."""
    terminal, note = stdout_info(), clean(section.note)
    print()
    title = "; ".join(filter(None, ("equal" if section.is_equal else "", note)))
    title = f": {title}" if title else ""
    show_lines([[Span(section.title, Style.BOLD), Span(title)]], whole=True)
    most = _MOST if terminal.tty else None
    lines = section.diff.splitlines()
    for line in lines[:most]:
        style = _STYLES.get(line[:1], Style.PLAIN)
        wide = replace(terminal, columns=len(line) * 8 + 1)  # the terminal wraps: nothing is cut
        print(paint([Span(line.expandtabs(), style)], wide) if terminal.tty else line)
    if section.differ:
        columns = [Column(title=""), Column(title="a"), Column(title="b")]
        rows = list(section.differ.items())[:most]
        cells = [[Span(clean(name), Style.DIM), *map(Span, map(_shown, two))] for name, two in rows]
        if lay(columns, cells, terminal.columns).is_whole:
            return show_table(columns, cells)
        for name, *two in cells:
            sides = ([Span(f"  {side}  "), one] for side, one in zip("ab", two, strict=True))
            show_lines([[name], *sides], whole=True)
    rest = max(len(lines), len(section.differ)) - _MOST
    if most and rest > 0:
        show_lines([[Span(f"… {rest:,} more: {command} | less", Style.DIM)]])


def _shown(one: Json) -> str:
    """Return a value with all its digits: what differs must not look alike."""
    if one is None:
        return ""
    return repr(one) if isinstance(one, float) else value(one)
