"""Describe a trial for people: its state, result, time and failure in words. Pure.

The terminal, the page and Python select from a TrialRow and lay it out; `records.py` has the data
of `-o json`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from hpq.domain.status import SweepStatus
from hpq.domain.sweep import SweepView
from hpq.domain.trial import OTHER_CODE, Failure, Params, TrialState, TrialView, flatten
from hpq.domain.usage import short
from hpq.search.replicates import replicate_of, seed_of, seed_of_result
from hpq_views.analysis.early_termination import describe_early_end
from hpq_views.analysis.eta import trial_left_ms
from hpq_views.analysis.pareto_front import violated
from hpq_views.text.style import Span, Style
from hpq_views.text.text import clean, deviation, duration, failure_words, measure, value

_STATE_STYLE = {
    TrialState.QUEUED: Style.DIM,
    TrialState.RUNNING: Style.GREEN,
    TrialState.FINISHED: Style.PLAIN,
    TrialState.FAILED: Style.RED,
    TrialState.PRUNED: Style.CYAN,
    TrialState.CANCELLED: Style.YELLOW,
}


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """A trial in words. Every text is clean, and "" if the trial has none.

    `at` is the moment that a live view shows: running trials are described as of then.
    """

    trial: TrialView
    sweep: SweepView
    at: SweepStatus | None = None

    @property
    def state(self) -> Span:
        """The word for the state."""
        return Span(self.trial.state.value, _STATE_STYLE[self.trial.state])

    @property
    def run(self) -> dict[str, str]:
        """The name, group and tags that a script gives its run; without those it does not set."""
        trial = self.trial
        tags = ", ".join(trial.run_tags)
        found = {"name": trial.run_name, "group": trial.run_group, "tags": tags}
        return {name: clean(text) for name, text in found.items() if text}

    @property
    def alerts(self) -> str:
        """The last alerts of the script."""
        return clean("; ".join(self.trial.alerts))

    @property
    def progress(self) -> Span:
        """What a running trial does or how long it takes, how a trial failed, else the state."""
        if self.at and (silence := self.at.silence_ms(self.trial)):
            return Span(f"silent {duration(silence)}", Style.YELLOW)
        return Span(self._progress_words(), _STATE_STYLE[self.trial.state])

    def _progress_words(self) -> str:
        trial, at = self.trial, self.at
        if trial.state is TrialState.FAILED and trial.failure:
            return self.failed
        if trial.state is not TrialState.RUNNING:
            return self.reused or ("infeasible" if self.unmet else trial.state.value)
        if not trial.step and trial.phase:
            return self.phase
        if at is None or at.is_stale:
            return trial.state.value
        mean = at.durations.mean_ms if at.durations.ended else None
        left = trial_left_ms(self.taken_ms, trial.step, _last_step(at), mean)
        return trial.state.value if left is None else f"{duration(left)} left"

    @property
    def phase(self) -> str:
        """What the trial does before its first step."""
        return clean(self.trial.phase)

    @property
    def newest_value(self) -> float | None:
        """The objective; while the trial runs, the last value of the sweep's metric.

        A queued trial has none: what it reported is of an earlier attempt. If the trial stands for
        its replicates, it is their mean, whichever of them have begun.
        """
        trial, metric = self.trial, self.sweep.metric
        if trial.state is TrialState.QUEUED and trial.group is None:
            return None
        if trial.objective is not None or metric is None:
            return trial.objective
        return trial.metrics.get(metric.name)

    @property
    def objective(self) -> str:
        """`newest_value`; with replicates `0.9421 ± 0.0013 (3 of 3)`."""
        if (newest := self.newest_value) is None:
            return ""
        if (group := self.trial.group) is None:
            return measure(newest)
        done = len(group.objectives)
        sign = f" ± {deviation(group.spread, newest)}" if done > 1 else ""
        return f"{measure(newest)}{sign} ({done} of {group.of})"

    @property
    def rank(self) -> str:
        """The rank of the trial's setting, if its results were read with all others."""
        standing = self.trial.standing
        return f"{standing.rank:,}" if standing and standing.rank else ""

    @property
    def results(self) -> list[str]:
        """The objective, or the last value of each of several metrics."""
        return [self.metric(one.name) for one in self.sweep.objectives] or [self.objective]

    @cached_property
    def params(self) -> Params:
        """The parameters by name, nested ones also by dotted name."""
        return {**flatten(self.trial.params), **self.trial.params}

    def param(self, name: str) -> str:
        """Return a parameter."""
        # Most names are top-level, and flattening all parameters costs more than the rest of a row.
        params = self.trial.params if name in self.trial.params else self.params
        return value(params[name]) if name in params else ""

    def metric(self, name: str) -> str:
        """Return the last value of a metric."""
        return measure(self.trial.metrics[name]) if name in self.trial.metrics else ""

    def pairs(self, names: Iterable[str]) -> str:
        """Return e.g. `lr=0.1 opt.name=adam`: the named parameters that the trial has."""
        return " ".join(f"{clean(n)}={self.param(n)}" for n in names if n in self.params)

    @property
    def seed(self) -> str:
        """The seed of the result."""
        return str(seed_of_result(self.sweep, self.trial))

    @property
    def replicate(self) -> str:
        """`2 of 3, seed 5`; "" without replicates."""
        of = self.sweep.replicates
        place = replicate_of(self.sweep, self.trial.id.number)
        return f"{place} of {of}, seed {self.seed}" if of > 1 else ""

    @property
    def step(self) -> str:
        """The last step that the trial reported."""
        return str(self.trial.step or "")

    @property
    def taken_ms(self) -> int:
        """Milliseconds that the latest attempt ran, or has run so far."""
        if self.at and self.trial.state is TrialState.RUNNING:
            return max(0, self.at.at_ms - self.trial.claimed_ms)
        return self.trial.duration_ms

    @property
    def time(self) -> str:
        """How long the latest attempt ran, or has run so far."""
        if taken := self.taken_ms:
            return duration(taken)
        return duration(0) if self.at and self.trial.state is TrialState.RUNNING else ""

    @property
    def total_time(self) -> str:
        """`time`, and the total of several attempts."""
        if not self.trial.before_ms:
            return self.time
        last = f"{self.time} in attempt {self.trial.attempt}, " if self.time else ""
        return f"{last}{duration(self.trial.before_ms + self.taken_ms)} in all"

    @property
    def usage(self) -> dict[str, str]:
        """What the trial used of its machine: `21.4 (mean 18.2)` by name."""
        used, names = self.trial.usage, [n for n in self.trial.usage if not n.endswith(".mean")]
        means = {n: f" (mean {short(used[m])})" for n in names if (m := f"{n}.mean") in used}
        return {n: f"{short(used[n])}{means.get(n, '')}" for n in names}

    @property
    def worker(self) -> str:
        """The worker of the latest attempt and its host."""
        return clean(f"{self.trial.worker} on {self.trial.host}") if self.trial.worker else ""

    @property
    def failure(self) -> Failure | None:
        """Why the trial failed; None if its result arrived after all."""
        return None if self.trial.state.is_complete else self.trial.failure

    @property
    def failed(self) -> str:
        """The kind of failure in words."""
        return failure_words(self.failure.kind) if self.failure else ""

    @property
    def error(self) -> str:
        """The message of the failure."""
        return clean(self.failure.message) if self.failure else ""

    @property
    def early_end(self) -> str:
        """Why early termination stopped the trial, or stops it."""
        return describe_early_end(self.trial, self.sweep)

    @property
    def reused(self) -> str:
        """`reused` for a result copied from an older sweep, `other code` if other code had it."""
        reused = self.trial.reused
        return ("other code" if reused.endswith(OTHER_CODE) else "reused") if reused else ""

    @property
    def source(self) -> str:
        """The trial whose result was copied, with its seed if that differs."""
        trial = self.trial
        own = seed_of(self.sweep, trial.id.number, trial.params)
        is_another = trial.reused and trial.seed is not None and trial.seed != own
        return clean(f"{trial.reused}, seed {trial.seed}" if is_another else trial.reused)

    @property
    def why(self) -> str:
        """Where the trial begins; why it failed, is not ranked or was stopped early; its source."""
        failed = f"{self.failed}: {self.error}" if self.failure else ""
        unmet = f"infeasible: {self.unmet}" if self.unmet else ""
        where = "on the front" if self.trial.standing and self.trial.standing.is_front else ""
        source = f"of {self.source}" if self.trial.reused else ""
        begun = f"begins at {self.start}" if self.start else ""
        said = failed or unmet or self.early_end or where or source
        return "; ".join(filter(None, (begun, said))) or self.outside

    @property
    def start(self) -> str:
        """The trial at whose checkpoint this one begins, and the step: `#7, step 30`."""
        start = self.trial.start
        return f"#{start.trial}, step {start.checkpoint.step}" if start else ""

    @property
    def outside(self) -> str:
        """`outside the space` for an added trial that the sweep's space does not have."""
        return "outside the space" if self.trial.id.number in self.sweep.outside else ""

    @property
    def unmet(self) -> str:
        """The constraints that a result does not meet: `peak_memory_gb <= 24`."""
        found = violated(self.sweep, self.trial) if self.trial.state.is_complete else ()
        return clean(", ".join(map(str, found)))

    @property
    def files(self) -> str:
        """Why files of the trial are not in a store."""
        if self.trial.gone:
            return "deleted, by the sweep's `keep`"
        return unstored_words(self.trial)

    @property
    def checkpoint(self) -> str:
        """The step and place of the newest checkpoint."""
        kept = self.trial.checkpoint
        return clean(f"of step {kept.step}, in store {kept.store}: {kept.path}") if kept else ""


def unstored_words(trial: TrialView) -> str:
    """Return where files of a trial wait for their store; "" if none do."""
    if trial.unstored is None:
        return ""
    where = clean(f"{trial.unstored.folder} of {trial.host}")
    return f"not stored yet: they wait in {where} for a worker there that reaches the store"


def _last_step(status: SweepStatus) -> int | None:
    """Return the step at which all known trials ended; None if they differ."""
    ended = (*status.recent, *status.best)
    steps = {t.step for t in ended if t.state is TrialState.FINISHED}
    return steps.pop() if len(steps) == 1 else None
