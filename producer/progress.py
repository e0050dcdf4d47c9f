"""A bar on stderr while something counts up; nothing off a terminal."""

from __future__ import annotations

import sys
import time

_WIDE = 30
_LATE_S = 0.3  # what is done sooner needs no bar


class Bar:
    """`with Bar(total, "writing sets") as bar: bar.at(n)`."""

    def __init__(self, total: int | None, what: str) -> None:
        self._total, self._what = total or 1, what
        self._is_on = sys.stderr.isatty()
        self._started_at = self._drawn_at = time.monotonic()
        self._is_drawn = False

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def at(self, count: int) -> None:
        """Show the count, at most ten times a second."""
        now = time.monotonic()
        if not self._is_on or now - self._started_at < _LATE_S or now - self._drawn_at < 0.1:
            return
        self._drawn_at, self._is_drawn = now, True
        done = min(_WIDE, _WIDE * count // self._total)
        bar = "#" * done + "-" * (_WIDE - done)
        print(f"\r{self._what} [{bar}] {count}/{self._total}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._is_drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._is_drawn = False
