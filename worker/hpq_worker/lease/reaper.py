"""Requeue the trials of workers that died; each worker has a reaper thread.

The reaper also reports the worker's own presence, and its state for probes.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from threading import Event, Thread

from redis.exceptions import RedisError

from hpq.domain.attempt import IdleReply, WorkerPresence
from hpq.domain.trial import TrialId
from hpq.notice import plural
from hpq.settings import Settings
from hpq.store.trials import TrialStore
from hpq_worker.health.health import StateWriter
from hpq_worker.lease.outage_log import OutageLog
from hpq_worker.lease.webhooks import Notices

log = logging.getLogger("hpq.reaper")
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # counts a suspended machine's sleep
_SHARE = 0.8  # of an interval: a lone worker is the reaper at each run
_SEEN_S = 7.5  # or a quarter of a lease: between two signs of life of an idle worker; no new lease
# ends before the next one
_REPORT_S = 60.0  # or two leases: between two reports of an idle worker with nothing to reap
_DRIFT_MS = 1_000  # between two clocks; after more, one of them has jumped


class Reaper:
    """Every HPQ_REAP_S: report presence, then requeue trials whose lease expired.

    An idle worker does so twice after it became idle, since others may start in the room of its
    trial's owner; if a lease expired, trials wait, or the server has restarted, is short of memory
    or has another time; else once a minute.

    `describe` returns the current presence record and whether the worker is idle; `send_provenance`
    sends the provenance record again if the server has dropped it. The leases of the attempts in
    `dead`, each a trial and its token, expire at the next run. After an outage, or a sleep of this
    machine, the reaper waits one lease: other workers may have been cut off just as this one.
    """

    def __init__(
        self,
        settings: Settings,
        store: TrialStore,
        describe: Callable[[], tuple[WorkerPresence, bool]],
        state: StateWriter,
        outage: OutageLog,
        send_provenance: Callable[[], object] = lambda: None,
        notices: Notices | None = None,
        dead: deque[tuple[TrialId, str]] | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._describe = describe
        self._state = state
        self._outage = outage
        self._send_provenance = send_provenance
        self._notices = notices
        self._dead = deque() if dead is None else dead
        self._stop = Event()
        self._contact_at = time.clock_gettime(_CLOCK)
        self._paused_until = 0.0
        self._reported: dict[str, str] | None = None  # what describes the worker, without its GPU
        self._has_changed = False  # by the last report
        self._reported_at = self._seen_at = 0.0
        self._server_ms = 0  # at `_reported_at`
        self._run_id = ""  # of the server
        self._last: IdleReply | None = None  # no lease ends sooner than it says
        self._logged = ""  # the last error
        self._thread = Thread(target=self._loop, name="reaper", daemon=True)

    def start(self) -> None:
        """Run once, then start the thread."""
        self._try_once()
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and remove the presence record."""
        self._stop.set()
        self._thread.join(timeout=5)
        try:
            self._store.absent(self._describe()[0])
            if self._notices:  # the workers of `hpq run` exit when its sweep is over
                self._notices.look(at_once=True)
                self._notices.close()
        except RedisError as error:
            log.info("could not remove the presence record: %s", error)

    def _loop(self) -> None:
        while not self._stop.wait(self._settings.reap_s):
            self._try_once()

    def _try_once(self) -> None:
        try:
            self.run_once()
        except Exception as error:  # damaged data in Redis must not end a worker that trains
            if repr(error) != self._logged:
                self._logged = repr(error)
                log.error("cannot look for lost workers now: %s", self._logged)

    def run_once(self) -> None:
        """Report presence, and requeue trials whose lease expired."""
        try:
            self._tend()
            self._contact_at = time.clock_gettime(_CLOCK)
            if self._notices:
                self._notices.look()
            self._outage.answered("reaper")
            self._state.redis_answered()
        except RedisError as error:
            self._outage.failed("reaper", error)
            self._state.redis_failed()

    def _tend(self) -> None:
        worker, is_idle = self._describe()
        self._state.worker_state(worker.fields["state"], worker.fields["fault"])
        if not (is_idle and self._is_quiet(worker)):
            self._reap(self._report_presence(worker, is_idle))

    def _is_quiet(self, worker: WorkerPresence) -> bool:
        """Return whether an idle worker has nothing to report or to reap; record that it lives."""
        now, lease_s = time.clock_gettime(_CLOCK), self._settings.lease_s
        since_s = now - self._reported_at
        if self._has_changed or _described(worker) != self._reported:
            return False
        if since_s >= min(_REPORT_S, 2 * lease_s):
            return False
        if self._dead or self._was_away(now) or self._store.needs_reaper(worker.queue):
            return False
        at_ms = self._server_ms + int(1000 * since_s)
        if self._last is None or now - self._seen_at >= min(_SEEN_S, lease_s / 4):
            before, self._seen_at = self._run_id, now
            self._last = self._store.still_idle(worker, at_ms)
            if self._last is None or self._last.is_short:
                return False
            self._run_id = self._last.run_id
            if self._run_id != before or abs(self._last.now_ms - at_ms) > _DRIFT_MS:
                return False
        return at_ms < self._last.lease_end_ms

    def _report_presence(self, worker: WorkerPresence, is_idle: bool) -> int:
        lifetime_ms = 3 * self._settings.lease_ms + int(1000 * self._settings.reap_s)
        reply = self._store.present(worker, idle=is_idle, lifetime_ms=lifetime_ms)
        if reply.lacks_provenance:
            self._send_provenance()
        described = _described(worker)
        self._has_changed, self._reported = described != self._reported, described
        self._reported_at = self._seen_at = time.clock_gettime(_CLOCK)
        self._server_ms, self._last = reply.now_ms, None
        return reply.now_ms

    def _was_away(self, now: float) -> bool:
        """Return whether this worker was cut off, or its machine asleep."""
        away_s = now - self._contact_at
        return away_s > self._settings.lease_s / 2 + self._settings.reap_s

    def _reap(self, as_of_ms: int) -> None:
        now = time.clock_gettime(_CLOCK)
        if self._was_away(now):
            self._paused_until = now + self._settings.lease_s
        if now < self._paused_until:
            return
        settings = self._settings
        dead = tuple(self._dead)
        reaped = self._store.reap(
            settings.queue,
            lease_ms=settings.lease_ms,
            lost_max=settings.lost_max,
            as_of_ms=as_of_ms,
            every_ms=int(_SHARE * 1000 * settings.reap_s),
            dead=dead,
        )
        if reaped:  # else the server has just restarted; the next run sends them again
            for _ in dead:
                self._dead.popleft()
        if reaped and reaped.queued:
            log.warning("%s requeued: their worker was lost", _trials(reaped.queued))
        if reaped and reaped.ended:
            line = "%s ended: their worker was lost; poison, or stopped before"
            log.warning(line, _trials(reaped.ended))


def _described(worker: WorkerPresence) -> dict[str, str]:
    return {name: text for name, text in worker.fields.items() if name != "gpu_util"}


def _trials(count: int) -> str:
    return f"{count} {plural(count, 'trial')}"
