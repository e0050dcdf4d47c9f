"""Immutable records that StoreReader returns: workers, events, and the status of a sweep.

Times are by the server's clock, in integer milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from hpq.domain.owner import Owner
from hpq.domain.sweep import SweepView
from hpq.domain.trial import TrialState, TrialView
from hpq.error_codes import Code
from hpq.notice import Notice


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A live worker, as its presence record describes it.

    `takes` are the built-in trainers; `key` is the fingerprint of its
    HPQ_CODE_KEY; `store` is yes or no for HPQ_STORE; `refuses` has, by
    sweep id, the reason why the worker cannot run a sweep.
    """

    name: str
    host: str = ""
    pid: int = 0
    queue: str = ""
    state: str = "idle"  # idle | busy | silent | stopping | draining | drained | faulty
    trial: str = ""
    seen_ms: int = 0
    device: str = ""
    version: str = ""
    takes: tuple[str, ...] = ()
    key: str = ""
    store: str = ""
    only: str = ""  # the one sweep that it runs; "" for any
    pod: str = ""  # the pod's name; "" outside a cluster
    low_disk: str = ""  # the directory whose disk has little space, with the space left
    gpu_util: float | None = None  # percent, of the GPUs of the trial that it runs
    refuses: dict[str, Notice] = field(default_factory=dict)
    unreadable: str = ""  # why its record cannot be decoded: only its name and `seen_ms` are known

    @property
    def notice(self) -> Notice:
        """What is unreadable."""
        return Notice("value-unreadable", self.unreadable)

    def is_for(self, sid: str) -> bool:
        """Return whether the worker may run the trials of a sweep."""
        return self.only in ("", sid)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableSweep:
    """A sweep that cannot be decoded; `why` names the key and the field."""

    id: str
    why: str
    code: Code = "value-unreadable"

    @property
    def notice(self) -> Notice:
        """What is unreadable, and the remedy."""
        if self.code == "hpq-too-old":  # `why` names the upgrade
            return Notice(self.code, self.why)
        return Notice(self.code, f"{self.why}; `hpq rm --force {self.id}` removes it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The figures of all queues at one moment.

    `waiting` and `running` count the trials of sweeps that are not over, by queue and owner;
    `workers` counts the live workers by queue and state; `gpu_util` is the mean use of the GPUs of
    running trials in percent, by queue and host. `gpu_ms` is what owners used since an operator set
    the first limit of any owner. `ended` counts attempts by outcome, kind of failure, and a number
    of seconds that they ran at most.
    """

    demand: Mapping[str, int]  # queue → trials that run or could be claimed now
    waiting: Mapping[tuple[str, str], int]
    running: Mapping[tuple[str, str], int]
    held: Mapping[str, int]  # queue → held sweeps
    workers: Mapping[tuple[str, str], int]
    gpu_util: Mapping[tuple[str, str], float]
    gpu_ms: Mapping[str, int]
    ended: Mapping[tuple[str, str, int], int]
    counters: Mapping[str, int]
    memory_ratio: float  # used_memory over maxmemory; 0 if there is no limit
    is_aof_ok: bool


FULL = 0.8  # of maxmemory; the rest is for reports and results
SHORT = 0.9  # above it the reaper drops logs and curves (lua/lib/histories.lua)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerMemory:
    """The server's memory in bytes (limit 0: none) and its policy at the limit."""

    used: int
    limit: int
    policy: str
    is_kept: bool = True  # False: the last write to disk failed, so every change is refused

    @property
    def evicts(self) -> bool:
        """True if the server would evict trials rather than refuse a write."""
        return self.policy != "noeviction"

    @property
    def is_full(self) -> bool:
        """True if no further trial starts until memory is free."""
        return bool(self.limit) and not self.evicts and self.used > self.limit

    @property
    def is_short(self) -> bool:
        """True if logs and curves must go."""
        return bool(self.limit) and self.used > SHORT * self.limit

    def has_room(self, more: int) -> bool:
        """Return whether N further bytes leave free what is reserved for results."""
        return not self.limit or self.used + more <= FULL * self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationStats:
    """How long the ended trials of a sweep ran: count, mean and standard deviation."""

    ended: int = 0
    mean_ms: float = 0.0
    sd_ms: float = 0.0

    @classmethod
    def of_sums(cls, count: float, total_ms: float, squares: float) -> DurationStats:
        """Compute mean and deviation from a count, a sum and a sum of squares."""
        if count < 1:
            return cls()
        mean = total_ms / count
        deviation = max(0.0, squares / count - mean * mean) ** 0.5
        return cls(ended=int(count), mean_ms=mean, sd_ms=deviation)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStatus:
    """One moment of a sweep; its size does not grow with the sweep's."""

    sweep: SweepView
    at_ms: int
    running: tuple[TrialView, ...]  # oldest claim first
    best: tuple[TrialView, ...]  # best objective first
    recent: tuple[TrialView, ...]  # last ended first
    workers: tuple[Worker, ...]  # live workers of the sweep's queue
    durations: DurationStats
    ahead: tuple[SweepView, ...] = ()  # served before it, if it waits while all workers are busy
    owner: Owner | None = None  # its limits, if any are set and none of its trials runs
    memory: ServerMemory | None = None  # the server's; None if these credentials may not ask
    silent_ms: float = math.inf  # without a heartbeat for longer, a trial's worker is silent
    is_stale: bool = False  # Redis has not answered since; `at_ms` advances by the local clock
    last_event: str  # id of the newest event; later events have a higher one

    def silence_ms(self, trial: TrialView) -> int:
        """Return the time since the last heartbeat of a silent worker's trial, else 0."""
        since = self.at_ms - trial.beat_ms
        is_silent = trial.state is TrialState.RUNNING and trial.beat_ms and since > self.silent_ms
        return since if is_silent and not self.is_stale else 0


def event_ms(event: str) -> int:
    """Return the server's time in the id of an event."""
    return int(event.partition("-")[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One lifecycle event of a sweep; `at_ms` is the server's clock."""

    id: str
    what: str
    trial: int = 0
    attempt: int = 0
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def at_ms(self) -> int:
        return event_ms(self.id)
