"""About how many bytes of a server's memory the rows of an archive will take. Pure."""

from __future__ import annotations

from producer.archive.format import Row

# Beside what an item holds, as measured on Redis and Valkey; small keys take less.
_ITEM_BYTES = {"hash": 60, "zset": 110, "set": 60, "stream": 0, "shared": 60}
_KEY_BYTES = 150
_STREAM_BYTES = 4_096  # a stream takes that from its first entry on


class Weight:
    """The sum over rows as they come in a file: those of one key follow one another."""

    def __init__(self) -> None:
        self.bytes = 0
        self._key: tuple[int, str] | None = None
        self._spare = 0  # what the stream that grows now takes already

    def add(self, row: Row) -> None:
        """Count a row."""
        if (row.trial, row.part) != self._key:
            self._key = (row.trial, row.part)
            self._spare = _STREAM_BYTES if row.kind == "stream" else 0
            self.bytes += _KEY_BYTES + self._spare
        held = sum(_ITEM_BYTES[row.kind] + sum(map(len, item)) for item in row.items)
        free = min(self._spare, held)
        self._spare -= free
        self.bytes += held - free
