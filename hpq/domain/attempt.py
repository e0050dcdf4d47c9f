"""Messages of a worker to the store, and the store's replies. Pure data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from hpq.domain.sweep import RunnableSweep
from hpq.domain.trial import Artifacts, Checkpoint, Failure, Point, TrialState, Unstored
from hpq.domain.usage import UsageCurves


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """Reply to a claim if no trial can be claimed."""

    is_drained: bool = False  # `hpq drain` stopped this worker from claiming
    short: str = ""  # a sweep whose waiting trials need more time than the worker has left
    unfed: str = ""  # a sweep that lacks a suggester, which this worker should start


class HeartbeatReply(StrEnum):
    """Reply to a heartbeat: continue, stop, or why this attempt is over."""

    OK = "ok"
    STOP = "stop"  # cancelled
    PRUNE = "prune"  # early termination
    LOST = "lost"  # a later attempt has the trial, or it has ended
    UNKNOWN = "unknown"  # the store does not know the trial: its data was lost or removed


class CommitReply(StrEnum):
    """Reply to a commit."""

    DONE = "done"
    REQUEUED = "requeued"  # the failure is retried
    SUSPECT = "suspect"  # requeued uncharged: only this worker fails like this
    ALREADY = "already"  # this commit was recorded before
    STALE = "stale"  # a later attempt has the trial, or its sweep was removed
    UNKNOWN = "unknown"  # the store does not know the trial: its data was lost


class AttachReply(StrEnum):
    """Reply to a worker that has stored the files of an attempt after its end."""

    ATTACHED = "attached"
    STALE = "stale"  # no sweep needs them: retried, dropped by `keep`, or removed
    UNKNOWN = "unknown"  # the store does not know the attempt, or its end


class Reason(StrEnum):
    """Why a worker releases a trial uncharged."""

    STOPPING = "stopping"
    OVERFILLED = "overfilled"  # as STOPPING, of a pod whose volume is fuller than allowed
    TIME_UP = "time_up"  # as STOPPING, at the end of the worker's allocation
    DATA_MISSING = "data_missing"
    WORKER_FAULT = "worker_fault"
    REFUSED = "refused"


REASON_WORDS: Mapping[Reason, str] = {
    Reason.STOPPING: "its worker was stopped",
    Reason.OVERFILLED: "it filled the disk of its pod",
    Reason.TIME_UP: "the time of its worker was over",
    Reason.DATA_MISSING: "data missing on its worker",
    Reason.WORKER_FAULT: "its worker failed",
    Reason.REFUSED: "its worker cannot run it",
}


CURVE_POINTS = 1_000  # of a metric; a longer curve is thinned
_ALL_CURVES = 50_000  # Redis packs 1,000 points in 3 to 5 ms when a trial ends


def curve_points(metrics: int) -> int:
    """Return the most points that each metric keeps if a trial reports N metrics."""
    return min(CURVE_POINTS, _ALL_CURVES // max(1, metrics))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportBatch:
    """Reports and output of a trial since the last batch that the store acknowledged.

    `seq` rises by one a batch; a batch is sent unchanged until it is acknowledged.
    """

    seq: int
    step: int = 0
    objective: float | None = None
    phase: str = ""
    log: bytes = b""
    points: tuple[Point, ...] = ()
    checkpoint: Checkpoint | None = None  # published since the last batch
    restarted: str = ""  # why the training starts again
    kept_step: int | None = None  # from this step of its checkpoint; None: from the beginning
    metric_order: tuple[str, ...] = ()  # all metrics as they were first reported; () if unchanged
    run_info: str = ""  # JSON of what the script set beside numbers; "" if unchanged
    curve_points: int = CURVE_POINTS  # that a metric keeps
    usage: UsageCurves | None = None  # of the attempt so far; None if unchanged
    # Why files of the trial are in no store, `ID text`; "" once they are, None if unchanged.
    unkept: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt ended."""

    state: TrialState
    objective: float | None = None
    best: float | None = None  # of all values reported, whichever the sweep ranks by
    values: tuple[float, ...] = ()  # of the sweep's objectives, if it has several; () if one lacks
    violations: tuple[float, ...] = ()  # of its constraints; () if one of their metrics lacks
    infeasible: bool = False  # does not meet the constraints, as far as was reported
    step: int = 0
    failure: Failure | None = None
    ran_ms: int | None = None  # by the worker's clock, which also counts a Redis outage
    artifacts: Artifacts | None = None
    unstored: Unstored | None = None
    usage: Mapping[str, float] = field(default_factory=dict)  # of USAGE

    def measured(self, sweep: RunnableSweep, lasts: Mapping[str, float]) -> Outcome:
        """Add what the last values of the metrics are for a sweep's objectives and constraints."""
        if not (sweep.objectives or sweep.constraints):
            return self
        values = tuple(lasts[metric.name] for metric in sweep.objectives)
        violations = sweep.violations(lasts)
        is_measured = all(map(math.isfinite, values))
        return replace(
            self,
            objective=self.objective if is_measured else None,  # or one metric would rank it
            values=values if is_measured else (),
            violations=violations if all(map(math.isfinite, violations)) else (),
            infeasible=not sweep.is_feasible(lasts),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Capped:
    """The effect of a new run_cap: trials dropped, trials queued again, and trials now."""

    dropped: int
    back: int
    trials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaped:
    """Numbers of trials whose lease expired: requeued ones and ended ones."""

    queued: int
    ended: int  # poison, or stopped before


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPresence:
    """The presence record that a worker publishes; readers see it as status.Worker."""

    name: str
    host: str
    queue: str
    fields: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PresenceReply:
    """Reply to a presence record."""

    now_ms: int  # by the server's clock
    lacks_provenance: bool  # the server has dropped the worker's provenance record


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleReply:
    """Reply to a sign of life of an idle worker."""

    now_ms: int  # by the server's clock
    run_id: str  # of the server: a restart changes it
    lease_end_ms: float  # when the first lease ends; inf: no trial runs
    is_short: bool  # of memory: the reaper drops logs and curves
