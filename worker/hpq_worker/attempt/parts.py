"""The parts of one worker process, which consumer/__main__ creates and the others share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hpq.domain.attempt import WorkerPresence
from hpq.domain.sweep import RunnableSweep
from hpq.domain.trial import TrialId
from hpq.settings import Settings
from hpq.store.trials import TrialStore
from hpq_worker.attempt.code import CodeBundles
from hpq_worker.attempt.trust import LaunchRecords, TrustPolicy
from hpq_worker.files.garbage import FileStoreHandle, GarbageCollector
from hpq_worker.health.usage import UsageReader
from hpq_worker.lease.heartbeat import Heartbeat
from hpq_worker.lease.outage_log import OutageLog
from hpq_worker.lease.report_buffer import ReportBuffer
from hpq_worker.process.signals import Signals
from hpq_worker.process.watchdog import Progress
from hpq_worker.runner.agent_caller import Caller
from hpq_worker.suggest.start_suggesters import SuggesterProcesses


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptParts:
    """The objects that the attempt runner needs."""

    settings: Settings
    environ: Mapping[str, str]  # of this process, secrets included
    trust: TrustPolicy
    bundles: CodeBundles
    files: FileStoreHandle
    heartbeat: Heartbeat
    signals: Signals
    progress: Progress = field(default_factory=Progress)  # of the main thread
    terminal: type[ReportBuffer] | None = None  # of `hpq try`: prints what the trial prints
    checkpoint: Path | None = None  # of `hpq try`: a directory of checkpoints that stays
    caller: Caller | None = None  # runs the trials in place of a runner
    usage: UsageReader = field(default_factory=UsageReader)
    alert: Callable[[RunnableSweep, TrialId, str], object] = lambda *_: None  # sends an alert


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts(AttemptParts):
    """The objects that the claim loop and the attempt runner of one worker share."""

    worker: WorkerPresence
    provenance: str  # digest of this worker's provenance record
    store: TrialStore
    launches: LaunchRecords
    garbage: GarbageCollector
    outage: OutageLog
    suggesters: SuggesterProcesses
