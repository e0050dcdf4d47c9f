"""A trial's log as text: what it printed so far, and what it prints from now on."""

from __future__ import annotations

import codecs
import re
import time
from collections import deque
from collections.abc import Iterator

from hpq.connection.client import TRANSIENT
from hpq.domain.trial import TrialId
from hpq.store.reader import StoreReader
from hpq_producer.query.follow import BLOCK_MS
from hpq_producer.terminal.text import clean_block

# What may go on in the next piece: a sequence that has no end yet, or half of a line's end.
_UNFINISHED = re.compile(r"(?:\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b\n]*\x1b?|[ -/]*)|\r)\Z")
_LONGEST = 512  # characters of a sequence


def read_log(reader: StoreReader, trial: TrialId, tail: int | None = None) -> tuple[bytes, str]:
    """What the trial printed, or its last lines; and the id from which `follow_log` goes on."""
    data, last = reader.trials.log(trial)
    if tail is not None:
        data = b"".join(deque(data.splitlines(keepends=True), maxlen=tail))
    return data, last


def follow_log(reader: StoreReader, trial: TrialId, after: str) -> Iterator[bytes]:
    """What the trial prints after an entry, until it has ended; over requeues and outages."""
    while True:
        try:
            # Looked at before the log, so that nothing printed before the end is missed.
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
    """Bytes to text that cannot act on a terminal, piece by piece.

    A character or an escape sequence may be cut at the end of a piece; it is kept for the next one.
    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._kept = ""

    def take(self, data: bytes, *, final: bool = False) -> str:
        """The clean text of a piece."""
        text = self._kept + self._decode(data, final)
        self._kept = ""
        cut = None if final else _UNFINISHED.search(text, max(0, len(text) - _LONGEST))
        if cut:
            text, self._kept = text[: cut.start()], cut[0]
        return clean_block(text)
