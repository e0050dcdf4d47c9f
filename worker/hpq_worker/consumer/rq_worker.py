"""RQ's worker class as hpq uses it: RQ wakes and counts, hpq's scripts decide.

rq is imported here and in hpq/store/tickets only. The overrides take out what would lose, double
or stop
work when Redis is away or somebody puts rubbish on the queue (the measured holes of RQ are named
R1–R25 in the reliability study; the numbers stand beside what closes each).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from redis import Redis
from redis.exceptions import RedisError, ResponseError
from rq import SimpleWorker
from rq.serializers import JSONSerializer
from rq.worker.base import StopRequested, WorkerStatus

from hpq.store.tickets import Tickets
from hpq_worker.consumer.claim_loop import ClaimLoop
from hpq_worker.consumer.run_limit import RunLimit
from hpq_worker.lease.redis_outage import Outage
from hpq_worker.process.signals import Stopping

_BLOCK_S = 15
_LOOK_S = 2  # between two looks at whether what it came for is done
_TTL_S = 30
_REST_S = 3.0  # between two looks at whether it may take trials again


class RqWorker(SimpleWorker):  # type: ignore[misc]
    """Waits for a ticket on one queue, then lets the slot claim until there is nothing left."""

    log_job_description = False  # R9: it would print what a stranger wrote

    def __init__(
        self,
        redis: Redis,
        tickets: Tickets,
        worker_class: str,
        name: str,
        slot: ClaimLoop,
        outage: Outage,
        errand: RunLimit,
    ) -> None:
        self._tickets, self._slot, self._outage = tickets, slot, outage
        self._errand, self._is_done = errand, False
        self._is_waiting = False
        self._block_s = _LOOK_S if errand.is_bounded else _BLOCK_S
        queue = tickets.queue(worker_class)  # R2: exactly one queue
        super().__init__(
            [queue],
            name=name,
            connection=redis,
            serializer=JSONSerializer,
            worker_ttl=_TTL_S,  # R15: the pool's timeout follows from it
            log_job_description=False,
        )

    def serve(self, stopping: Stopping) -> None:
        """Work until told to stop, or its errand is done, whatever Redis does meanwhile."""
        stopping.interrupt = self._interrupt
        while stopping.level == 0:
            try:
                self._slot.drain()  # a worker also tries one claim at its start
                if self._is_done or self._errand.is_done():
                    return
                if self._slot.is_resting:  # it leaves the tickets to others
                    stopping.pause(_REST_S)
                    continue
                self.work(logging_level="WARNING")
            except RedisError as error:  # R1, R25: no Redis error ends a worker
                self._outage.missed("tickets", error)
            if not self._is_done:
                stopping.pause(1.0)

    def _interrupt(self) -> None:
        if self._is_waiting:  # only here: anywhere else a claim or a commit may be under way
            self._is_waiting = False
            raise StopRequested

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """Leave RQ's loop where Redis is away: RQ itself would print a page, and quit (R1)."""
        try:
            yield
            self._outage.answered("tickets")
        except RedisError as error:
            self._outage.missed("tickets", error)
            raise StopRequested from None

    # --- what RQ's loop calls -----------------------------------------------------------------

    def dequeue_job_and_maintain_ttl(
        self, timeout: int | None, max_idle_time: int | None = None
    ) -> tuple[Any, Any]:
        """Wait for a valid ticket. A ticket carries nothing, so it is simply taken off (R3, R4)."""
        queue = self.queues[0]
        with self._quietly():
            self.set_state(WorkerStatus.IDLE)
            while True:
                self._is_done = self._errand.is_done()
                if self._is_done:
                    raise StopRequested
                self.heartbeat()
                popped = self._pop(queue.key)
                if popped is not None and self._tickets.is_ticket(popped[1]):  # R9, R23
                    return None, queue

    def _pop(self, key: str) -> Any:
        self._is_waiting = True  # before the look at what was told, so that no signal is missed
        try:
            if self._slot.is_told:
                raise StopRequested
            return self.connection.blpop(key, timeout=self._block_s)
        finally:
            self._is_waiting = False

    def execute_job(self, job: Any, queue: Any) -> None:
        """Claim until there is nothing left."""
        with self._quietly():
            self.set_state(WorkerStatus.BUSY)
        self._slot.drain()
        if self._slot.is_told or self._slot.is_resting:
            raise StopRequested

    def heartbeat(self, *args: Any, **kw: Any) -> None:
        """As RQ's; its loop calls it after each job, too."""
        with self._quietly():
            super().heartbeat(*args, **kw)

    def register_birth(self) -> None:
        self.connection.delete(self.key)  # R14: a name of an earlier container is no obstacle
        super().register_birth()

    def _set_ip_address(self, connection: Redis) -> None:
        """Its name but not its address: CLIENT LIST would show everybody's."""
        with suppress(ResponseError):
            connection.client_setname(self.name)
        self.ip_address = "unknown"

    def _install_signal_handlers(self) -> None:
        """The signals are the slot's (R8): it checkpoints, gives back and goes."""

    def check_for_suspension(self, burst: bool) -> None:
        """`rq suspend` is not hpq's pause (R13)."""

    def run_maintenance_tasks(self) -> None:
        """RQ's registries are not hpq's truth (R4, R5, R24)."""

    def subscribe(self) -> None:
        """No commands by pub/sub, which loses them (R17)."""

    def unsubscribe(self) -> None:
        """As subscribe."""
