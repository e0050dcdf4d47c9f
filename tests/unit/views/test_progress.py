"""The bar of `hpq enqueue`: drawn on a terminal, taken away at the end, silent elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import sys
from hpq_views.text import console
console._LATE_S = 0.0
with console.progress_bar(4000, "writing sets") as show:
    for count in (1000, 4000):
        show(count)
    print("on stdout")
print("rich.progress" in sys.modules)
"""


def run(stderr: int) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def read(terminal: int) -> str:
    text = b""
    while True:
        try:
            text += os.read(terminal, 65536)
        except OSError:  # EIO: the other end is closed
            return text.decode()


def test_a_terminal_shows_how_many_are_written_until_the_end() -> None:
    ours, theirs = os.openpty()
    try:
        printed = run(theirs)
        os.close(theirs)
        drawn = read(ours)
    finally:
        os.close(ours)
    assert printed == ["on stdout", "True"]
    assert "writing sets" in drawn and "4000/4000" in drawn
    assert "on stdout" not in drawn
    assert drawn.endswith("\x1b[2K") and "\x1b[?25h" in drawn  # erased, with the cursor shown


def test_off_a_terminal_nothing_is_drawn_and_rich_is_not_imported() -> None:
    reader, writer = os.pipe()
    printed = run(writer)
    os.close(writer)
    assert os.read(reader, 1) == b""
    os.close(reader)
    assert printed == ["on stdout", "False"]
