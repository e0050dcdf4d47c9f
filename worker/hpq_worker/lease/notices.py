"""Send a notice when a sweep is held, stalled or over: one JSON webhook, once.

The URL is the sweep's (`notify`, encrypted in Redis), else HPQ_NOTIFY, which never goes to Redis.
Slack accepts the body. A trial never waits for a notice: a thread sends it, and tries again twice.
"""

from __future__ import annotations

import html
import json
import logging
import math
import time
import urllib.request
from concurrent.futures import wait
from functools import partial
from http.client import HTTPException
from threading import Event
from typing import Any

from hpq.code.sealing import unseal
from hpq.code.signing import key_of
from hpq.domain.sweep import Sweep, SweepState
from hpq.sanitize import visible
from hpq.settings import Settings
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from hpq_worker.process.call_thread import CallThread

log = logging.getLogger("hpq.notices")
_NEWEST = 20  # sweeps that are checked beside the open ones
_REASON = 300  # characters of why
_EVERY_S = 5.0
_STALLED_S = 600.0  # trials wait, and no worker of the queue runs any trial
_WAITS_S = (1.0, 10.0)  # before the second try and the third
_TIMEOUT_S = 5.0
_STALLED = "stalled"
_EVENTS = {SweepState.HELD, SweepState.FINISHED, SweepState.CANCELLED, _STALLED}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: urllib would turn the POST into a GET, and go where it is sent."""

    def redirect_request(self, *args: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


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
        self._key, self._stalled_s = key_of(settings, make=False), stalled_s
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
        sweeps = [s for s in found if isinstance(s, Sweep) and s.worker_class == queue]
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
            url = self._url(sweep) if what in _EVENTS else ""
            if url and self._store.take_notice(sweep.id, what):
                self._thread.submit(partial(self._post, url, self._body(sweep, what)))
        self._seen = seen
        self._newest_ms = max([self._newest_ms, *(s.created_ms for s in sweeps)])

    def close(self) -> None:
        """Wait a few seconds for notices that are being sent."""
        wait({self._thread.submit(lambda: None)}, _TIMEOUT_S)
        self._stop.set()

    def _state(self, sweep: Sweep, is_idle: bool, now: float) -> str:
        if not (is_idle and sweep.state is SweepState.RUNNING and sweep.counts.waits):
            self._waits.pop(sweep.id, None)
            return sweep.state
        is_late = now - self._waits.setdefault(sweep.id, now) >= self._stalled_s
        return _STALLED if is_late else sweep.state

    def _url(self, sweep: Sweep) -> str:
        if not sweep.notify:
            return self._settings.notify
        if not (url := unseal(self._key, sweep.id, sweep.notify)):
            log.warning("%s: another key sealed its notify; a worker with it sends", sweep.id)
        return url

    def _body(self, sweep: Sweep, what: str) -> dict[str, Any]:
        counts, metric = sweep.counts, sweep.metric
        (best,) = self._reader.trials.best_objectives([sweep])
        parts = [f"hpq: {sweep.id} is {what}", f"{counts.finished} of {counts.total} finished"]
        parts += [f"{counts.failed} failed"] if counts.failed else []
        parts += [f"best {metric.name} {best:.5g}"] if metric and best is not None else []
        why = sweep.held
        if what == _STALLED:
            why = f"trials wait, and no worker runs one; see hpq show {sweep.id}"
        why = visible(why)[:_REASON]
        text = ", ".join(parts) + (f": {why}" if why else "")
        return {
            "text": html.escape(text, quote=False),  # Slack reads <…> as links and mentions
            "event": what,
            "sweep": sweep.id,
            "owner": sweep.owner,
            "trials": counts.total,
            "finished": counts.finished,
            "failed": counts.failed,
            "metric": metric.name if metric else None,
            "best": best if best is not None and math.isfinite(best) else None,  # JSON has no NaN
            "reason": why,
        }

    def _post(self, url: str, body: dict[str, Any]) -> None:
        head, data = {"Content-Type": "application/json"}, json.dumps(body).encode()
        for wait_s in (*_WAITS_S, None):
            try:
                request = urllib.request.Request(url, data, head)
                with _OPENER.open(request, timeout=_TIMEOUT_S):
                    return
            except (OSError, ValueError, HTTPException) as error:
                # The error's text may quote the URL, which is a secret.
                log.warning("notice not sent: %s", type(error).__name__)
            if wait_s is None or self._stop.wait(wait_s):
                log.error("notice given up: %s", body["text"])
                return
