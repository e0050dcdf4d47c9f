"""Send a notice when a sweep is held, stalled, near its budget or over: one JSON webhook, once.

The URL is HPQ_NOTIFY, which never goes to Redis. A trial never waits for a notice: a thread sends
it, and tries again twice.
"""

from __future__ import annotations

import html
import json
import logging
import math
import urllib.request
from collections.abc import Mapping
from concurrent.futures import wait
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from threading import Event
from typing import Any

from hpq.domain.sweep import SweepState, SweepView
from hpq.sanitize import visible
from hpq.settings import Settings
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from hpq_worker.process.call_thread import CallThread

log = logging.getLogger("hpq.notices")
_REASON = 300  # characters of why
_WAITS_S = (1.0, 10.0, 0.0)  # after each try
TIMEOUT_S = 5.0
_NEWEST = 20  # sweeps that are checked beside the open ones
_STALLED_S = 600.0  # trials wait, and no worker of the queue runs any trial
_STALLED = "stalled"
_NEAR = "near its budget"
_EVENTS = {SweepState.HELD, SweepState.FINISHED, SweepState.CANCELLED, _STALLED, _NEAR}


class Notices:
    """Sends notices of changes since the last look by any worker of the queue that has HPQ_NOTIFY.

    One of these workers looks every few seconds, and each at its exit. The first that can send a
    notice takes it.
    """

    def __init__(
        self,
        settings: Settings,
        reader: StoreReader,
        store: TrialStore,
        stalled_s: float = _STALLED_S,
    ) -> None:
        self._settings, self._reader, self._store = settings, reader, store
        self._stalled_ms = 1000 * stalled_s
        self._stop, self._thread = Event(), CallThread("notices")

    def look(self, *, at_once: bool = False) -> None:
        """Send notices of changes if no worker has just looked, or `at_once`.

        Raises:
            RedisError: Redis does not answer.
        """
        queue, url = self._settings.queue, self._settings.notify
        # A worker that cannot send must not see a change before those that can.
        if not url or not (at_once or self._store.take_look(queue)):
            return
        text, now_ms = self._store.last_look(queue)
        newest_ms, before, since = 0, dict[str, str](), dict[str, int]()
        is_first = True
        with suppress(Exception):  # none, or damaged: this look is the first
            ms, states, times = json.loads(text)
            before = {sid: str(state) for sid, state in states.items()}
            since = {sid: int(at_ms) for sid, at_ms in times.items()}
            newest_ms, is_first = int(ms), False
        ids = [*self._reader.sweeps.open_ids(queue), *self._reader.sweeps.ids(_NEWEST), *before]
        found = self._reader.sweeps.get_each(list(dict.fromkeys(ids)))
        sweeps = [s for s in found if isinstance(s, SweepView) and s.queue == queue]
        is_idle = not any(s.counts.running for s in sweeps)
        waits = {
            s.id: since.get(s.id, now_ms)
            for s in sweeps
            if is_idle and s.state is SweepState.RUNNING and s.counts.waits
        }
        newest = {s.id for s in sorted(sweeps, key=lambda s: -s.created_ms)[:_NEWEST]}
        states = {}
        for sweep in sweeps:
            is_late = now_ms - waits.get(sweep.id, math.inf) >= self._stalled_ms
            what = _STALLED if is_late else sweep.state.value
            is_near = sweep.budget is not None and sweep.budget.is_near
            if is_near and what == SweepState.RUNNING:
                what = _NEAR
            # An older sweep that is over needs no further notice.
            if not sweep.state.is_over or sweep.id in newest:
                states[sweep.id] = what
            was = before.get(sweep.id, "")
            # A sweep that was not among the newest has not changed.
            if is_first or was == what or (not was and sweep.created_ms <= newest_ms):
                continue
            if was in _EVENTS and not (was == _NEAR and is_near):  # resumed, or retried
                self._store.drop_notice(sweep.id, was)
            if what in _EVENTS and self._store.take_notice(sweep.id, what):
                self._thread.submit(partial(self._post, url, self._body(sweep, what)))
        newest_ms = max([newest_ms, *(s.created_ms for s in sweeps)])
        self._store.keep_look(queue, json.dumps([newest_ms, states, waits]))

    def close(self) -> None:
        """Wait a few seconds for notices that are being sent."""
        wait({self._thread.submit(lambda: None)}, TIMEOUT_S)
        self._stop.set()

    def _body(self, sweep: SweepView, what: str) -> dict[str, Any]:
        (best,) = self._reader.trials.best_objectives([sweep])
        why = sweep.why_held or (str(sweep.budget) if what == _NEAR else "")
        if what == _STALLED:
            why = f"trials wait, and no worker runs one; see hpq show {sweep.id}"
        return _notice(sweep, what, best, why)

    def _post(self, url: str, body: Mapping[str, Any]) -> None:
        """Post a notice, three times at most."""
        head, data = {"Content-Type": "application/json"}, json.dumps(body).encode()
        for wait_s in _WAITS_S:
            try:
                request = urllib.request.Request(url, data, head)
                with _OPENER.open(request, timeout=TIMEOUT_S):
                    return
            except (OSError, ValueError, HTTPException) as error:
                # The error's text may quote the URL, which is a secret.
                log.warning("notice not sent: %s", type(error).__name__)
            if self._stop.wait(wait_s):
                break
        log.error("notice given up: %s", body["text"])


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: urllib would turn the POST into a GET, and go where it is sent."""

    def redirect_request(self, *args: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def _notice(sweep: SweepView, event: str, best: float | None, why: str) -> dict[str, Any]:
    """Return the body of a notice; `best` is the best objective of the sweep."""
    counts, metric = sweep.counts, sweep.metric
    parts = [f"hpq: {sweep.id} is {event}", f"{counts.finished} of {counts.total} finished"]
    parts += [f"{counts.failed} failed"] if counts.failed else []
    parts += [f"best {metric.name} {best:.5g}"] if metric and best is not None else []
    reason = visible(why)[:_REASON]
    text = ", ".join(parts) + (f": {reason}" if reason else "")
    return {
        "text": html.escape(text, quote=False),  # Slack reads <…> as links and mentions
        "event": event,
        "sweep": sweep.id,
        "owner": sweep.owner,
        "trials": counts.total,
        "finished": counts.finished,
        "failed": counts.failed,
        "metric": metric.name if metric else None,
        "best": best if best is not None and math.isfinite(best) else None,  # JSON has no NaN
        "reason": reason,
    }
