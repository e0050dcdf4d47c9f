"""Notice a server whose data is older than what it has acknowledged.

A failover, or a restart without the last writes, takes a server back. A mark inside a sweep would
go back with it, so each worker process and each HPQ_HOME keeps the ids of events that it has seen.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path

from redis.exceptions import RedisError

from hpq.connection.client import connections_made
from hpq.connection.credentials import redact
from hpq.notice import Notice
from hpq.process import make_private, private_file
from hpq.store.scripts import Mark, StoreContext, report_lost

_KEPT = 200  # marks: all workers look at once after a failover


class Marks:
    """The newest acknowledged events of a worker, which it looks for after a new connection."""

    def __init__(self) -> None:
        self._marks, self._looked_at = deque[Mark](maxlen=_KEPT), 0
        self.keep = self._marks.append

    def check(self, context: StoreContext) -> Notice | None:
        """Return a notice, once, if the server lacks any. Raises as `report_lost`."""
        made, marks = connections_made(), list(self._marks)
        if made == self._looked_at or not marks:
            return None
        notice, kept = report_lost(context, marks)
        self._looked_at = made
        for mark in set(marks) - set(kept):
            with suppress(ValueError):  # newer ones have pushed it out
                self._marks.remove(mark)
        self._marks.extend(set(kept) - set(marks))
        return notice


class MarkFile:
    """The newest mark of a user on each sweep; a home that cannot be written keeps none."""

    def __init__(self, home: Path, server: str, prefix: str) -> None:
        self._path = home / "acknowledged.json"
        self._name = f"{redact(server)} {prefix}"

    def _read(self) -> dict[str, list[list[object]]]:
        with suppress(OSError, ValueError):
            return dict(json.loads(self._path.read_text("utf-8")))
        return {}

    def _write(self, marks: Sequence[Mark]) -> None:
        newest = {mark.sweep: astuple(mark) for mark in marks}
        known = self._read() | {self._name: [list(mark) for mark in newest.values()][-_KEPT:]}
        with suppress(OSError):
            make_private(self._path.parent)
            draft = self._path.with_suffix(f".{os.getpid()}")
            with open(draft, "w", encoding="utf-8", opener=private_file) as file:
                json.dump(known, file)
            draft.replace(self._path)

    def _marks(self) -> list[Mark]:
        with suppress(TypeError):  # an older version kept one
            return [Mark(*mark) for mark in self._read().get(self._name, [])]  # type: ignore[arg-type]
        return []

    def keep(self, mark: Mark) -> None:
        """Replace the mark of a sweep."""
        self._write([*(one for one in self._marks() if one.sweep != mark.sweep), mark])

    def check(self, context: StoreContext) -> Notice | None:
        """Return a notice if the server lacks an event that it has acknowledged."""
        with suppress(RedisError):  # a viewer cannot record it; the command goes on
            notice, kept = report_lost(context, marks := self._marks())
            if kept != marks:  # also without sweeps that were removed
                self._write(kept)
            return notice
        return None
