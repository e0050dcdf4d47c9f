"""Answer the polls of open pages; all tabs of a page share one read of Redis a second."""

from __future__ import annotations

import hashlib
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from hpq.domain.trial import TrialView
from hpq.errors import OutOfReach
from hpq.settings import Settings
from hpq.store.reader import StoreReader
from hpq_views.page.curve_reads import step_metrics
from hpq_views.page.curves import pack_curves
from hpq_views.page.render import comparison_row, part
from hpq_views.page.sweep_data import (
    SweepData,
    encode_moves,
    encode_objectives,
    encode_progress,
    encode_scale,
    encode_standing,
    encode_trials,
)
from hpq_views.page.sweep_reads import read_changes, read_sweep
from hpq_views.text.text import clean

_FRESH_S = 1.0  # a younger read serves every tab
_WAIT_S = 30.0  # for the tab that reads; the first read of 10,000 trials takes seconds
_IMPORTANCE_S = 20.0  # between two computations of what takes seconds
_DIGITS = 20  # no moment has more, and int() reads no number of thousands


def digest(html: str) -> str:
    """Return what identifies a part of a page."""
    return hashlib.sha256(html.encode()).hexdigest()


class Polled(ABC):
    """What the tabs of one page share: one of them at a time reads Redis for all."""

    def __init__(self) -> None:
        self._lock, self._read_s = threading.Lock(), -math.inf
        self.asked_s = 0.0  # when a tab asked last

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Hold what the tabs share, at most a second old.

        Raises:
            NotFound: the sweep does not exist.
            OutOfReach: the tab that reads still waits for Redis.
        """
        if not self._lock.acquire(timeout=_WAIT_S):
            raise OutOfReach("Redis does not answer", code="redis-unreachable")
        try:
            if time.monotonic() - self._read_s >= _FRESH_S:
                self._read()
                self._read_s = time.monotonic()
            yield
        finally:
            self._lock.release()

    def changes(self, since: str) -> dict[str, Any] | None:
        """Return what changed since the moment `at` of an earlier answer; None if nothing did.

        Raises as `fresh`.
        """
        with self.fresh():
            return self._changes(since)

    @abstractmethod
    def _read(self) -> None: ...

    @abstractmethod
    def _changes(self, since: str) -> dict[str, Any] | None: ...


class Listing(Polled):
    """A list of sweeps or workers as HTML, which a changed list replaces."""

    def __init__(self, render: Callable[[], str]) -> None:
        super().__init__()
        self._render = render
        self.html = ""

    def _read(self) -> None:
        self.html = self._render()

    def _changes(self, since: str) -> dict[str, Any] | None:
        at = digest(self.html)
        return None if since == at else {"at": at, "html": self.html}


class LiveSweep(Polled):
    """A sweep with the moment of each trial's last change, in milliseconds of Redis' clock."""

    data: SweepData

    def __init__(self, reader: StoreReader, sid: str, settings: Settings, *, acts: bool) -> None:
        super().__init__()
        self._reader = reader
        self._sid = sid
        self._settings = settings
        self._acts = acts
        self._first = 0  # the oldest moment that a patch can bring up to date; 0: nothing was read
        self._changed_ms = 0  # the newest moment with a change
        self._changed: dict[int, int] = {}  # the same of each trial that changed since the first
        self._moved: dict[int, int] = {}  # the same of those that came to a front or left it
        self._parts: dict[str, tuple[Any, int]] = {}  # the same of what a page has once
        self._computed_s = 0.0  # when what takes seconds was computed, inf: it is being computed
        self._computed: Sequence[TrialView] = ()  # of these trials

    def _read(self) -> None:
        """Read the trials that changed; without any event and running trial, read no trial."""
        if not self._first or not self._reader.sweeps.exists(self._sid):
            data = read_sweep(self._reader, self._sid, self._settings)
            self._known, self._computed_s = data.importances, time.monotonic()
            self.data, self._computed = replace(data, known=self._known), data.trials
            self._first = self._changed_ms = self.data.status.at_ms
            self._keep_parts()
            return
        old = self.data
        self.data = read_changes(self._reader, self._settings, old, self._known)
        is_due = time.monotonic() - self._computed_s >= _IMPORTANCE_S
        if is_due and self.data.trials != self._computed:  # also if no trial follows
            self._computed_s, self._computed = math.inf, self.data.trials
            threading.Thread(target=self._compute, args=(self.data,), daemon=True).start()
        if self.data is old and self._known is not old.known:
            status = replace(old.status, at_ms=self._reader.now_ms())
            self.data = replace(old, status=status, known=self._known)
        if self.data is old:
            return
        before = {t.id.number: t for t in old.trials}
        numbers = [t.id.number for t in self.data.trials if before.get(t.id.number) != t]
        is_other = self.data.status.last_event != old.status.last_event
        if numbers or is_other or self.data.known is not old.known:
            self._changed_ms = self.data.status.at_ms
            self._changed.update(dict.fromkeys(numbers, self._changed_ms))
            moved = old.standings.members ^ self.data.standings.members
            self._moved.update(dict.fromkeys(moved, self._changed_ms))
            rivals = self.data.rivals.items() ^ old.rivals.items()  # also of trials that stay
            self._changed.update(dict.fromkeys(dict(rivals), self._changed_ms))
        began = not any(t.params for t in old.trials) and any(t.params for t in self.data.trials)
        varying = self.data.sweep.varying != old.sweep.varying
        if began or varying or self.data.is_log != old.is_log:  # the axes change
            self._first = self.data.status.at_ms
        self._keep_parts()

    def _keep_parts(self) -> None:
        """Keep what a page has once, beside its trials, with the moment of its last change."""
        data = self.data
        parts = {
            "winner": data.winner.trial if data.winner else 0,
            "names": [clean(name) for name in data.names],
            "scale": encode_scale(data),
            "objectives": encode_objectives(data),
            "metrics": data.metrics,
            "by": step_metrics(data.trials, data.metrics),
            "system": data.system,
            "row": list(comparison_row(data).values()),
            "head": part("head", data, self._acts),
        }
        for name, now in parts.items():
            if name not in self._parts or self._parts[name][0] != now:
                self._parts[name] = now, data.status.at_ms

    def _compute(self, data: SweepData) -> None:
        """Compute what takes seconds while polls are answered."""
        try:
            self._known = replace(data, known=None).importances
        finally:
            self._computed_s = time.monotonic()

    def _changes(self, since: str) -> dict[str, Any] | None:
        """Return a patch, or `reset`: the page must be loaded again."""
        at = int(since) if since.isdecimal() and len(since) < _DIGITS else 0
        if not self._first <= at <= self.data.status.at_ms:
            return {"reset": True}
        if at >= self._changed_ms:
            return None
        moved = [number for number, ms in self._moved.items() if ms > at]
        changed = [t for t in self.data.trials if self._changed.get(t.id.number, 0) > at]
        parts = {name: now for name, (now, ms) in self._parts.items() if ms > at}
        return self._patch(changed, moved) | parts

    def _patch(self, trials: Sequence[TrialView], moved: Sequence[int]) -> dict[str, Any]:
        """Return trials with their curves and places."""
        data = self.data
        changed = [*moved, *(t.id.number for t in trials)]
        curves = {t.id.number: data.curves.get(t.id.number, ()) for t in trials}
        return {
            "at": data.status.at_ms,
            "standing": encode_moves(data, encode_standing(data), changed),
            "progress": encode_moves(data, encode_progress(data), changed),
            "meta": part("meta", data, True),
            "trials": encode_trials(data.sweep, trials, data.names, data.rivals),
            "curves": pack_curves(curves, data.is_log, data.points, data.longest),
        }
