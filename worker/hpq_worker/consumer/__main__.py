"""`python -m hpq_worker.consumer`: one worker process, one slot. Started by the fleet.

How a worker introduces itself to people and to the reaper: what it is, takes and leaves.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial

from redis.exceptions import RedisError

from hpq import __version__
from hpq.code.signing import fingerprint
from hpq.connection.client import check_server, connect, explain
from hpq.domain.attempt import WorkerPresence
from hpq.domain.sweep import SCHEMA
from hpq.domain.trainer_specs import SHIPPED
from hpq.errors import HpqError, UserError
from hpq.settings import Settings, read
from hpq.store.file_garbage import FileGarbage
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.scripts import StoreContext
from hpq.store.suggest_lease import SuggestLease
from hpq.store.tickets import Tickets
from hpq.store.trials import TrialStore
from hpq.store.wire.fields import dumps
from hpq_worker.attempt import provenance
from hpq_worker.attempt.attempt import AttemptRunner
from hpq_worker.attempt.code import Bundles
from hpq_worker.attempt.execution import Signals
from hpq_worker.attempt.trust import Access
from hpq_worker.consumer.claim_loop import ClaimLoop
from hpq_worker.consumer.rq_worker import RqWorker
from hpq_worker.consumer.run_limit import UNTIL_OVER, RunBudget, RunLimit
from hpq_worker.consumer.single_trial import SingleTrialWorker, trial_of
from hpq_worker.files.garbage import FileStoreHandle, GarbageCollector
from hpq_worker.health.telemetry import Telemetry
from hpq_worker.lease.heartbeat import Heartbeat
from hpq_worker.lease.reaper import Reaper
from hpq_worker.lease.redis_outage import Outage
from hpq_worker.process import devices, exit_report
from hpq_worker.process import secrets as hidden
from hpq_worker.process.logs import configure
from hpq_worker.process.process_tree import adopt_orphans, end_with_parent
from hpq_worker.process.signals import Stopping
from hpq_worker.suggest.processes import Suggesters


class PresenceRecord:
    """One worker, as it is at each call."""

    def __init__(
        self,
        settings: Settings,
        who: WorkerPresence,
        device: str,
        access: Access,
        slot: ClaimLoop,
        shelf: FileStoreHandle,
        ran_on: str,
    ) -> None:
        self._who, self._slot, self._access, self._shelf = who, slot, access, shelf
        self._fixed = {
            "pid": str(os.getpid()),
            "device": device,
            "version": __version__,
            "only": settings.sweep,
            "pod": settings.pod,
            "schema": str(SCHEMA),
            "ran_on": ran_on,
            "store": "yes" if settings.store else "no",
            "code": str(settings.code or ""),
            "takes": json.dumps([*SHIPPED, *(f"allow:{line}" for line in settings.allow)]),
        }

    def now(self, stopping: Stopping) -> tuple[WorkerPresence, bool]:
        """What to say, and whether the worker is idle."""
        busy = self._slot.trial
        fields = {
            "state": "stopping" if stopping.level else "busy" if busy else "idle",
            "trial": busy,
            "fault": "" if busy else self._slot.refusals.fault,
            "key": fingerprint(self._access.key),  # the first enqueue here may make it later
            "store_id": self._shelf.id,
            "refuses": dumps({s: asdict(r) for s, r in self._slot.refusals.reasons.items()}),
        }
        return replace(self._who, fields={**self._fixed, **fields}), not busy


log = logging.getLogger("hpq.worker")


def _context(settings: Settings, *, retries: int = 1, timeout_s: float = 5.0) -> StoreContext:
    redis = connect(settings.redis_url, retries=retries, timeout_s=timeout_s)
    return StoreContext.open(redis, Keys(settings.prefix))


def _leads(settings: Settings, who: str) -> Callable[[str], SuggestLease]:
    """Makes this worker's lease for the sets of a sweep."""
    context = _context(settings)
    return lambda sid: SuggestLease(context, sid, who, settings.lease_ms)


def _signals(settings: Settings, stopping: Stopping) -> Signals:
    return Signals(
        wake=stopping.read_end,
        level=lambda: stopping.level,
        is_late=lambda: stopping.is_late(settings.grace_s),
    )


def _beats(
    settings: Settings, who: WorkerPresence, stopping: Stopping, outage: Outage
) -> Heartbeat:
    store = TrialStore(_context(settings, retries=0, timeout_s=3.0))
    return Heartbeat(store, who, settings.lease_ms, stopping.write_end, outage)


def _worker(
    settings: Settings, name: str, slot: ClaimLoop, outage: Outage, errand: RunLimit
) -> RqWorker | SingleTrialWorker:
    redis, keys = connect(settings.redis_url, retries=1), Keys(settings.prefix)
    if settings.is_for_one:
        return SingleTrialWorker(
            trial_of(settings), slot, StoreReader(redis, keys, settings.lease_ms)
        )
    return RqWorker(redis, Tickets(redis, keys), settings.queue, name, slot, outage, errand)


def _errand(words: Sequence[str], settings: Settings, reader: StoreReader) -> RunLimit:
    is_until_over = UNTIL_OVER in words and settings.sweep and not settings.is_for_one
    look = (lambda: reader.sweeps.get(settings.sweep)) if is_until_over else None
    return RunLimit(RunBudget.given(words), look)


def serve(settings: Settings, environ: Mapping[str, str], words: Sequence[str]) -> None:
    """Work until told to stop, or until what the command line came for is done.

    Raises:
        HpqError: the server cannot be used, or HPQ_HOME cannot be written.
    """
    stopping = Stopping()
    stopping.install()
    end_with_parent()  # no worker that nobody sees goes on after its fleet was killed
    adopt_orphans()
    url = settings.redis_url
    check_server(connect(url), url, in_pod=settings.in_pod)
    host = settings.node or socket.gethostname()
    name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
    redis, keys = connect(url, retries=1), Keys(settings.prefix)
    reader = StoreReader(redis, keys, settings.lease_ms)
    bundles = Bundles(settings.home, reader.sweeps.bundle)
    access = Access(settings, bundles)
    device = devices.describe(environ.get("CUDA_VISIBLE_DEVICES", ""))

    # Tried again once, for a connection that was cut; the slot decides what waits for how long.
    store = TrialStore(_context(settings))
    digest, record = provenance.record(settings, host, device, environ)
    store.keep_provenance(digest, record)
    who = WorkerPresence(name=name, host=host, worker_class=settings.queue)
    outage = Outage()
    beats = _beats(settings, who, stopping, outage)
    signals, shelf = _signals(settings, stopping), FileStoreHandle(settings)
    vitals, errand = Telemetry.given(words), _errand(words, settings, reader)
    attempts = AttemptRunner(settings, environ, access, beats, signals, shelf, bundles)
    garbage = FileGarbage(_context(settings))
    tidy = GarbageCollector(settings, shelf, garbage)
    suggesters = Suggesters(environ, name, _leads(settings, name))
    slot = ClaimLoop(
        settings,
        store,
        who,
        access=access,
        attempts=attempts,
        beats=beats,
        stopping=stopping,
        tidy=tidy,
        outage=outage,
        suggesters=suggesters,
        provenance=digest,
        vitals=vitals,
        errand=errand,
    )

    introduction = PresenceRecord(settings, who, device, access, slot, shelf, digest)
    keeps = TrialStore(_context(settings))
    send = partial(keeps.keep_provenance, digest, record)
    figures = partial(reader.workers.server_figures, settings.queue)
    present = partial(introduction.now, stopping)
    housekeeper = Reaper(settings, keeps, present, vitals, outage, send, figures)
    worker = _worker(settings, name, slot, outage, errand)
    shelf.say_if_another(garbage.recent_stores())
    tidy.start()
    housekeeper.start()
    log.info("%s takes %s on %s", name, settings.sweep or settings.queue, device)
    try:
        worker.serve(stopping)
    finally:
        suggesters.close()
        attempts.close()
        tidy.close(signals.is_late)
        housekeeper.stop()


def main() -> None:
    """Read the environment and work; an error that hpq knows is one line and an exit code."""
    try:
        environ = {**os.environ, **hidden.receive()}
        settings = read(environ)
        if not settings.redis_url:
            raise UserError(
                "HPQ_REDIS_URL is not set; start workers with `hpq worker`", code="setting-missing"
            )
        configure(settings)
        try:
            serve(settings, environ, sys.argv)
        except RedisError as error:
            raise explain(error, settings.redis_url, in_pod=settings.in_pod) from None
    except HpqError as error:
        if not exit_report.leave(error, sys.argv):
            print(f"hpq worker: {error.notice}", file=sys.stderr)
        sys.exit(int(error.exit_code))


if __name__ == "__main__":
    main()
