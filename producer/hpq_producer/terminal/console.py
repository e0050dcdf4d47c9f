"""The terminal that a command writes to: what it can show, tables and lines, and `Screen`.

Off a terminal a table is as wide as its content, unless COLUMNS says otherwise, so that `| less -S`
and `| grep` lose nothing. `Screen` restores the terminal whatever ends its block: an exception,
Ctrl-C, SIGTERM, or a stop with Ctrl-Z in between.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from types import FrameType, TracebackType
from typing import Any, TextIO

from hpq.notice import Notice
from hpq_producer.terminal.style import Line, Span, Style, TerminalInfo, fold, paint
from hpq_producer.terminal.tables import Column, Layout, lay
from hpq_producer.terminal.text import trials_of

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"  # another screen, no cursor, no wrapping
_LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"  # draw at once, where the terminal can
_KEY = re.compile(r"\x1b[\[O](?:[0-9;]*[A-Za-z~])?|\x1b|.", re.DOTALL)
_NAMED = {
    "\x1b[A": "up", "\x1bOA": "up", "k": "up",
    "\x1b[B": "down", "\x1bOB": "down", "j": "down",
    "\x1b[5~": "page up", "\x1b[6~": "page down", " ": "page down",
    "\x1b[H": "home", "\x1bOH": "home", "\x1b[1~": "home", "g": "home",
    "\x1b[F": "end", "\x1bOF": "end", "\x1b[4~": "end", "G": "end",
    "q": "quit", "Q": "quit", "\x03": "interrupt", "\x04": "quit",
}  # fmt: skip


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


def key_names(text: str) -> list[str]:
    """The keys that a terminal sent, by name; others as they are."""
    return [_NAMED.get(key, key) for key in _KEY.findall(text)]


class Screen:
    """A context in which the terminal shows our frames only, and gives its keys as they come."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        self._stream = stream
        self._keys = sys.stdin.fileno() if sys.stdin and sys.stdin.isatty() else None
        self._lock, self._open = threading.Lock(), True
        self._waker, self._wake_end = os.pipe()
        os.set_blocking(self._waker, False)
        os.set_blocking(self._wake_end, False)
        self._before: Any = None
        self._handlers: dict[signal.Signals, Any] = {}
        self._shown = ""

    def __enter__(self) -> Screen:
        for sig, handler in (
            (signal.SIGTERM, _exit),
            (signal.SIGHUP, _exit),
            (signal.SIGWINCH, self._resized),
            (signal.SIGTSTP, self._suspend),
        ):
            self._handlers[sig] = signal.signal(sig, handler)
        self._take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        try:
            self._give()
        finally:
            for sig, handler in self._handlers.items():
                signal.signal(sig, handler)
            with self._lock:
                self._open = False
                os.close(self._waker)
                os.close(self._wake_end)

    def draw(self, lines: Sequence[Line], terminal: TerminalInfo) -> None:
        """Show these lines; what does not change is not written again."""
        # Cleared first: after a full line the cursor still stands on its last character.
        text = "\r\n".join("\x1b[K" + paint(line, terminal) for line in lines[: terminal.rows])
        if text != self._shown:
            below = "\x1b[J" if len(lines) < terminal.rows else ""
            self._write(f"{_BEGIN}\x1b[H{text}{below}{_END}")
            self._shown = text

    def wake(self) -> None:
        """End a `wait`; any thread may, also after the screen is gone."""
        with self._lock, suppress(BlockingIOError):  # a full pipe: it is awake already
            if self._open:
                os.write(self._wake_end, b".")

    def wait(self, timeout_s: float) -> list[str]:
        """Keys pressed within the time; empty at its end, after `wake`, or a new size."""
        ends = [self._waker] if self._keys is None else [self._waker, self._keys]
        ready, _, _ = select.select(ends, [], [], max(0.0, timeout_s))
        if self._waker in ready:
            os.read(self._waker, 65536)
        if self._keys is None or self._keys not in ready:
            return []
        sent = os.read(self._keys, 1024)
        return key_names(sent.decode("utf-8", "replace")) if sent else ["quit"]

    def _take(self) -> None:
        if self._keys is not None:
            self._before = termios.tcgetattr(self._keys)
            tty.setcbreak(self._keys)
        self._shown = ""
        self._write(_ENTER)

    def _give(self) -> None:
        try:
            self._write(_LEAVE)
        finally:
            if self._keys is not None:
                termios.tcsetattr(self._keys, termios.TCSADRAIN, self._before)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _resized(self, signum: int, frame: FrameType | None) -> None:
        self._shown = ""
        self.wake()

    def _suspend(self, signum: int, frame: FrameType | None) -> None:
        """Ctrl-Z: the shell gets its terminal back; `fg` goes on here."""
        self._give()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._suspend)
        self._take()
        self.wake()


def _exit(signum: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + signum)


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


def print_message(text: Notice | str) -> None:
    """Say something that is not data."""
    print(text, file=sys.stderr)


def warn(text: Notice | str) -> None:
    """Print a warning to stderr."""
    print(f"warning: {text}", file=sys.stderr)


def discard_stdout() -> None:
    """Send the rest of stdout to /dev/null: the reader of the pipe has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
