"""Read metrics from the lines that a program prints."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from hpq.domain.printed_line import Unread, metrics_in_text, metrics_of_line
from hpq_worker.attempt.echoed_code import EchoedCode
from hpq_worker.runner import failures

# Colours, links and titles of terminals: CSI, OSC and other strings, two-character sequences.
_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*(?P<ends>[@-~])"
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|\Z)|\x1b[ -/]*[0-~]"
)
_MOVES = frozenset("ABEFGHdf")  # the cursor, as a carriage return does
_BACK = re.compile("\x08+")
LONGEST_BYTES = 4_096  # of a printed line that may report a metric


class PrintedMetrics:
    """Finds metrics in the lines that a program prints.

    A line of nothing but `name=number` reports each one, except parameters. Inside other text, the
    last `name=number` or `name: number` of a line reports a declared metric, until a line of
    nothing else does. Lines in which an interpreter shows code report nothing.

    `unread` is the first line with a declared metric whose number is no whole number, and which.
    """

    def __init__(self, declared: Collection[str], params: Mapping[str, object]) -> None:
        self._declared = frozenset(declared) - params.keys()
        self._params = params
        self._in_text = set(self._declared)
        self._code = EchoedCode()
        self.unread: tuple[str, Unread] | None = None

    def parse(self, line: str) -> dict[str, float]:
        """Return the values that a line reports; {} without one, or of a rank above 0.

        A near miss of a declared metric, such as Val-Loss, is returned under its own name.
        """
        found: dict[str, float] = {}
        for text in _printed(line, self._code):
            found = self._read(text) | found
            if found and self._declared <= found.keys():
                break
        return found

    def _read(self, text: str) -> dict[str, float]:
        found = metrics_of_line(text)
        values: dict[str, float] = {}
        if not self._declared <= found.keys():
            values, unread = metrics_in_text(self._declared, text)
            if unread and self.unread is None:
                self.unread = text.strip(), unread
        if values.keys() <= found.keys():  # not `loss=0.5 and acc=0.3`
            self._in_text.difference_update(found)
        else:
            closed = self._declared - self._in_text
            found = {name: value for name, value in values.items() if name not in closed}
        return {name: value for name, value in found.items() if name not in self._params}


def printed_lines(text: str) -> Iterator[str]:
    """Yield the lines of a log that may hold a report: those of rank 0, without echoed code."""
    code = EchoedCode()
    for line in text.split("\n"):
        yield from _printed(line, code)


def text_of(line: bytes) -> str:
    """Return the text of a printed line; of one that is too long, what its last redraw shows."""
    if len(line) > LONGEST_BYTES:  # its beginning may be cut in the midst of a name
        line = line[-LONGEST_BYTES:].partition(b"\r")[2]
    return line.decode("utf-8", "replace")


def plain(text: str) -> str:
    """Return a text without the codes of a terminal; those that move the cursor back become \\r."""
    if "\x1b" in text or "\x9b" in text or "\x08" in text:
        text = _BACK.sub("\r", _ESCAPE.sub(_shown, text))
    return text


def _printed(line: str, code: EchoedCode) -> Iterator[str]:
    """Yield what a line has shown, the last first: a carriage return begins again."""
    rank, line = failures.split_rank(plain(line))
    if rank:
        return
    shown = [text for text in line.split("\r") if text.strip()]
    if code.shows(shown[-1] if shown else ""):
        shown.pop()  # a bar before it may have shown a metric
    yield from reversed(shown)


def _shown(escape: re.Match[str]) -> str:
    if escape["ends"] == "C":  # moves to the right
        return " "
    return "\r" if escape["ends"] in _MOVES else ""
