"""Notice a server whose data is older than what it has acknowledged.

A failover, or a restart without the last writes, takes a server back. A mark inside a sweep would
go back with it, so each worker process and each HPQ_HOME keeps the ids of events that it has seen.
"""

from __future__ import annotations

import json
import os
from collections import deque
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path

from redis.exceptions import RedisError

from hpq.connection.client import connections_made
from hpq.connection.credentials import redact
from hpq.notice import Notice
from hpq.process import make_private
from hpq.store.scripts import Mark, StoreContext, report_lost

_KEPT = 200  # marks of a worker: all workers look at once after a failover


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
    """The newest mark of a user on a server; a home that cannot be written keeps none."""

    def __init__(self, home: Path, server: str, prefix: str) -> None:
        self._path = home / "acknowledged.json"
        self._name = f"{redact(server)} {prefix}"

    def _read(self) -> dict[str, list[object]]:
        with suppress(OSError, ValueError):
            return dict(json.loads(self._path.read_text("utf-8")))
        return {}

    def keep(self, mark: Mark | None) -> None:
        """Replace the mark; None removes it."""
        marks = self._read() | {self._name: list(astuple(mark)) if mark else []}
        with suppress(OSError):
            make_private(self._path.parent)
            draft = self._path.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps({name: mark for name, mark in marks.items() if mark}))
            draft.replace(self._path)

    def check(self, context: StoreContext) -> Notice | None:
        """Return a notice if the server lacks the event that it has acknowledged."""
        mark = self._read().get(self._name)
        with suppress(RedisError, TypeError):  # a viewer cannot record it; the command goes on
            notice, kept = report_lost(context, [Mark(*mark)] if mark else [])  # type: ignore[arg-type]
            if notice:
                self.keep(kept[0] if kept else None)
            return notice
        return None
