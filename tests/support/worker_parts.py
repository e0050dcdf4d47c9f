"""Create the parts of a worker process on a test's store, as consumer/__main__ does."""

from __future__ import annotations

from hpq.domain.attempt import WorkerPresence
from hpq.settings import Settings
from hpq.store.file_garbage import FileGarbage
from hpq.store.suggest_lease import SuggestLease
from hpq.store.trials import TrialStore
from hpq_worker.attempt.code import CodeBundles
from hpq_worker.attempt.parts import WorkerParts
from hpq_worker.attempt.trust import LaunchRecords, TrustPolicy
from hpq_worker.files.artifacts import UnstoredFiles
from hpq_worker.files.garbage import FileStoreHandle, GarbageCollector
from hpq_worker.lease.heartbeat import Heartbeat
from hpq_worker.lease.outage_log import OutageLog
from hpq_worker.process.signals import Signals
from hpq_worker.process.watchdog import Progress
from hpq_worker.suggest.start_suggesters import SuggesterProcesses


def _no_suggester(sid: str) -> SuggestLease:
    raise AssertionError(f"a suggester was started for {sid}")


def records_of(settings: Settings, store: TrialStore) -> LaunchRecords:
    """Return the launch records of a worker with these settings."""
    bundles = CodeBundles(settings.home, lambda digest: None)
    return LaunchRecords(store, TrustPolicy(settings, bundles))


def worker_parts(
    settings: Settings, store: TrialStore, garbage: FileGarbage, worker: WorkerPresence
) -> WorkerParts:
    """Create all parts, with a running heartbeat thread."""
    bundles = CodeBundles(settings.home, lambda digest: None)
    trust, files = TrustPolicy(settings, bundles), FileStoreHandle(settings)
    signals, outage, progress = Signals(settings.grace_s), OutageLog(), Progress()
    return WorkerParts(
        settings=settings,
        environ={},
        worker=worker,
        provenance="",
        store=store,
        launches=LaunchRecords(store, trust),
        trust=trust,
        bundles=bundles,
        files=files,
        garbage=GarbageCollector(
            settings,
            files,
            garbage,
            UnstoredFiles(settings.work_root, settings.prefix, store),
        ),
        heartbeat=Heartbeat(store, worker, settings.lease_ms, signals.wake, outage, progress),
        outage=outage,
        signals=signals,
        progress=progress,
        suggesters=SuggesterProcesses({}, worker.name, _no_suggester),
    )
