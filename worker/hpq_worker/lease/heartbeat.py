"""The heartbeat thread: extends the lease of the running attempt and sends its reports to Redis.

It has its own connection with short timeouts, so a Redis that hangs never blocks training. Reports
travel 10 ms after the first of them, at most four times a second; those of a shorter trial travel
with its commit. Waiting longer let a trial that reports in a tight loop escape early termination.
A silent trial beats every sixth of a lease.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from threading import Condition, Thread

from redis.exceptions import RedisError

from hpq.domain.attempt import HeartbeatReply, ReportBatch, WorkerPresence
from hpq.domain.trial import Claim
from hpq.store.trials import TrialStore
from hpq_worker.lease.outage_log import OutageLog
from hpq_worker.lease.report_buffer import ReportBuffer
from hpq_worker.process.watchdog import Progress

_GATHER_S = 0.01  # from the first new report to its beat: a shorter trial needs none
_GAP_S = 0.25  # between two beats
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
        outage: OutageLog,
        progress: Progress,
    ) -> None:
        self._store = store
        self._worker = worker
        self._lease_ms = lease_ms
        self._wake = wake
        self._outage = outage
        self._progress = progress
        self._changed = Condition()
        self._claim: Claim | None = None
        self._reports: ReportBuffer | None = None
        self._sent_at = self._news_at = self._pause_s = 0.0
        self._wakes_at = math.inf  # the thread, by itself
        self.reply = HeartbeatReply.OK
        Thread(target=self._loop, name="heartbeat", daemon=True).start()

    def begin(self, claim: Claim, reports: ReportBuffer) -> None:
        """Start to beat for an attempt."""
        with self._changed:
            self._claim = claim
            self._reports = reports
            self.reply = HeartbeatReply.OK
            self._sent_at = self._news_at = time.monotonic()  # the claim has just begun the lease
            self._pause_s = _GATHER_S
            self._hurry()

    def notify(self) -> None:
        """Send new reports soon."""
        with self._changed:
            if self._news_at <= self._sent_at and self._reports and not self._reports.is_empty:
                self._news_at = time.monotonic()
                self._hurry()

    def end(self) -> None:
        """Stop to beat for the attempt; Redis rejects a beat that is still under way."""
        with self._changed:
            self._claim = None
            self._outage.idle("beats")

    def flush(self) -> None:
        """Send all reports from the calling thread.

        The thread may send the same batch meanwhile: Redis counts a batch once.

        Raises:
            redis.RedisError: Redis is away; the next call sends the same batch.
        """
        self._flush(keeps_last=False)

    def last_batch(self) -> ReportBatch | None:
        """Send all reports but those of the last batch; return it, for a commit, or None.

        A beat may send it, too: Redis records it once. Raises as `flush`.
        """
        return self._flush(keeps_last=True)

    def _flush(self, *, keeps_last: bool) -> ReportBatch | None:
        claim = self._claim
        reports = self._reports
        while claim is not None and reports is not None and not reports.is_empty:
            self._progress.stamp()
            batch = reports.batch()
            if keeps_last and reports.is_last:
                return batch
            reply = self._store.beat(claim, self._worker, batch, lease_ms=self._lease_ms)
            reports.acknowledge(batch, reply not in _REJECTED)
            if reply in _REJECTED:
                break
        return None

    def _due_at(self) -> float:
        if self._claim is None or self._reports is None:
            return math.inf
        if self._reports.is_empty:
            return self._sent_at + self._lease_ms / 6000
        return max(self._sent_at + self._pause_s, self._news_at + _GATHER_S)

    def _hurry(self) -> None:
        # Only if it would sleep too long: of trials that take milliseconds it need not know.
        if self._due_at() < self._wakes_at:
            self._changed.notify()

    def _loop(self) -> None:
        while True:
            with self._changed:
                while (due_at := self._due_at()) > (now := time.monotonic()):
                    self._wakes_at = due_at
                    self._changed.wait(None if due_at == math.inf else due_at - now)
                self._sent_at = now
                claim = self._claim
                reports = self._reports
            assert claim is not None and reports is not None
            self._pause_s = _GAP_S if self._send(claim, reports) else _AFTER_ERROR_S

    def _send(self, claim: Claim, reports: ReportBuffer) -> bool:
        # Renewed from the last turn of the main loop on: the lease of one that hangs ends.
        lease_ms = self._lease_ms - int(1000 * self._progress.age_s)
        if lease_ms <= 0:
            return False
        batch = reports.idle_batch() if reports.is_empty else reports.batch()
        try:
            reply = self._store.beat(claim, self._worker, batch, lease_ms=lease_ms)
        except RedisError as error:
            with self._changed:
                if self._claim is claim:
                    self._outage.failed("beats", error)
            return False
        except MemoryError:  # the next beat may have it; without beats the lease ends
            return False
        self._outage.answered("beats")
        reports.acknowledge(batch, reply not in _REJECTED)
        with self._changed:
            is_news = self._claim is claim and reply not in (HeartbeatReply.OK, self.reply)
            self.reply = reply if is_news else self.reply
        if is_news:
            self._wake()
        return True
