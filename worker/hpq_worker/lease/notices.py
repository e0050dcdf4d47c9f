"""Send a notice when a sweep is held, stalled or over: one JSON webhook, once.

The URL is HPQ_NOTIFY, which never goes to Redis. A trial never waits for a notice: a thread sends
it, and tries again twice.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import wait
from functools import partial
from threading import Event
from typing import Any

from hpq.domain.sweep import SweepState, SweepView
from hpq.settings import Settings
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from hpq.webhook import TIMEOUT_S, notice, post
from hpq_worker.process.call_thread import CallThread

log = logging.getLogger("hpq.notices")
_NEWEST = 20  # sweeps that are checked beside the open ones
_EVERY_S = 5.0
_STALLED_S = 600.0  # trials wait, and no worker of the queue runs any trial
_STALLED = "stalled"
_EVENTS = {SweepState.HELD, SweepState.FINISHED, SweepState.CANCELLED, _STALLED}


class Notices:
    """Sends notices of changes since the first call of `look`, which the reaper calls.

    All workers of a queue look; the first that can send a notice takes it.
    """

    def __init__(
        self,
        settings: Settings,
        reader: StoreReader,
        store: TrialStore,
        stalled_s: float = _STALLED_S,
    ) -> None:
        self._settings, self._reader, self._store = settings, reader, store
        self._stalled_s = stalled_s
        self._seen: dict[str, str] | None = None
        self._newest_ms = 0
        self._waits: dict[str, float] = {}  # since when no trial of the queue runs, by sweep
        self._looked_at = -_EVERY_S
        self._stop, self._thread = Event(), CallThread("notices")

    def look(self, *, at_once: bool = False) -> None:
        """Send new notices; check at most every few seconds, unless `at_once`.

        Raises:
            RedisError: Redis does not answer.
        """
        now = time.monotonic()
        if not at_once and now - self._looked_at < _EVERY_S:
            return
        self._looked_at, queue = now, self._settings.queue
        is_first = self._seen is None
        before, seen = self._seen or {}, dict[str, str]()
        ids = [*self._reader.sweeps.open_ids(queue), *self._reader.sweeps.ids(_NEWEST), *before]
        found = self._reader.sweeps.get_each(list(dict.fromkeys(ids)))
        sweeps = [s for s in found if isinstance(s, SweepView) and s.queue == queue]
        is_idle = not any(s.counts.running for s in sweeps)
        newest = {s.id for s in sorted(sweeps, key=lambda s: -s.created_ms)[:_NEWEST]}
        for sweep in sweeps:
            what = self._state(sweep, is_idle, now)
            # An older sweep that is over needs no further notice.
            if not sweep.state.is_over or sweep.id in newest:
                seen[sweep.id] = what
            was = before.get(sweep.id, "")
            # A sweep that was not among the newest has not changed.
            if is_first or was == what or (not was and sweep.created_ms <= self._newest_ms):
                continue
            if was in _EVENTS:  # resumed, or retried
                self._store.drop_notice(sweep.id, was)
            url = self._settings.notify
            if url and what in _EVENTS and self._store.take_notice(sweep.id, what):
                self._thread.submit(partial(self._post, url, self._body(sweep, what)))
        self._seen = seen
        self._newest_ms = max([self._newest_ms, *(s.created_ms for s in sweeps)])

    def close(self) -> None:
        """Wait a few seconds for notices that are being sent."""
        wait({self._thread.submit(lambda: None)}, TIMEOUT_S)
        self._stop.set()

    def _state(self, sweep: SweepView, is_idle: bool, now: float) -> str:
        if not (is_idle and sweep.state is SweepState.RUNNING and sweep.counts.waits):
            self._waits.pop(sweep.id, None)
            return sweep.state
        is_late = now - self._waits.setdefault(sweep.id, now) >= self._stalled_s
        return _STALLED if is_late else sweep.state

    def _body(self, sweep: SweepView, what: str) -> dict[str, Any]:
        (best,) = self._reader.trials.best_objectives([sweep])
        why = sweep.held
        if what == _STALLED:
            why = f"trials wait, and no worker runs one; see hpq show {sweep.id}"
        return notice(sweep, what, best, why)

    def _post(self, url: str, body: dict[str, Any]) -> None:
        if not post(url, body, self._stop.wait):
            log.error("notice given up: %s", body["text"])
