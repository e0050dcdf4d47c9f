"""Show frames on the terminal's alternate screen, and read keys as they are pressed.

`LiveScreen` restores the terminal whatever ends its block: an exception, Ctrl-C, SIGTERM, a
terminal that is closed, or a stop with Ctrl-Z in between.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, TextIO

from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment

from hpq.sanitize import unguarded
from hpq_views.text.style import Line, TerminalInfo, cut

_KEY = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]|\x1b|.", re.DOTALL)
_NAMED = {
    "\x1b[A": "up", "\x1bOA": "up", "\x1b[B": "down", "\x1bOB": "down",
    "\x1b[5~": "page up", "\x1b[6~": "page down",
    "\x1b[H": "home", "\x1bOH": "home", "\x1b[1~": "home",
    "\x1b[F": "end", "\x1bOF": "end", "\x1b[4~": "end",
    "\r": "enter", "\n": "enter", "\x1b": "escape", "\x7f": "backspace", "\x08": "backspace",
    "\x03": "interrupt", "\x04": "hangup",
}  # fmt: skip
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"  # of a line that is as wide as the terminal


def key_names(text: str) -> list[str]:
    """The keys that a terminal sent, by name; others as they are."""
    return [_NAMED.get(key, key) for key in _KEY.findall(text)]


def ask_key(question: str) -> str:
    """Ask at the terminal of standard input, and return the key that is pressed; "" at its end."""
    keys = sys.stdin.fileno()
    before = termios.tcgetattr(keys)
    try:
        tty.setcbreak(keys)  # first: it drops keys that were pressed before
        print(question, end="", flush=True)
        sent = os.read(keys, 64).decode("utf-8", "replace")
    finally:
        with suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(keys, termios.TCSADRAIN, before)
        print()
    return next(iter(key_names(sent)), "")


@dataclass(frozen=True, slots=True)
class DrawnLines:
    """Lines as rich draws them; its Text and Table would measure every cell once more."""

    lines: Sequence[Line]
    terminal: TerminalInfo

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines:
            for span in cut(line, self.terminal):
                yield Segment(span.text, console.get_style(span.style) if span.style else None)
            yield Segment.line()


class LiveScreen:
    """A context in which the terminal shows our frames only, and gives its keys as they come."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        stream = unguarded(stream)  # frames move the cursor; `cut` cleans their text
        self._console = Console(
            file=stream, force_terminal=True, legacy_windows=False, markup=False, highlight=False
        )
        self._live = Live(
            console=self._console, screen=True, auto_refresh=False,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        self._stream = stream
        self._keys = sys.stdin.fileno() if sys.stdin and sys.stdin.isatty() else None
        self._lock, self._open = threading.Lock(), True
        self._waker, self._wake_end = os.pipe()
        os.set_blocking(self._waker, False)
        os.set_blocking(self._wake_end, False)
        self._before: Any = None
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> LiveScreen:
        for sig, handler in (
            (signal.SIGTERM, _exit),
            (signal.SIGHUP, _exit),
            (signal.SIGWINCH, lambda *_: self.wake()),
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

    def draw(self, frame: Sequence[Line], terminal: TerminalInfo) -> None:
        """Show a frame, which fills at most the terminal."""
        self._console.size = ConsoleDimensions(terminal.columns, terminal.rows)
        self._live.update(DrawnLines(frame, terminal), refresh=True)

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
        try:
            sent = os.read(self._keys, 1024)
        except OSError:  # the terminal was closed
            sent = b""
        return key_names(sent.decode("utf-8", "replace")) if sent else ["hangup"]

    def _take(self) -> None:
        if self._keys is not None:
            self._before = termios.tcgetattr(self._keys)
            tty.setcbreak(self._keys)
        self._live.start()
        self._stream.write(_NO_WRAP)

    def _give(self) -> None:
        with suppress(OSError):  # the terminal was closed: there is nothing to restore
            try:
                self._stream.write(_WRAP)
                self._live.stop()
                self._stream.flush()
            finally:
                if self._keys is not None:
                    with suppress(termios.error):
                        termios.tcsetattr(self._keys, termios.TCSADRAIN, self._before)

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
