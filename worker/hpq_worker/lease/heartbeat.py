"""The beat thread: extends the lease of the running attempt and carries its reports to the store.

It has a connection of its own with short timeouts, so a Redis that hangs never blocks training. New
reports go out at once, at most four times a second; a silent trial beats every sixth of a lease.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from threading import Condition, Thread

from redis.exceptions import RedisError

from hpq.domain.attempt import HeartbeatReply, WorkerPresence
from hpq.domain.trial import Claim
from hpq.store.trials import TrialStore
from hpq_worker.lease.redis_outage import Outage
from hpq_worker.lease.report_buffer import ReportBuffer

_GAP_S = 0.25
_AFTER_ERROR_S = 1.0
_NOT_TAKEN = (HeartbeatReply.LOST, HeartbeatReply.UNKNOWN)


class Heartbeat:
    """Beats for one attempt at a time; `wake` is a pipe that hears of each verdict but ok."""

    def __init__(
        self, store: TrialStore, who: WorkerPresence, lease_ms: int, wake: int, outage: Outage
    ) -> None:
        self._store, self._who, self._lease_ms, self._wake = store, who, lease_ms, wake
        self._outage = outage
        self._changed = Condition()
        self._claim: Claim | None = None
        self._collector: ReportBuffer | None = None
        self._sending = False
        self._sent_at = 0.0
        self.verdict = HeartbeatReply.OK
        self.last_ok_at = time.monotonic()
        Thread(target=self._loop, name="beats", daemon=True).start()

    def begin(self, claim: Claim, collector: ReportBuffer) -> None:
        """Beat for this attempt from now on."""
        with self._changed:
            self._claim, self._collector, self.verdict = claim, collector, HeartbeatReply.OK
            self._sent_at = time.monotonic() - _GAP_S  # the claim has just begun the lease
            self._changed.notify()

    def nudge(self) -> None:
        """There is something new to send."""
        with self._changed:
            self._changed.notify()

    def end(self) -> None:
        """Beat no more for this attempt; a beat under way is waited for."""
        with self._changed:
            self._claim = None
            self._changed.wait_for(lambda: not self._sending)
        self._outage.left("beats")

    def flush(self) -> None:
        """Send what is left, from the calling thread; the lease goes on being extended meanwhile.

        Raises:
            redis.RedisError: the store did not take it; calling again sends the same batch.
        """
        with self._changed:
            # Taken first: where Redis hangs, the thread would begin its next beat before we wake.
            claim, collector, self._claim = self._claim, self._collector, None
            self._changed.wait_for(lambda: not self._sending)
        try:
            while claim is not None and collector is not None and not collector.is_empty:
                batch = collector.batch()
                verdict = self._store.beat(claim, self._who, batch, lease_ms=self._lease_ms)
                collector.acknowledge(verdict not in _NOT_TAKEN)
                if verdict in _NOT_TAKEN:
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
                assert self._collector is not None
                if self._collector.is_empty:
                    self._changed.wait(max(0.0, self._sent_at + silence_s - time.monotonic()))
                claim, collector = self._claim, self._collector
                due = not collector.is_empty or time.monotonic() >= self._sent_at + silence_s
                wait_s = self._sent_at + pause_s - time.monotonic()
                if claim is None or not due or wait_s > 0:
                    if claim is not None and due:
                        self._changed.wait(wait_s)
                    continue
                self._sending = True
            self._sent_at = time.monotonic()
            try:
                pause_s = _GAP_S if self._send(claim, collector) else _AFTER_ERROR_S
            finally:
                with self._changed:
                    self._sending = False
                    self._changed.notify_all()

    def _send(self, claim: Claim, collector: ReportBuffer) -> bool:
        batch = collector.idle_batch() if collector.is_empty else collector.batch()
        try:
            verdict = self._store.beat(claim, self._who, batch, lease_ms=self._lease_ms)
        except RedisError as error:
            self._outage.missed("beats", error)
            return False
        self._outage.answered("beats")
        collector.acknowledge(verdict not in _NOT_TAKEN)
        self.last_ok_at = time.monotonic()
        if verdict is not HeartbeatReply.OK and verdict is not self.verdict:
            self.verdict = verdict
            with suppress(BlockingIOError):  # full: whoever reads it is going to look anyway
                os.write(self._wake, b"v")
        return True
