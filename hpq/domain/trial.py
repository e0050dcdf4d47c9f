"""Define a trial: one hyperparameter set of a sweep, its states and the transitions between them.

`TRANSITIONS` is the table that the Lua scripts implement; a test drives every (from, to) pair
through them and compares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class TrialState(StrEnum):
    """State of a trial."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    PRUNED = "pruned"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """True if only `hpq retry` leaves this state."""
        return self not in (TrialState.QUEUED, TrialState.RUNNING)

    @property
    def is_complete(self) -> bool:
        """True if a result in this state counts: the trial finished, or was pruned."""
        return self in (TrialState.FINISHED, TrialState.PRUNED)


_Q, _R = TrialState.QUEUED, TrialState.RUNNING
_ENDS = frozenset({s for s in TrialState if s.is_terminal})

TRANSITIONS: Mapping[TrialState, frozenset[TrialState]] = {
    # Queued to terminal: the sweep was cancelled, or a result arrived after its lease was reaped
    # and before another worker claimed the trial (its hours are saved), or the trial was retried
    # and others of that retry failed again.
    _Q: frozenset({_R}) | _ENDS,
    _R: frozenset({_Q}) | _ENDS,
    TrialState.FINISHED: frozenset({_Q}),  # the way back is always `hpq retry`
    TrialState.FAILED: frozenset({_Q}),
    TrialState.PRUNED: frozenset({_Q}),
    TrialState.CANCELLED: frozenset({_Q}),
}


class FailureKind(StrEnum):
    """Why an attempt failed; `retry_policy.RETRY_RULES` says what follows. The list is closed."""

    BAD_PARAMS = "bad_params"
    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    USER_ERROR = "user_error"
    UNREPORTED = "unreported"  # ended without reporting the sweep's metric
    KILLED = "killed"
    LOST = "lost"
    POISON = "poison"
    DATA_MISSING = "data_missing"
    WORKER_FAULT = "worker_fault"
    DISTRUSTED = "distrusted"  # its parameters in Redis are not those that were signed
    UNREADABLE = "unreadable"  # its record in Redis is not what hpq writes; no worker commits this

    @property
    def counts_as_failure(self) -> bool:
        """False if the trial diverged: the parameters are bad, the sweep is not broken."""
        return self is not FailureKind.DIVERGED


_NAMES = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")  # of folders and files

JsonScalar = str | int | float | bool | None
Json = JsonScalar | list["Json"] | dict[str, "Json"]
Params = Mapping[str, Json]


OTHER_CODE = " (other code)"  # ends the source of a result that other code reported


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialId:
    """A sweep's id and a number in it, counted from 1; written `sweep/7`."""

    sweep: str
    number: int

    def __str__(self) -> str:
        return f"{self.sweep}/{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The newest published checkpoint of a trial: its place, and the progress of the training.

    `store` is the file store's id, `path` a folder in it. `last` and `best` are values of the
    sweep's metric (None: none is finite), `counts` how many values of each metric were reported,
    `logged` how many finite values of the sweep's metric, and `further` the last values of the
    other metrics that a result needs.
    """

    store: str
    path: str
    step: int = 0
    last: float | None = None
    best: float | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    logged: int = 0
    further: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a trial begins: at a checkpoint of another trial of its sweep, which has ended."""

    trial: int
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifacts:
    """The files that an attempt published in a folder of a file store: name → size in bytes."""

    store: str
    path: str
    files: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unstored:
    """Files of an ended attempt that wait for their store in a folder of its host."""

    store: str
    path: str  # where the store will have them
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to run one attempt of a trial.

    `row` is the trial's row as stored; `params` are decoded from it once the sweep is trusted.
    """

    trial: TrialId
    attempt: int
    params: Params = field(default_factory=dict)
    start: Start | None = None  # likewise
    row: bytes = b""
    checkpoint: Checkpoint | None = None
    nonce: str  # identifies the claim
    unbegun: int = 0  # earlier attempts that were released before training began
    created_ms: int = 0  # this and the next three are of the sweep, as it is now
    signature: str = ""
    timeout_s: float = 0.0
    stall_s: float = 0.0
    unfed: str = ""  # a sweep that lacks a suggester, which this worker should start
    unreadable: str = ""  # why the rest cannot be decoded: trial, attempt and nonce are known

    @property
    def token(self) -> str:
        """Name for what this execution writes: the attempt and a few characters of the nonce."""
        own = "".join(c for c in self.nonce if c in _NAMES)[:6]
        return f"{self.attempt}-{own}"


class Point(NamedTuple):
    """One reported value of one metric at one step."""

    step: int
    name: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """All stored values of one metric of one trial, in the order of report, as columns.

    `times_ms` is when Redis received each value; `attempts` is who reported it.
    """

    trial: int
    metric: str
    steps: list[int]
    values: list[float]
    times_ms: list[int]
    attempts: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt failed: its kind, one line for people, and a fingerprint of its origin."""

    kind: FailureKind
    message: str
    fingerprint: str = ""


# The failure of a trial whose parameters are not those that were signed.
ALTERED = Failure(
    kind=FailureKind.DISTRUSTED,
    message="another client of Redis changed its parameters; enqueue the sweep again with --reuse",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """Why early termination stopped a trial.

    `n` trials had reached the band, this one included; its `value` ranked `rank` among them and was
    worse than the `threshold`.
    """

    rule: str
    band: int
    rank: int
    n: int
    threshold: float
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicateGroup:
    """The results of the replicates of one set of parameters."""

    first: int  # the number of the first
    of: int
    objectives: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean of the replicates that have a result, to the last bit as moves.lua ranks by it."""
        total = 0.0
        for value in self.objectives:  # sum() rounds otherwise
            total += value
        return total / len(self.objectives)

    @property
    def spread(self) -> float:
        """Sample standard deviation (n - 1); 0 for one result."""
        if len(set(self.objectives)) < 2:  # their mean may differ from them by rounding
            return 0.0
        squares = ((value - self.mean) ** 2 for value in self.objectives)
        return math.sqrt(math.fsum(squares) / (len(self.objectives) - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a trial stands among the results of its sweep: the same numbers in every view.

    Trials with the same parameters (replicates) are one setting, and share all of this.
    """

    setting: int  # its number, from 1
    rank: int = 0  # from 1, by the mean of its trials; 0: no feasible result, or several metrics
    of: int = 0  # settings with a rank
    is_front: bool | None = None  # None: the sweep has one metric

    def __str__(self) -> str:
        return f"rank {self.rank:,} of {self.of:,}" if self.rank else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialView:
    """A trial as a reader sees it. Times are Redis's, in integer milliseconds; 0 = not yet."""

    id: TrialId
    state: TrialState
    params: Params
    is_signed: bool = False  # this machine's key signed the parameters
    attempt: int = 0
    worker: str = ""
    host: str = ""
    claimed_ms: int = 0
    beat_ms: int = 0
    ended_ms: int = 0
    ran_ms: int = 0  # how long the latest attempt ran, once it ended
    before_ms: int = 0  # how long all earlier attempts ran
    step: int = 0
    objective: float | None = None
    best: float | None = None  # of the values of the sweep's metric; set when the trial ends
    metrics: Mapping[str, float] = field(default_factory=dict)  # the last value of each
    run_info: Params = field(default_factory=dict)  # what the script set beside numbers
    failure: Failure | None = None
    phase: str = ""
    provenance: str = ""
    checkpoint: Checkpoint | None = None
    artifacts: Artifacts | None = None
    unstored: Unstored | None = None
    start: Start | None = None  # None: at the beginning
    restarted: str = ""  # why the last attempt could not resume from its checkpoint
    gone: str = ""  # what removed its files: keep
    thinned: bool = False  # a full server dropped of its log and points, or all
    reused: str = ""  # the older trial that this result is from (OTHER_CODE); it never ran here
    seed: int | None = None  # seed of that result; None: derived from its number here
    group: ReplicateGroup | None = None  # set in a ranking of replicates
    standing: Standing | None = None  # set where all results of its sweep were read
    usage: Mapping[str, float] = field(default_factory=dict)  # of USAGE, by the last attempt
    pruning: Pruning | None = None  # set also if the trial ended before it was notified

    @property
    def trained(self) -> TrialId:
        """The trial that has the curves, the log and the files: itself, or the source of a copy."""
        sid, _, number = self.reused.removesuffix(OTHER_CODE).rpartition("/")
        is_trial = bool(sid) and number.isascii() and number.isdigit() and len(number) < 10
        return TrialId(sweep=sid, number=int(number)) if is_trial else self.id

    @property
    def run_name(self) -> str:
        """The name that the script gives its run; "" without one. Any text."""
        return self._run_text("name")

    @property
    def run_group(self) -> str:
        """The group that the script gives its run; "" without one. Any text."""
        return self._run_text("group")

    @property
    def run_tags(self) -> tuple[str, ...]:
        """The tags that the script gives its run. Any texts."""
        return self._run_texts("tags")

    @property
    def alerts(self) -> tuple[str, ...]:
        """The last alerts of the script (`wandb.alert`), each with its level. Any texts."""
        return self._run_texts("alerts")

    def axis_of(self, metric: str) -> str:
        """Return the metric against whose values the script draws another one; "": the step.

        It is `step_metric=` of `wandb.define_metric`. A rule for the name goes before the first one
        for a start of it.
        """
        rules = self.run_info.get("axes")
        if not isinstance(rules, dict):
            return ""
        starts = (one for one in rules if one.endswith("*") and metric.startswith(one[:-1]))
        axis = rules.get(metric if metric in rules else next(starts, metric))
        return axis if isinstance(axis, str) and axis != metric else ""

    def _run_texts(self, name: str) -> tuple[str, ...]:
        found = self.run_info.get(name)
        texts = found if isinstance(found, list) else []
        return tuple(text for text in texts if isinstance(text, str))

    def _run_text(self, name: str) -> str:
        found = self.run_info.get(name)
        return found if isinstance(found, str) else ""

    @property
    def duration_ms(self) -> int:
        """Milliseconds that the latest attempt ran, or has run so far."""
        running = self.state is TrialState.RUNNING
        return max(0, self.beat_ms - self.claimed_ms if running else self.ran_ms)

    @property
    def total_ms(self) -> int:
        """Milliseconds that all attempts together ran."""
        return self.before_ms + self.duration_ms


def flatten(params: Params) -> dict[str, Json]:
    """Return the values by dotted name, in order; an empty mapping is a value.

    Tables, effects, CSV and --sort name a nested value so: `optimizer.lr` for {optimizer: {lr: …}}.
    `hpq best` and --json keep it nested.
    """
    out: dict[str, Json] = {}
    for name, inner in params.items():
        if isinstance(inner, dict) and inner:
            out |= {f"{name}.{below}": leaf for below, leaf in flatten(inner).items()}
        else:
            out[name] = inner
    return out


def param_value(params: Params, name: str) -> Json:
    """Return the value of a name, dotted or top-level; None if missing."""
    return params[name] if name in params else flatten(params).get(name)
