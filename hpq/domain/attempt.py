"""What goes into the store from a worker, and the words that come back. Pure data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from hpq.domain.trial import Artifacts, Checkpoint, Failure, Point, TrialState


class HeartbeatReply(StrEnum):
    """What a beat answers: go on, stop (cancelled), stop (pruned), or why this attempt is over."""

    OK = "ok"
    STOP = "stop"
    PRUNE = "prune"
    LOST = "lost"  # a later attempt has the trial, or it has ended
    UNKNOWN = "unknown"  # the store does not know the trial: its data was lost or removed


class CommitReply(StrEnum):
    """What became of a commit."""

    DONE = "done"
    REQUEUED = "requeued"  # a failure that is tried again
    SUSPECT = "suspect"  # given back uncharged: this worker alone fails so
    ALREADY = "already"  # the same commit was taken before
    STALE = "stale"  # a later attempt has the trial
    UNKNOWN = "unknown"  # the store does not know the trial: its data was lost or removed


class Reason(StrEnum):
    """Why a worker gives a trial back uncharged."""

    STOPPING = "stopping"
    DATA_MISSING = "data_missing"
    WORKER_FAULT = "worker_fault"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportBatch:
    """What a trial reported and printed since the last batch that the store took.

    `seq` rises by one a batch; a batch is sent until it is acknowledged, unchanged.
    """

    seq: int
    step: int = 0
    objective: float | None = None
    phase: str = ""
    log: bytes = b""
    points: tuple[Point, ...] = ()
    checkpoint: Checkpoint | None = None  # published since
    restarted: str = ""  # why the training starts again although there is a checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt ended."""

    state: TrialState
    objective: float | None = None
    best: float | None = None  # of all that the attempt reported, whatever the sweep ranks by
    step: int = 0
    failure: Failure | None = None
    ran_ms: int | None = None  # by the worker's clock, which runs on while Redis is away
    artifacts: Artifacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capped:
    """What a new run_cap did: how many it dropped, how many wait again, and how many there are."""

    dropped: int
    back: int
    trials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaped:
    """How many trials lost their worker and are queued again, or came to their end."""

    queued: int
    ended: int  # poison, or told to stop before


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPresence:
    """How a worker describes itself to people and to the reaper (see snapshot.Worker)."""

    name: str
    host: str
    worker_class: str
    fields: dict[str, str] = field(default_factory=dict)
