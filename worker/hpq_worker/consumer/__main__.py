"""`python -m hpq_worker.consumer`: one worker process, one slot, with a WorkerConfig on stdin."""

from __future__ import annotations

import logging
import math
import os
import secrets
import socket
import sys
from collections.abc import Mapping
from functools import partial

from redis.exceptions import RedisError

from hpq.domain.attempt import WorkerPresence
from hpq.error_codes import ExitCode
from hpq.errors import HpqError, UserError
from hpq.gpus import describe_device, visible
from hpq.redis import tls
from hpq.redis.client import check_server, connect, explain
from hpq.settings import Settings, read
from hpq.store.file_garbage import FileGarbage
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.scripts import StoreContext
from hpq.store.suggest_lease import SuggestLease
from hpq.store.tickets import Tickets
from hpq.store.trials import TrialStore
from hpq_worker.attempt.attempt import AttemptRunner
from hpq_worker.attempt.code import CodeBundles
from hpq_worker.attempt.parts import WorkerParts
from hpq_worker.attempt.trust import LaunchRecords, TrustPolicy
from hpq_worker.consumer.claim_loop import ClaimLoop
from hpq_worker.consumer.presence import PresenceRecord, provenance_of
from hpq_worker.consumer.rq_worker import RqWorker
from hpq_worker.consumer.run_budget import MOST_RUNS, RunBudget
from hpq_worker.consumer.run_limit import RunLimit
from hpq_worker.files.artifacts import UnstoredFiles
from hpq_worker.files.garbage import FileStoreHandle, GarbageCollector
from hpq_worker.files.workdir import check_scratch
from hpq_worker.health.health import StateWriter
from hpq_worker.health.usage import UsageReader
from hpq_worker.lease.heartbeat import Heartbeat
from hpq_worker.lease.outage_log import OutageLog
from hpq_worker.lease.reaper import Reaper
from hpq_worker.lease.webhooks import Notices
from hpq_worker.process import exit_reason, logs
from hpq_worker.process.config import WORKER, WorkerConfig, receive
from hpq_worker.process.process_tree import adopt_orphans, end_with_parent
from hpq_worker.process.signals import Signals
from hpq_worker.process.watchdog import Progress, Watchdog
from hpq_worker.runner.agent_caller import Caller
from hpq_worker.suggest.start_suggesters import SuggesterProcesses

log = logging.getLogger("hpq.worker")


def _context(settings: Settings, *, retries: int = 1, timeout_s: float = 5.0) -> StoreContext:
    """Open a connection of its own: each thread has one."""
    redis = connect(settings.redis_url, retries=retries, timeout_s=timeout_s)
    return StoreContext.open(redis, Keys(settings.prefix))


def _reader(settings: Settings) -> StoreReader:
    redis = connect(settings.redis_url, retries=1)
    return StoreReader(redis, Keys(settings.prefix), settings.lease_ms)


def _suggesters(settings: Settings, environ: Mapping[str, str], worker: str) -> SuggesterProcesses:
    context = _context(settings)

    def lease_of(sid: str) -> SuggestLease:
        return SuggestLease(context, sid, worker, settings.lease_ms)

    return SuggesterProcesses(environ, worker, lease_of)


def _run_limit(
    settings: Settings, config: WorkerConfig, reader: StoreReader, caller: Caller | None
) -> RunLimit:
    is_until_over = config.is_until_over and settings.sweep
    read_sweep = (lambda: reader.sweeps.get(settings.sweep)) if is_until_over else None
    budget = RunBudget(*config.run_budget) if config.run_budget else None
    if caller is not None and caller.count:
        budget = RunBudget.of(min(caller.count, MOST_RUNS))
    return RunLimit(
        budget,
        read_sweep,
        caller=caller,
        until_idle_s=config.until_idle_s or math.inf,
        end=settings.end or math.inf,
    )


def _reaper(
    parts: WorkerParts,
    presence: PresenceRecord,
    state: StateWriter,
    provenance: str,
    notices: Notices,
) -> Reaper:
    """Create the reaper, on connections of its own; `provenance` is the record that it resends."""
    settings = parts.settings
    store = TrialStore(_context(settings))
    return Reaper(
        settings,
        store,
        presence.current,
        state,
        parts.outage,
        partial(store.keep_provenance, parts.provenance, provenance),
        notices,
        parts.garbage.dead,
    )


def _signals(settings: Settings, config: WorkerConfig, progress: Progress) -> Signals:
    signals = Signals(settings.grace_s)
    signals.install()
    watchdog = Watchdog(progress, settings.lease_s, settings.grace_s, config.exit_reason)
    watchdog.start(config.parent)
    end_with_parent(config.parent)  # a worker must not outlive a supervisor that was killed
    adopt_orphans()
    return signals


def _check_server(settings: Settings) -> None:
    url = settings.redis_url
    check_server(connect(url), url, in_pod=settings.in_pod)
    if tls.is_unverified(url):
        log.warning(tls.UNVERIFIED)


def serve(
    settings: Settings, environ: Mapping[str, str], config: WorkerConfig, caller: Caller | None
) -> ExitCode:
    """Run trials until a signal or the run limit ends this worker; return the exit code.

    Raises:
        HpqError: the server cannot be used, or HPQ_HOME cannot be written.
    """
    check_scratch(settings.scratch)
    signals = _signals(settings, config, progress := Progress())
    _check_server(settings)
    host = settings.node or socket.gethostname()
    name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
    logs.name(worker=name)
    worker = WorkerPresence(name=name, host=host, queue=settings.queue)
    device = describe_device(environ.get("CUDA_VISIBLE_DEVICES", ""))
    digest, record = provenance_of(settings, host, device, environ)

    # A call is sent again once, for a connection that was cut; the claim loop waits for outages.
    store, reader = TrialStore(_context(settings)), _reader(settings)
    outage = OutageLog()
    store.keep_provenance(digest, record)
    bundles = CodeBundles(
        settings.home, reader.sweeps.bundle, work_root=settings.work_root, in_pod=settings.in_pod
    )
    trust = TrustPolicy(settings, bundles, has_caller=caller is not None)
    files = FileStoreHandle(settings)
    context = _context(settings)
    garbage = FileGarbage(context)
    waiting = UnstoredFiles(settings.work_root, settings.prefix, TrialStore(context))
    beat_store = TrialStore(_context(settings, retries=0, timeout_s=3.0))
    notices = Notices(settings, _reader(settings), TrialStore(_context(settings)))
    parts = WorkerParts(
        settings=settings,
        environ=environ,
        worker=worker,
        provenance=digest,
        store=store,
        launches=LaunchRecords(store, trust),
        trust=trust,
        bundles=bundles,
        files=files,
        garbage=GarbageCollector(settings, files, garbage, waiting),
        heartbeat=Heartbeat(beat_store, worker, settings.lease_ms, signals.wake, outage, progress),
        outage=outage,
        signals=signals,
        progress=progress,
        suggesters=_suggesters(settings, environ, name),
        caller=caller,
        usage=UsageReader(visible(environ)),
        alert=notices.alert,
    )
    _check_sweep(parts)
    attempts, run_limit = AttemptRunner(parts), _run_limit(settings, config, reader, caller)
    loop = ClaimLoop(parts, attempts, run_limit)
    presence = PresenceRecord(parts, device, loop)
    reaper = _reaper(parts, presence, StateWriter(config.state), record, notices)
    tickets = Tickets(connect(settings.redis_url, retries=1), Keys(settings.prefix))
    consumer = RqWorker(tickets, parts, loop, run_limit)
    files.warn_if_unknown(garbage.recent_stores())
    parts.garbage.start()
    parts.usage.start()
    reaper.start()
    log.info("%s: ready (%s, device %s)", name, _scope(settings), device)
    try:
        consumer.serve(signals)
    finally:
        parts.suggesters.close()
        attempts.close()
        parts.garbage.close(signals, progress)
        reaper.stop()
    return _leave(parts, reader, run_limit)


def _scope(settings: Settings) -> str:
    return f"sweep {settings.sweep}" if settings.sweep else f"queue {settings.queue}"


def _check_sweep(parts: WorkerParts) -> None:
    """Raise an error if the sweep's functions cannot run in the caller's process."""
    if parts.caller is None:
        return
    sweep, reason = parts.launches.admit(parts.settings.sweep)
    if reason is not None:
        raise UserError(f"cannot run sweep {sweep.id}: {reason.text}", code=reason.code)


def _leave(parts: WorkerParts, reader: StoreReader, run_limit: RunLimit) -> ExitCode:
    """Return the exit code of the worker, and tell its caller why it ends."""
    caller = parts.caller
    if caller is None or caller.has_left or parts.signals.is_stopping:
        return run_limit.exit_code
    sweep = reader.sweeps.get(parts.settings.sweep)
    caller.tell_over(f"sweep {sweep.id} is held: {sweep.why_held}" if sweep.hold else "")
    return ExitCode.DONE


def main() -> None:
    """Read the configuration and serve; an HpqError ends it with one line and its exit code."""
    config = receive(WORKER)
    caller = Caller(config.caller) if config.caller else None
    try:
        environ = {**os.environ, **config.secrets}
        settings = read(environ)
        if not settings.redis_url:
            text = "HPQ_REDIS_URL is not set; start workers with `hpq worker`"
            raise UserError(text, code="setting-missing")
        logs.configure(settings)
        try:
            code = serve(settings, environ, config, caller)
        except RedisError as error:
            raise explain(error, settings.redis_url, in_pod=settings.in_pod) from None
    except HpqError as error:
        if caller is not None:
            caller.tell_over(str(error.notice))
        elif not exit_reason.write(error, config.exit_reason):
            logs.tell("hpq worker", str(error.notice))
        code = error.exit_code
    sys.exit(int(code))


if __name__ == "__main__":
    main()
