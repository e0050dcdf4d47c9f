"""`python -m worker.one`: one worker process, one slot. Started by the fleet."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from redis.exceptions import RedisError

from hpq.connection import check_server, connect, explain
from hpq.doomed import DoomedFiles
from hpq.errors import HpqError, UserError
from hpq.keys import Keys
from hpq.lead import Lead
from hpq.outcome import Presence
from hpq.settings import Settings, read
from hpq.store import Store
from hpq.tickets import Tickets
from hpq.view import View
from worker import devices, last_words, provenance
from worker import secrets as hidden
from worker.access import Access
from worker.attempt import Attempts
from worker.beats import Beats
from worker.bundles import Bundles
from worker.errand import UNTIL_OVER, Errand, Runs
from worker.execution import Signals
from worker.housekeeper import Housekeeper
from worker.introduction import Introduction
from worker.logs import configure
from worker.outage import Outage
from worker.processes import adopt_orphans, end_with_parent
from worker.single import Single, trial_of
from worker.slot import Slot
from worker.stopping import Stopping
from worker.suggesters import Suggesters
from worker.supervisor import TicketWorker
from worker.tidying import Shelf, Tidy
from worker.vitals import Vitals

log = logging.getLogger("hpq.worker")


def _store(settings: Settings, *, retries: int, timeout_s: float) -> Store:
    redis = connect(settings.redis_url, retries=retries, timeout_s=timeout_s)
    keys = Keys(settings.prefix)
    return Store(redis, keys, Tickets(redis, keys).top_up)


def _leads(settings: Settings, who: str) -> Callable[[str], Lead]:
    """Makes this worker's lease for the sets of a sweep."""
    redis, keys = connect(settings.redis_url, retries=1, timeout_s=5.0), Keys(settings.prefix)
    top_up = Tickets(redis, keys).top_up
    return lambda sid: Lead(redis, keys, top_up, sid, who, settings.lease_ms)


def _signals(settings: Settings, stopping: Stopping) -> Signals:
    return Signals(
        wake=stopping.read_end,
        level=lambda: stopping.level,
        is_late=lambda: stopping.is_late(settings.grace_s),
    )


def _beats(settings: Settings, who: Presence, stopping: Stopping, outage: Outage) -> Beats:
    store = _store(settings, retries=0, timeout_s=3.0)
    return Beats(store, who, settings.lease_ms, stopping.write_end, outage)


def _worker(
    settings: Settings, name: str, slot: Slot, outage: Outage, errand: Errand
) -> TicketWorker | Single:
    redis, keys = connect(settings.redis_url, retries=1), Keys(settings.prefix)
    if settings.is_for_one:
        return Single(trial_of(settings), slot, View(redis, keys, settings.lease_ms))
    return TicketWorker(redis, Tickets(redis, keys), settings.queue, name, slot, outage, errand)


def _errand(words: Sequence[str], settings: Settings, view: View) -> Errand:
    is_until_over = UNTIL_OVER in words and settings.sweep and not settings.is_for_one
    look = (lambda: view.sweep(settings.sweep)) if is_until_over else None
    return Errand(Runs.given(words), look)


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
    reads = View(connect(settings.redis_url, retries=1), Keys(settings.prefix), settings.lease_ms)
    bundles = Bundles(settings.home, reads.bundle)
    access = Access(settings, bundles)
    device = devices.describe(environ.get("CUDA_VISIBLE_DEVICES", ""))

    # Tried again once, for a connection that was cut; the slot decides what waits for how long.
    store = _store(settings, retries=1, timeout_s=5.0)
    digest, record = provenance.record(settings, host, device, environ)
    store.keep_provenance(digest, record)
    who = Presence(name=name, host=host, worker_class=settings.queue)
    outage = Outage()
    beats = _beats(settings, who, stopping, outage)
    signals, shelf = _signals(settings, stopping), Shelf(settings)
    vitals, errand = Vitals.given(words), _errand(words, settings, reads)
    attempts = Attempts(settings, environ, access, beats, signals, shelf, bundles)
    doomed = DoomedFiles(connect(settings.redis_url, retries=1), Keys(settings.prefix))
    tidy = Tidy(settings, shelf, doomed)
    suggesters = Suggesters(environ, name, _leads(settings, name))
    slot = Slot(
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

    introduction = Introduction(settings, who, device, access, slot, shelf, digest)
    keeps = _store(settings, retries=1, timeout_s=5.0)
    send = partial(keeps.keep_provenance, digest, record)
    housekeeper = Housekeeper(
        settings, keeps, lambda: introduction.now(stopping), vitals, outage, send
    )
    worker = _worker(settings, name, slot, outage, errand)
    shelf.say_if_another(doomed.stores())
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
        if not last_words.leave(error, sys.argv):
            print(f"hpq worker: {error.notice}", file=sys.stderr)
        sys.exit(int(error.exit_code))


if __name__ == "__main__":
    main()
