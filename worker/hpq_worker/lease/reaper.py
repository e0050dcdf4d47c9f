"""The thread that says that a worker is there and gives lost trials back, also while it trains."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from threading import Event, Thread

from redis.exceptions import RedisError

from hpq.domain.attempt import WorkerPresence
from hpq.settings import Settings
from hpq.store.trials import TrialStore
from hpq_worker.health.telemetry import Telemetry
from hpq_worker.lease.redis_outage import Outage

log = logging.getLogger("hpq.housekeeper")
_SHARE = 0.8  # of an interval: a lone worker, whose looks are an interval apart, does it at each
_ASK_S = 30.0  # between two looks at the figures of the server


class Reaper:
    """Every HPQ_REAP_S: presence, then the reaper.

    `describe` answers the worker as it is now and whether it is idle; `keep_ran_on` sends what its
    attempts run on, where the server let that go; `server_figures` reads the server's figures of
    the worker's class. After a gap in its own contact it reaps nothing for one lease: others were
    perhaps cut off just as it was.
    """

    def __init__(
        self,
        settings: Settings,
        store: TrialStore,
        describe: Callable[[], tuple[WorkerPresence, bool]],
        vitals: Telemetry,
        outage: Outage,
        keep_ran_on: Callable[[], object] = lambda: None,
        server_figures: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._settings, self._store, self._describe = settings, store, describe
        self._vitals, self._asked_at = vitals, -_ASK_S
        self._outage, self._keep_ran_on = outage, keep_ran_on
        self._server_figures = server_figures
        self._stop = Event()
        self._contact_at = time.monotonic()
        self._careful_until = 0.0
        self._thread = Thread(target=self._loop, name="housekeeper", daemon=True)

    def start(self) -> None:
        """Say that the worker is there, give back what is lost already, then go on doing so."""
        self.look()
        self._thread.start()

    def stop(self) -> None:
        """Say that the worker is leaving."""
        self._stop.set()
        self._thread.join(timeout=5)
        try:
            self._store.absent(self._describe()[0])
        except RedisError as error:
            log.info("could not say goodbye: %s", error)

    def _loop(self) -> None:
        while not self._stop.wait(self._settings.reap_s):
            self.look()

    def look(self) -> None:
        """Say that the worker is there, and give back what is lost."""
        try:
            self._reap(self._present())
            self._contact_at = time.monotonic()
            self._outage.answered("housekeeper")
            self._vitals.tick(self._ask())
        except RedisError as error:
            self._outage.missed("housekeeper", error)
            self._vitals.error()

    def _ask(self) -> Mapping[str, float]:
        if not self._vitals.is_heard or time.monotonic() - self._asked_at < _ASK_S:
            return {}
        self._asked_at = time.monotonic()
        return self._server_figures()

    def _present(self) -> int:
        who, is_idle = self._describe()
        if self._vitals.is_heard:
            self._vitals.state(who.fields["state"], who.fields["fault"])
        life = 3 * self._settings.lease_ms
        return self._store.present(who, idle=is_idle, lifetime_ms=life, lost=self._keep_ran_on)

    def _reap(self, as_of_ms: int) -> None:
        now, lease_s = time.monotonic(), self._settings.lease_s
        if now - self._contact_at > lease_s / 2 + self._settings.reap_s:
            self._careful_until = now + lease_s
        if now < self._careful_until:
            return
        settings = self._settings
        reaped = self._store.reap(
            settings.queue,
            lease_ms=settings.lease_ms,
            lost_max=settings.lost_max,
            as_of_ms=as_of_ms,
            every_ms=int(_SHARE * 1000 * settings.reap_s),
        )
        if reaped and reaped.queued:
            log.warning("%s queued again: the worker was lost", _trials(reaped.queued))
        if reaped and reaped.ended:
            log.warning(
                "%s over: the worker was lost; poison, or told to stop before",
                _trials(reaped.ended),
            )


def _trials(count: int) -> str:
    return "1 trial is" if count == 1 else f"{count} trials are"
