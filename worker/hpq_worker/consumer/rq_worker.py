"""RQ's worker class as hpq uses it: RQ wakes and counts, hpq's scripts decide.

rq is imported here and in hpq/store/tickets only. The overrides remove what would lose, repeat or
stop work when Redis is away or the queue holds foreign data. R1–R25 are the measured holes of RQ in
the reliability study; each override names the hole that it closes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis.exceptions import RedisError
from rq import SimpleWorker
from rq.serializers import JSONSerializer
from rq.worker.base import StopRequested, WorkerStatus
from rq.worker_registration import clean_worker_registry

from hpq.errors import DecodeError
from hpq.store.tickets import Tickets
from hpq_worker.attempt.parts import WorkerParts
from hpq_worker.consumer.claim_loop import ClaimLoop
from hpq_worker.consumer.run_limit import RunLimit
from hpq_worker.process.signals import Signals

_BLOCK_S = 15
_BOUNDED_BLOCK_S = 2  # with a run limit, which is checked between two waits
_TTL_S = 30  # RQ keeps its record of a worker 60 s longer
_BEAT_S = 55  # between two heartbeats for that record
_DRAINED_S = 3.0  # between two claims of a drained worker


class RqWorker(SimpleWorker):  # type: ignore[misc]
    """Waits for a ticket on one queue, then runs the claim loop until no trial is left."""

    log_job_description = False  # R9: it would print what a stranger wrote

    def __init__(
        self, tickets: Tickets, parts: WorkerParts, loop: ClaimLoop, run_limit: RunLimit
    ) -> None:
        self._tickets = tickets
        self._loop = loop
        self._outage = parts.outage
        self._progress = parts.progress
        self._run_limit, self._is_done = run_limit, False
        self._is_waiting = False
        self._beat_at = -math.inf
        self._block_s = _BOUNDED_BLOCK_S if run_limit.is_bounded else _BLOCK_S
        self._queue = parts.settings.queue
        rq_queue = tickets.of(self._queue)  # R2: exactly one queue
        super().__init__(
            [rq_queue],
            name=parts.worker.name,
            connection=rq_queue.connection,
            serializer=JSONSerializer,
            worker_ttl=_TTL_S,  # R15: the pool's timeout follows from it
            log_job_description=False,
        )

    def serve(self, signals: Signals) -> None:
        """Run trials until a signal comes or the run limit is reached, also through outages."""
        signals.interrupt = self._interrupt
        while not signals.is_stopping:
            try:
                self._loop.drain()  # a worker also tries one claim at its start
                if self._is_done or self._run_limit.is_done():
                    return
                if self._loop.is_drained:  # other workers pop the tickets
                    signals.pause(_DRAINED_S)
                    continue
                self.work(logging_level="WARNING")
            except (RedisError, DecodeError) as error:  # R1, R25: no Redis error ends a worker
                self._outage.failed("tickets", error)
            if not self._is_done:
                signals.pause(1.0)

    def _interrupt(self) -> None:
        if self._is_waiting:  # only here: anywhere else a claim or a commit may be under way
            self._is_waiting = False
            raise StopRequested

    @contextmanager
    def _redis_errors_stop_rq(self) -> Iterator[None]:
        """Leave RQ's loop on a Redis error: RQ itself would print a traceback and exit (R1)."""
        try:
            yield
            self._outage.answered("tickets")
        except RedisError as error:
            self._outage.failed("tickets", error)
            raise StopRequested from None

    # --- what RQ's loop calls -----------------------------------------------------------------

    def dequeue_job_and_maintain_ttl(
        self, timeout: int | None, max_idle_time: int | None = None
    ) -> tuple[Any, Any]:
        """Wait for a valid ticket. A ticket has no content, so it is only removed (R3, R4)."""
        with self._redis_errors_stop_rq():
            self.set_state(WorkerStatus.IDLE)
            while True:
                self._is_done = self._run_limit.is_done()
                if self._is_done:
                    raise StopRequested
                self.heartbeat()
                popped = self._pop()
                if popped is not None and self._tickets.is_ticket(popped):  # R9, R23
                    return None, self.queues[0]

    def _pop(self) -> bytes | None:
        self._progress.stamp()
        self._is_waiting = True  # before the check below, so that no signal is missed
        try:
            if self._loop.is_stopping:
                raise StopRequested
            return self._tickets.pop(self._queue, self._block_s)
        finally:
            self._is_waiting = False

    def execute_job(self, job: Any, queue: Any) -> None:
        """Run trials until none can be claimed."""
        with self._redis_errors_stop_rq():
            self.set_state(WorkerStatus.BUSY)
        self._loop.drain()
        if self._loop.is_stopping or self._loop.is_drained:
            raise StopRequested

    def heartbeat(self, *args: Any, **kw: Any) -> None:
        """Send RQ's heartbeat if its record would expire; RQ's loop also calls this after a job."""
        if time.monotonic() - self._beat_at < _BEAT_S:
            return
        with self._redis_errors_stop_rq():
            super().heartbeat(*args, **kw)
            self._beat_at = time.monotonic()

    def register_birth(self) -> None:
        self._beat_at = -math.inf
        self._tickets.remove_worker(self.key)  # R14: a name of an earlier container is no obstacle
        clean_worker_registry(self.queues[0])  # of workers that were killed: RQ's sets never expire
        super().register_birth()

    def _set_ip_address(self, connection: object) -> None:
        """Send the worker's name, not its address: CLIENT LIST would show it to all users."""
        self._tickets.name_connection(self.name)
        self.ip_address = "unknown"

    # --- what RQ does and hpq does without ------------------------------------------------------

    def _skip(self, *args: object, **kw: object) -> None:
        """Do nothing."""

    _install_signal_handlers = _skip  # R8: hpq's handlers checkpoint, release the trial and exit
    check_for_suspension = _skip  # R13: `rq suspend` is not hpq's pause
    run_maintenance_tasks = _skip  # R4, R5, R24: hpq does not use RQ's registries
    subscribe = unsubscribe = _skip  # R17: pub/sub loses commands
