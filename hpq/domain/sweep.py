"""A sweep: what is searched, by which code, and where it stands. Imports trial and given only.

A file that was enqueued into a sweep that was there. Imports nothing but trial.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hpq.domain.trial import Json, TrialState


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedFile:
    """A further file that was enqueued into a sweep: when, how many trials it added, its data.

    `origin` is what `provenance` says of it, its text among it; `spec` its data after the flags.
    """

    at_ms: int
    added: int
    digest: str = ""
    spec: Mapping[str, Json]
    origin: Mapping[str, Json]


# Stands on each sweep; a worker leaves a sweep whose number is higher. 2: its sets are made while
# it runs, it ends trials early, has replicates, or its program gets a wandb.
SCHEMA = 2
EARLY_SCHEMA = 1  # of a sweep that has nothing of it
DEFAULT_CLASS = "default"
NAME_RULE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")


class SweepState(StrEnum):
    """Where a sweep stands: computed from flags and counts, never stored."""

    RUNNING = "running"
    PAUSED = "paused"
    HELD = "held"
    STOPPING = "stopping"
    FINISHED = "finished"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """True where nothing of the sweep will run again by itself."""
        return self in (SweepState.FINISHED, SweepState.CANCELLED)


class Goal(StrEnum):
    """Which way the metric is better."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


class Wandb(StrEnum):
    """What `import wandb` gives to a program."""

    STAND_IN = "stand-in"  # hpq's own: everything goes to hpq
    TEE = "tee"  # the installed one, which feeds hpq as well
    REAL = "real"  # the installed one


class ObjectiveValue(StrEnum):
    """Which of a trial's values is its objective (`metric: {value: …}`)."""

    LAST = "last"
    BEST = "best"


class Impute(StrEnum):
    """Which value stands for that of a trial that has none of its own yet, or never will."""

    LATEST = "latest"
    BEST = "best"
    WORST = "worst"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """The name that trials report and the way it is better.

    `impute` and `impute_while_running` are for searches that learn: what a failed trial counts as,
    and a running one (None = it is not counted).
    """

    name: str
    goal: Goal = Goal.MINIMIZE
    take: ObjectiveValue = ObjectiveValue.LAST
    target: float | None = None
    impute: Impute = Impute.WORST
    impute_while_running: Impute | None = None

    def better(self, a: float, b: float) -> bool:
        """True where a is better than b; NaN is better than nothing."""
        if a != a:
            return False
        return b != b or (a < b if self.goal is Goal.MINIMIZE else a > b)


class Rule(StrEnum):
    """How trials that do badly are told to stop (`early_terminate: {type: …}`)."""

    HYPERBAND = "hyperband"
    ASHA = "asha"
    MEDIAN = "median"


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyTerminate:
    """A rule and the values that it looks at, counted in finite values of the metric from 1.

    `eta` and `strict` are hyperband's (asha has eta, too), `min_trials` is the median's: so many
    others must have reached a band before it is looked at.
    """

    rule: Rule
    bands: tuple[int, ...]
    eta: float = 3.0
    strict: bool = True
    min_trials: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetReached:
    """The trial whose value ended the sweep, as it was at least as good as the metric's target."""

    trial: int
    value: float
    target: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Whose checkpoints and artifacts stay: of the best trials, and of those that ended last."""

    best: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a worker starts for a trial: exactly one of trainer and program is set.

    `command` is W&B's template (whole-item macros), empty for a trainer. `code_dir` is where local
    code lies and runs ("" for shipped or installed trainers, and for code that is `bundled`: it
    comes from Redis, and a copy of it runs); `code` is the digest of that code, or the distribution
    and version of an installed trainer. `wandb` is for programs; None is what an hpq before
    schema 2 has enqueued.
    """

    trainer: str = ""
    program: str = ""
    command: tuple[str, ...] = ()
    code: str = ""
    code_dir: str = ""
    pass_env: tuple[str, ...] = ()
    resident: bool = False
    wandb: Wandb | None = None
    bundled: bool = False

    @property
    def what(self) -> str:
        """What is started, for people to read."""
        return self.trainer or self.program or " ".join(self.command)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many trials of a sweep are in each state."""

    queued: int = 0
    running: int = 0
    finished: int = 0
    failed: int = 0
    pruned: int = 0
    cancelled: int = 0
    diverged: int = 0  # of the failed ones
    to_come: float = 0  # sets that are yet to be made; infinite where the sweep is open-ended

    @property
    def total(self) -> int:
        """All trials that the sweep has so far."""
        return self.queued + self.running + self.ended

    @property
    def planned(self) -> float:
        """All that it will have if nothing ends it before; infinite where it is open-ended."""
        return self.total + self.to_come

    @property
    def waits(self) -> bool:
        """True where trials wait for a worker, or sets are yet to be made for one."""
        return self.queued > 0 or self.to_come > 0

    @property
    def is_open_ended(self) -> bool:
        """True where sets are made until somebody stops the sweep."""
        return math.isinf(self.to_come)

    @property
    def ended(self) -> int:
        """Trials in a terminal state."""
        return self.finished + self.failed + self.pruned + self.cancelled

    def of(self, state: TrialState) -> int:
        """The count of one state."""
        return int(getattr(self, state.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A sweep as both sides see it. Times are Redis's, in integer milliseconds.

    `spec` is the sweep file as data, kept for `show` and provenance; nothing computes with it after
    enqueue. `varying` are the names whose values differ between trials, in the file's order, dotted
    where parameters are nested.
    """

    id: str
    name: str
    digest: str
    launch: Launch
    signature: str = ""
    signer: str = ""  # fingerprint of the key that signed it, as the producer says: for people only
    metric: Metric | None = None
    worker_class: str = DEFAULT_CLASS
    owner: str = ""
    priority: int = 0
    max_parallel: int = 0  # 0 = no cap
    retries: int = 0  # charged failures forgiven beyond what the failure kind allows
    timeout_s: float = 0.0  # 0 = none
    stall_s: float = 0.0  # 0 = by default
    canary: int = 0  # so many must finish before the rest may be claimed; 0 = none, or passed
    sampler: str = ""  # who makes its sets while it runs; "" where all are made at enqueue
    search: str = ""  # what that one needs to know (wire_search); "" likewise
    run_cap: int = 0  # the most sets that are made so; 0 = no end
    made: Mapping[str, int] = field(default_factory=dict)  # by which sampler, how many trials so
    no_more: str = ""  # why no further ones are made: stopped, cancelled, exhausted, …
    keep: Keep | None = None  # None: all artifacts, and no checkpoint of what is finished
    early: EarlyTerminate | None = None
    method: str = "grid"
    seed: int = 0
    replicates: int = 1  # trials of each set, in a row
    varying: tuple[str, ...] = ()
    spec: Mapping[str, Json] = field(default_factory=dict)
    provenance: Mapping[str, Json] = field(default_factory=dict)
    bundle: str = ""  # the code digest under which the code itself is kept; "": it is not
    files: tuple[AppendedFile, ...] = ()  # that it grew by, after its own
    tags: tuple[str, ...] = ()
    created_ms: int = 0
    schema: int = EARLY_SCHEMA
    flag: str = ""  # "", paused, stopped, cancelled
    held: str = ""  # why the breaker holds it, one line
    reached: TargetReached | None = None
    bands: tuple[int, ...] = ()  # of early termination, those that some trial has reached
    counts: Counts = field(default_factory=Counts)

    @property
    def state(self) -> SweepState:
        """Where the sweep stands."""
        return sweep_state(self.flag, self.held, self.counts)


def sweep_state(flag: str, held: str, counts: Counts) -> SweepState:
    """Where a sweep stands, from its flag, its hold and its counts alone."""
    if flag == "cancelled":
        return SweepState.CANCELLED if counts.running == 0 else SweepState.STOPPING
    if counts.queued == 0 and counts.running == 0 and not counts.to_come:
        return SweepState.FINISHED
    if flag == "stopped":
        return SweepState.STOPPING
    if held:
        return SweepState.HELD
    return SweepState.PAUSED if flag == "paused" else SweepState.RUNNING
