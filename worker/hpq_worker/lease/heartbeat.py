"""The heartbeat thread: extends the lease of the running attempt and sends its reports to Redis.

It has its own connection with short timeouts, so a Redis that hangs never blocks training. It sends
new reports at once, at most four times a second; a silent trial beats every sixth of a lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Condition, Thread

from redis.exceptions import RedisError

from hpq.domain.attempt import HeartbeatReply, WorkerPresence
from hpq.domain.trial import Claim
from hpq.store.trials import TrialStore
from hpq_worker.lease.redis_outage import Outage
from hpq_worker.lease.report_buffer import ReportBuffer
from hpq_worker.process.watchdog import Progress

_GAP_S = 0.25
_AFTER_ERROR_S = 1.0
_REJECTED = (HeartbeatReply.LOST, HeartbeatReply.UNKNOWN)


class Heartbeat:
    """Beats for one attempt at a time; calls `wake` for each reply other than ok."""

    def __init__(
        self,
        store: TrialStore,
        worker: WorkerPresence,
        lease_ms: int,
        wake: Callable[[], object],
        outage: Outage,
        progress: Progress,
    ) -> None:
        self._store, self._worker, self._lease_ms, self._wake = store, worker, lease_ms, wake
        self._outage, self._progress = outage, progress
        self._changed = Condition()
        self._claim: Claim | None = None
        self._reports: ReportBuffer | None = None
        self._sending = False
        self._sent_at = 0.0
        self.reply = HeartbeatReply.OK
        Thread(target=self._loop, name="heartbeat", daemon=True).start()

    def begin(self, claim: Claim, reports: ReportBuffer) -> None:
        """Start to beat for an attempt."""
        with self._changed:
            self._claim, self._reports, self.reply = claim, reports, HeartbeatReply.OK
            self._sent_at = time.monotonic() - _GAP_S  # the claim has just begun the lease
            self._changed.notify()

    def notify(self) -> None:
        """Send new reports soon."""
        with self._changed:
            self._changed.notify()

    def end(self) -> None:
        """Stop to beat for the attempt, after a beat under way."""
        with self._changed:
            self._claim = None
            self._changed.wait_for(lambda: not self._sending)
        self._outage.idle("beats")

    def flush(self) -> None:
        """Send all reports from the calling thread; beats resume afterwards.

        Raises:
            redis.RedisError: Redis is away; the next call sends the same batch.
        """
        with self._changed:
            # Cleared first: if Redis hangs, the thread would begin its next beat before we wake.
            claim, reports, self._claim = self._claim, self._reports, None
            self._changed.wait_for(lambda: not self._sending)
        try:
            while claim is not None and reports is not None and not reports.is_empty:
                self._progress.stamp()
                batch = reports.batch()
                reply = self._store.beat(claim, self._worker, batch, lease_ms=self._lease_ms)
                reports.acknowledge(reply not in _REJECTED)
                if reply in _REJECTED:
                    return
        finally:
            with self._changed:
                self._claim = claim
                self._changed.notify_all()

    def _loop(self) -> None:
        silence_s = self._lease_ms / 6000
        pause_s = _GAP_S
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._claim is not None)
                assert self._reports is not None
                if self._reports.is_empty:
                    self._changed.wait(max(0.0, self._sent_at + silence_s - time.monotonic()))
                claim, reports = self._claim, self._reports
                due = not reports.is_empty or time.monotonic() >= self._sent_at + silence_s
                wait_s = self._sent_at + pause_s - time.monotonic()
                if claim is None or not due or wait_s > 0:
                    if claim is not None and due:
                        self._changed.wait(wait_s)
                    continue
                self._sending = True
            self._sent_at = time.monotonic()
            try:
                pause_s = _GAP_S if self._send(claim, reports) else _AFTER_ERROR_S
            finally:
                with self._changed:
                    self._sending = False
                    self._changed.notify_all()

    def _send(self, claim: Claim, reports: ReportBuffer) -> bool:
        # Renewed from the last turn of the main loop on: the lease of one that hangs ends.
        lease_ms = self._lease_ms - int(1000 * self._progress.age_s)
        if lease_ms <= 0:
            return False
        batch = reports.idle_batch() if reports.is_empty else reports.batch()
        try:
            reply = self._store.beat(claim, self._worker, batch, lease_ms=lease_ms)
        except RedisError as error:
            self._outage.failed("beats", error)
            return False
        except MemoryError:  # the next beat may have it; without beats the lease ends
            return False
        self._outage.answered("beats")
        reports.acknowledge(reply not in _REJECTED)
        if reply is not HeartbeatReply.OK and reply is not self.reply:
            self.reply = reply
            self._wake()
        return True
