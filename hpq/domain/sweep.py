"""Define a sweep: its search, its code, its limits, its state and its counts."""

from __future__ import annotations

import math
import os.path
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hpq.domain.budget import Budget
from hpq.domain.constraint import Constraint
from hpq.domain.stored_state import Cause, Hold, Returned, StoredState, TargetReached
from hpq.domain.trial import Json, TrialState
from hpq.notice import Notice


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedFile:
    """A sweep file whose trials were added to another sweep: when, how many, its data and text."""

    at_ms: int
    added: int
    spec: Mapping[str, Json]
    text: str = ""


SCHEMA = 1  # the format of sweeps and archives; a greater one is refused (`refusal_of_schema`)
DEFAULT_QUEUE = "default"
FUNCTION = "function"  # trainer and queue of trials that `hpq.agent` runs in its caller's process
MOST_REPLICATES = 1_000
MAX_PRIORITY = 1_000  # the lowest priority is its negative
NAME_RULE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")


class SweepState(StrEnum):
    """State of a sweep as views show it: computed from the stored one and the counts."""

    RUNNING = "running"
    PAUSED = "paused"
    HELD = "held"
    STOPPING = "stopping"
    FINISHED = "finished"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """True if no trial of the sweep will run again by itself."""
        return self in (SweepState.FINISHED, SweepState.CANCELLED)


_WITH_OPEN_TRIALS = {
    StoredState.OPEN: SweepState.RUNNING,
    StoredState.PAUSED: SweepState.PAUSED,
    StoredState.HELD: SweepState.HELD,
    StoredState.STOPPED: SweepState.STOPPING,
    StoredState.CANCELLED: SweepState.STOPPING,
}


class Goal(StrEnum):
    """Direction in which the metric is better."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


class Wandb(StrEnum):
    """Which module `import wandb` imports in a program."""

    STAND_IN = "stand-in"  # hpq's own: everything goes to hpq
    TEE = "tee"  # the installed one, which feeds hpq as well
    REAL = "real"  # the installed one


class ObjectiveValue(StrEnum):
    """Which of a trial's values is its objective (`metric: {value: …}`)."""

    LAST = "last"
    BEST = "best"


class Impute(StrEnum):
    """Which value replaces that of a trial that has none yet, or never will."""

    LATEST = "latest"
    BEST = "best"
    WORST = "worst"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """The metric that trials report, and its direction.

    `impute` and `impute_while_running` are for searches that learn: the value that replaces that of
    a failed trial, and of a running one (None: running trials are ignored).
    """

    name: str
    goal: Goal = Goal.MINIMIZE
    take: ObjectiveValue = ObjectiveValue.LAST
    target: float | None = None
    impute: Impute = Impute.WORST
    impute_while_running: Impute | None = None
    terminate_on_nan: int = 0  # reports in a row of NaN or infinity that end a trial; 0: never

    def better(self, a: float, b: float) -> bool:
        """Return whether a is better than b; NaN is never better."""
        is_ahead = a < b if self.goal is Goal.MINIMIZE else a > b
        return a == a and (b != b or is_ahead)  # NaN alone differs from itself


def is_same_metric(one: Metric | None, other: Metric | None) -> bool:
    """Return True if results of both are comparable."""
    if one is None or other is None:
        return one is other
    return (one.name, one.goal, one.take) == (other.name, other.goal, other.take)


class TerminationRule(StrEnum):
    """Rule of early termination (`early_terminate: {type: …}`)."""

    HYPERBAND = "hyperband"
    ASHA = "asha"
    MEDIAN = "median"


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyTerminate:
    """A rule of early termination and its bands, counted in finite values of the metric from 1.

    `eta` is for hyperband and asha, `strict` for hyperband, `min_trials` for the median: N other
    trials must have reached a band before the rule compares at it.
    """

    rule: TerminationRule
    bands: tuple[int, ...]
    eta: float = 3.0
    strict: bool = True
    min_trials: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Whose checkpoints and artifacts are kept: the N best trials and the N that ended last."""

    best: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The code that a worker starts for a trial: exactly one of trainer and program is set.

    `command` is W&B's template (whole-item macros), empty for a trainer. Of `bundled` code a copy
    runs. `code_dir` is the working directory of local code on the machine whose HPQ_HOME has the id
    `home`, below or beside `root`, of which the copy was taken; "" for built-in or installed
    trainers and for code that was sent by name. Local code that is not bundled runs where it lies
    (--live). `code` is the digest of that code, or the distribution and version of an installed
    trainer; `reach` is the digest of the files in it that the program can import or that it names.
    `wandb` and `preload` are for programs.
    """

    trainer: str = ""
    program: str = ""
    command: tuple[str, ...] = ()
    code: str = ""
    reach: str = ""
    code_dir: str = ""
    pass_env: tuple[str, ...] = ()
    resident: bool = False
    preload: tuple[str, ...] = ()
    wandb: Wandb | None = None
    bundled: bool = False
    root: str = ""
    home: str = ""

    @property
    def is_function(self) -> bool:
        """True if `hpq.agent` runs the trials, in the process that calls it."""
        return self.trainer == FUNCTION

    @property
    def is_frozen(self) -> bool:
        """True for local code of which a copy runs."""
        return self.bundled and bool(self.code_dir)

    @property
    def below(self) -> str:
        """The working directory within a copy of the code; "" for its top."""
        below = os.path.relpath(self.code_dir, self.root) if self.root else ""
        return "" if below.startswith(".") else below

    def has_code_of(self, other: Launch) -> bool:
        """Return True if both run the same code: files that no program reaches may differ."""
        return self.code == other.code or (bool(self.reach) and self.reach == other.reach)

    @property
    def what(self) -> str:
        """Name what is started, for people."""
        return self.trainer or self.program or " ".join(self.command)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Number of trials of a sweep in each state."""

    queued: int = 0
    running: int = 0
    finished: int = 0
    failed: int = 0
    pruned: int = 0
    cancelled: int = 0
    diverged: int = 0  # of the failed ones
    to_come: float = 0  # trials not yet suggested; infinite if the sweep is open-ended

    @property
    def total(self) -> int:
        """Number of trials that the sweep has so far."""
        return self.queued + self.running + self.ended

    @property
    def planned(self) -> float:
        """Number of trials at the end if nothing stops the sweep; infinite if it is open-ended."""
        return self.total + self.to_come

    @property
    def waits(self) -> bool:
        """True if trials wait for a worker, or are yet to be suggested."""
        return self.queued > 0 or self.to_come > 0

    @property
    def is_open_ended(self) -> bool:
        """True if trials are suggested until the sweep is stopped."""
        return math.isinf(self.to_come)

    @property
    def ended(self) -> int:
        """Number of trials in a terminal state."""
        return self.finished + self.failed + self.pruned + self.cancelled

    @property
    def progress(self) -> tuple[int, float]:
        """Number of trials that ended, and that ended or will; cancelled ones are in neither."""
        return self.ended - self.cancelled, self.planned - self.cancelled or self.planned  # 0/12

    def of(self, state: TrialState) -> int:
        """The count of one state."""
        return int(getattr(self, state.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnableSweep:
    """What a worker reads of a sweep to run its trials: the launch record and the limits."""

    id: str
    launch: Launch
    owner: str = ""
    priority: int = 0
    signature: str = ""
    signer: str = ""  # fingerprint of the signing key as the producer wrote it: for people only
    metric: Metric | None = None
    objectives: tuple[Metric, ...] = ()  # all metrics, `metric` first; () if there is only one
    constraints: tuple[Constraint, ...] = ()
    timeout_s: float = 0.0  # 0 = none
    stall_s: float = 0.0  # 0 = by default
    idle_s: float = 0.0  # ends trials whose GPUs are used less than idle_below for so long; 0: none
    idle_below: float = 0.0  # percent
    sampler: str = ""  # sampler that suggests trials; "" if all exist at enqueue
    search: str = ""  # its search as JSON (wire/search.py); "" likewise
    keep: Keep | None = None  # None: all artifacts, but no checkpoints of finished trials
    history: str = ""  # "all": every report is kept in a file of the trial
    early: EarlyTerminate | None = None
    method: str = "grid"
    seed: int = 0
    replicates: int = 1  # trials with the same parameters, numbered consecutively
    provenance: Mapping[str, Json] = field(default_factory=dict)
    created_ms: int = 0

    @property
    def further_metrics(self) -> tuple[str, ...]:
        """Names of the metrics that a result needs beside `metric`, by their last values."""
        bounds = (constraint.metric for constraint in self.constraints)
        return tuple(dict.fromkeys([*(one.name for one in self.objectives[1:]), *bounds]))

    def violations(self, metrics: Mapping[str, float]) -> tuple[float, ...]:
        """Return the violation of each constraint by a trial's last values."""
        return tuple(constraint.violation(metrics) for constraint in self.constraints)

    def is_feasible(self, metrics: Mapping[str, float]) -> bool:
        """Return True if a trial's last values meet all constraints."""
        return all(violation <= 0 for violation in self.violations(metrics))


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepView(RunnableSweep):
    """A sweep with its state and its counts. Times are Redis's, in integer milliseconds.

    `spec` is the sweep file as data, kept for `show` and provenance. `varying` are the names whose
    values differ between trials, in the file's order, dotted if parameters are nested.
    """

    name: str
    digest: str
    queue: str = DEFAULT_QUEUE
    max_parallel: int = 0  # 0 = no cap
    may_run: str = ""  # how many of its trials the owner's limits let run at once; "": no limits
    retries: int = 0  # added to the retries of retry_policy.RETRY_RULES
    run_cap: int = 0  # suggests at most N trials; 0: no limit
    made: Mapping[str, int] = field(default_factory=dict)  # sampler, and why → trials
    no_more: str = ""  # why suggestions ended: stopped, cancelled, exhausted, …
    varying: tuple[str, ...] = ()
    spec: Mapping[str, Json] = field(default_factory=dict)
    bundle: str = ""  # digest under which Redis holds the code; "" if it does not
    files: tuple[AppendedFile, ...] = ()  # added after the sweep's own
    outside: frozenset[int] = frozenset()  # numbers of added trials outside the sweep's space
    tags: tuple[str, ...] = ()
    note: str = ""  # what users write about it
    run_tags: tuple[str, ...] = ()  # of runs (`tags=` of wandb.init), in the order of first use
    run_project: str = ""  # of the first run whose script names one (`project=` of wandb.init)
    stored: StoredState = StoredState.OPEN
    why: Hold | TargetReached | None = None  # of a sweep that is held, or that its target stopped
    budget: Budget | None = None
    least_ms: int = 0  # longest run that the end of an allocation cut off; 0: none
    unstored: int = 0  # trials whose files wait for their store
    unkept: int = 0  # trials with files that are in no store and wait for none
    unkept_why: Notice | None = None  # of the last one, which the text names
    returned: Returned | None = None
    bands: tuple[int, ...] = ()  # early-termination bands that some trial has reached
    counts: Counts = field(default_factory=Counts)

    @property
    def state(self) -> SweepState:
        """The state that views show, from the stored one and the counts."""
        counts, is_cancelled = self.counts, self.stored is StoredState.CANCELLED
        if counts.queued or counts.running or (counts.to_come and not is_cancelled):
            return _WITH_OPEN_TRIALS[self.stored]
        return SweepState.CANCELLED if is_cancelled else SweepState.FINISHED

    @property
    def hold(self) -> Hold | None:
        """Why the sweep is held; None if it is not."""
        return self.why if isinstance(self.why, Hold) else None

    @property
    def reached(self) -> TargetReached | None:
        """The trial that reached the target; None if the sweep did not stop at it."""
        return self.why if isinstance(self.why, TargetReached) else None

    @property
    def is_stopped(self) -> bool:
        """True after `hpq stop`; False if the sweep stopped at its target."""
        return self.stored is StoredState.STOPPED and self.reached is None

    @property
    def project(self) -> str:
        """W&B's project: of the sweep file, else of its runs; "" without one. Any text."""
        named = self.spec.get("project")
        return named if named and isinstance(named, str) else self.run_project

    @property
    def _bound(self) -> tuple[Budget, Cause] | None:
        """The budget that holds the sweep, and its key that does; None if it does not."""
        if self.budget is None or self.hold is None or not self.hold.cause.is_budget:
            return None
        return self.budget, self.hold.cause

    @property
    def is_over_budget(self) -> bool:
        """True if the sweep is held because none of its waiting trials fits its budget."""
        return self._bound is not None and self.state is SweepState.HELD

    @property
    def why_held(self) -> str:
        """Why the sweep is held, in words; "" if it is not."""
        if bound := self._bound:
            return bound[0].why(bound[1])
        return self.hold.text if self.hold else ""

    @property
    def resumed_by(self) -> str:
        """The command that lets trials of a paused or held sweep start again."""
        if bound := self._bound:
            return f"hpq set {self.id} {bound[0].change(bound[1])}"
        return f"hpq resume {self.id}"


def refusal_of_schema(schema: int) -> str:
    """Return why this hpq does not read data of a schema; "" if it does."""
    if schema <= SCHEMA:
        return ""
    return f"written by a newer hpq (schema {schema}; this one reads {SCHEMA}); upgrade this hpq"


def is_same_goal(one: RunnableSweep, other: RunnableSweep) -> bool:
    """Return True if trials of both sweeps can be ranked together."""
    same = len(one.objectives) == len(other.objectives) and is_same_metric(one.metric, other.metric)
    pairs = zip(one.objectives, other.objectives, strict=False)
    return same and one.constraints == other.constraints and all(is_same_metric(*p) for p in pairs)
