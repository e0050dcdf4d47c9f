"""Send a notice when a sweep is held or over: one JSON webhook, once, from the first worker to see.

HPQ_NOTIFY names the URL, which never goes to Redis. Slack accepts the body. A trial never waits for
a notice: a thread sends it, and tries again twice.
"""

from __future__ import annotations

import json
import logging
import time
import urllib.request
from threading import Event, Thread

from hpq.domain.sweep import Sweep, SweepState
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore

log = logging.getLogger("hpq.notices")
_NEWEST = 20  # sweeps that are checked
_EVERY_S = 5.0
_WAITS_S = (1.0, 10.0)  # before the second try and the third
_TIMEOUT_S = 5.0
_WORTH_A_NOTICE = (SweepState.HELD, SweepState.FINISHED, SweepState.CANCELLED)


class Notices:
    """Sends notices of changes since the first call of `look`, which the reaper calls."""

    def __init__(self, url: str, worker_class: str, reader: StoreReader, store: TrialStore) -> None:
        self._url, self._class, self._reader, self._store = url, worker_class, reader, store
        self._seen: dict[str, SweepState] | None = None
        self._looked_at = -_EVERY_S
        self._stop, self._threads = Event(), list[Thread]()

    def look(self, *, at_once: bool = False) -> None:
        """Send new notices; check at most every few seconds, unless `at_once`.

        Raises:
            RedisError: Redis does not answer.
        """
        if not self._url or (not at_once and time.monotonic() - self._looked_at < _EVERY_S):
            return
        self._looked_at = time.monotonic()
        found = self._reader.sweeps.get_each(self._reader.sweeps.ids(_NEWEST))
        sweeps = [s for s in found if isinstance(s, Sweep) and s.worker_class == self._class]
        before = {} if self._seen is None else self._seen
        for sweep in sweeps if self._seen is not None else ():
            was, now = before.get(sweep.id), sweep.state
            if was in _WORTH_A_NOTICE and was is not now:  # resumed, or retried
                self._store.drop_notice(sweep.id, was)
            if was is not now and now in _WORTH_A_NOTICE and self._store.take_notice(sweep.id, now):
                self._send(self._text(sweep))
        self._seen = {sweep.id: sweep.state for sweep in sweeps}

    def close(self) -> None:
        """Wait a few seconds for notices that are being sent."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=_TIMEOUT_S)

    def _text(self, sweep: Sweep) -> str:
        counts = sweep.counts
        (best,) = self._reader.trials.best_objectives([sweep])
        parts = [
            f"hpq: {sweep.id} is {sweep.state}",
            f"{counts.finished} of {counts.total} finished",
        ]
        parts += [f"{counts.failed} failed"] if counts.failed else []
        parts += (
            [f"best {sweep.metric.name} {best:.5g}"] if sweep.metric and best is not None else []
        )
        return ", ".join(parts) + (f": {sweep.held}" if sweep.held else "")

    def _send(self, text: str) -> None:
        thread = Thread(target=self._post, args=(text,), name="notice", daemon=True)
        self._threads = [*filter(Thread.is_alive, self._threads), thread]
        thread.start()

    def _post(self, text: str) -> None:
        head, body = {"Content-Type": "application/json"}, json.dumps({"text": text}).encode()
        for wait_s in (*_WAITS_S, None):
            try:
                request = urllib.request.Request(self._url, body, head)
                with urllib.request.urlopen(request, timeout=_TIMEOUT_S):
                    return
            except (OSError, ValueError) as error:
                # The error's text may quote the URL, which is a secret.
                log.warning("notice not sent: %s", type(error).__name__)
            if wait_s is None or self._stop.wait(wait_s):
                log.error("notice given up: %s", text)
                return
