"""What readers get of the store in one look: frozen, without a client inside.

Filled by `reader`, drawn by the producer. Times are the server's, in integer milliseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hpq.codes import Notice
from hpq.domain.sweep import Sweep
from hpq.domain.trial import Trial, TrialState


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A live worker as it described itself. Times in milliseconds, Redis's clock.

    `takes` are the shipped trainers and the HPQ_ALLOW lines; `key` is the fingerprint of its
    HPQ_CODE_KEY; `store` says whether it has HPQ_STORE: yes, no, or "" (an older one does not say);
    `refuses` says, by sweep id, why it leaves a sweep alone.
    """

    name: str
    host: str = ""
    pid: int = 0
    worker_class: str = ""
    state: str = "idle"  # idle | busy | silent | stopping | draining | drained | faulty
    trial: str = ""
    seen_ms: int = 0
    started_ms: int = 0
    device: str = ""
    version: str = ""
    schema: int = 1  # of the newest sweeps that it reads
    takes: tuple[str, ...] = ()
    key: str = ""
    store: str = ""
    code: str = ""  # its HPQ_CODE
    only: str = ""  # the one sweep, or trial (`sweep/7`), that it is there for; "" for any
    pod: str = ""  # its pod's name; "" outside a cluster
    refuses: dict[str, Notice] = field(default_factory=dict)

    def is_for(self, sid: str) -> bool:
        """True where it is there for a sweep, or for a trial of it."""
        return self.only.partition("/")[0] in ("", sid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A sweep that is there but not as any version of hpq writes it; `why` names the place."""

    id: str
    why: str


FULL = 0.8  # of maxmemory; what is above it is for reports and results


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
        """True if no further trial starts unless logs and curves can be dropped for it."""
        return bool(self.limit) and not self.evicts and self.used > self.limit

    def takes(self, more: int) -> bool:
        """Return whether N further bytes leave free what is reserved for results."""
        return not self.limit or self.used + more <= FULL * self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long ended trials of a sweep took: count, mean and spread, in milliseconds."""

    ended: int = 0
    mean_ms: float = 0.0
    sd_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One moment of a sweep, bounded in size whatever the sweep's: what a frame is drawn from."""

    sweep: Sweep
    at_ms: int
    running: tuple[Trial, ...]  # oldest claim first
    best: tuple[Trial, ...]  # best objective first
    recent: tuple[Trial, ...]  # last ended first
    workers: tuple[Worker, ...]  # live workers of the sweep's class
    pace: Pace
    ahead: tuple[Sweep, ...] = ()  # that go before it, where it waits for workers that are busy
    room: ServerMemory | None = None  # the server's; None where it does not say
    silent_ms: float = math.inf  # without a beat for so long, a running trial's worker is silent
    is_old: bool = False  # Redis has not answered since; `at_ms` goes on by a clock here
    last_event: str  # id of the newest event seen; XREAD goes on from here

    def silence_ms(self, trial: Trial) -> int:
        """How long a running trial's worker has given no sign of life, where that is too long."""
        since = self.at_ms - trial.beat_ms
        is_silent = trial.state is TrialState.RUNNING and trial.beat_ms and since > self.silent_ms
        return since if is_silent and not self.is_old else 0


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
        return int(self.id.partition("-")[0])


def pace_of(count: float, total: float, squares: float) -> Pace:
    """Mean and spread from a count, a sum and a sum of squares."""
    if count < 1:
        return Pace()
    mean = total / count
    spread = max(0.0, squares / count - mean * mean) ** 0.5
    return Pace(ended=int(count), mean_ms=mean, sd_ms=spread)
