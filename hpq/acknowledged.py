"""Notice a server whose data is older than what it has acknowledged.

A failover, or a restart without the last writes, takes a server back. A mark inside a sweep would
go back with it, so each worker process and each HPQ_HOME keeps the ids of events that it has seen.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path

from redis.exceptions import RedisError

from hpq.connection.client import connections_made
from hpq.connection.credentials import redact
from hpq.notice import Notice
from hpq.process import replace_private
from hpq.store.events import find_lost, record_lost
from hpq.store.scripts import Mark, StoreContext

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
            replace_private(self._path, json.dumps(known).encode())

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


def report_lost(context: StoreContext, marks: Sequence[Mark]) -> tuple[Notice | None, list[Mark]]:
    """Look for events, and record those that the server lacks.

    Returns:
        A notice of what it lacks, and the marks to look for next time. A primary that is about to
        be replaced loses the record, too, so the record takes the place of a lost event.

    Raises:
        redis.RedisError: the server does not answer, or is full.
    """
    kept, lost = find_lost(context, marks)
    if not lost:
        return None, kept
    what = dict[str, None]()
    for mark, recorded in zip(lost, record_lost(context, lost), strict=True):
        gone = f"sweep {mark.sweep} is gone, unless this is another server at the same address"
        what[f"`hpq audit {mark.sweep}` names it" if recorded else gone] = None
        kept += [recorded] if recorded else []
    text = "the server lost what it had acknowledged, in a failover or a restart"
    return Notice("server-went-back", f"{text}: {'; '.join([*what][-20:])}"), kept
