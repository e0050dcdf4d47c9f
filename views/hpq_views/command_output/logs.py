"""Read and follow the log of a trial."""

from __future__ import annotations

import codecs
import re
import time
from collections import deque
from collections.abc import Iterator

from hpq.domain.trial import TrialId
from hpq.redis.client import TRANSIENT
from hpq.store.reader import StoreReader
from hpq_views.follow import BLOCK_MS
from hpq_views.text.text import clean_block

# May continue in the next piece: an incomplete escape sequence, or the \r of \r\n.
_UNFINISHED = re.compile(r"(?:\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b\n]*\x1b?|[ -/]*)|\r)\Z")
LINES = 200  # of a log in a view
_LONGEST = 512  # characters of a sequence


def read_log(reader: StoreReader, trial: TrialId, tail: int | None = None) -> tuple[bytes, str]:
    """Return the log, or its last lines, and the entry id after which `follow_log` continues."""
    data, last = reader.trials.log(trial)
    return data if tail is None else last_lines(data, tail), last


def last_lines(data: bytes, most: int) -> bytes:
    """Return the last lines of a log."""
    return b"".join(deque(data.splitlines(keepends=True), maxlen=most))


def follow_log(reader: StoreReader, trial: TrialId, after: str) -> Iterator[bytes]:
    """Yield the log after an entry until the trial ends; continues over requeues and outages."""
    while True:
        try:
            # Read before the log, so that no line printed before the end is missed.
            over = reader.trials.get(trial).state.is_terminal
            data, after = reader.trials.log(trial, after, None if over else BLOCK_MS)
        except TRANSIENT:
            time.sleep(1)
            continue
        if data:
            yield data
        elif over:
            return


class Cleaner:
    """Convert bytes to text without control sequences, piece by piece.

    A character or an escape sequence that is cut at the end of a piece is kept for the next one.
    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._kept = ""

    def take(self, data: bytes, *, final: bool = False) -> str:
        """Return the clean text of a piece."""
        text = self._kept + self._decode(data, final)
        self._kept = ""
        cut = None if final else _UNFINISHED.search(text, max(0, len(text) - _LONGEST))
        if cut:
            text, self._kept = text[: cut.start()], cut[0]
        return clean_block(text)


def log_text(reader: StoreReader, trial: TrialId, tail: int | None = None) -> str:
    """Return the log, or its last lines, without control sequences."""
    data, _ = read_log(reader, trial, tail)
    return Cleaner().take(data, final=True)
