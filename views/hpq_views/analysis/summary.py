"""Summarize a sweep: the effect of parameter values, failures, time saved. Pure."""

from __future__ import annotations

import json
import math
import random
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from hpq.domain.sweep import SweepView
from hpq.domain.trial import OTHER_CODE, FailureKind, Json, TrialState, TrialView, flatten
from hpq.notice import plural
from hpq.search.replicates import first_of_set
from hpq_views.analysis.importance import Importance, importance_of, mean_of
from hpq_views.analysis.space import are_numbers
from hpq_views.text.text import clean, number, trials_of, value

MIN_TRIALS_FOR_EFFECTS = 4  # finished trials, or settings of replicates
_MAX_VALUES = 8  # per parameter; more numbers are grouped into quarters
_QUARTERS = 4
_MOST_RECORDS = 100  # of provenance
_MOST_SETS = 10_000  # results whose parameters are kept, drawn at random of more
_MOST_FAILED = 1_000  # failed trials of a kind whose parameters are kept
_CHANCE = 0.05  # of so common a value if failures had no cause among the parameters
# Parameters, result, whether the trial finished, the first trial of its setting.
_Set = tuple[dict[str, Json], float, bool, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One value of a parameter, or a range of values, and the results of its trials or settings."""

    label: str
    count: int
    median: float
    mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The objective for each value of a parameter."""

    param: str
    levels: tuple[Level, ...]

    @property
    def size(self) -> float:
        """The difference between the best and the worst median, which one outlier cannot move."""
        medians = [level.median for level in self.levels]
        return max(medians) - min(medians)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSaved:
    """Trials pruned before the usual last step, and the estimated time that this saved.

    `usual_ms` is the median of the finished trials (None: none has finished), `ran_ms` the total
    of all finished and stopped ones.
    """

    stopped: int
    finished: int
    ran_ms: float
    usual_ms: float | None
    ms: float


@dataclass(slots=True, kw_only=True)
class FailureGroup:
    """Trials that failed with the same kind of error; of a program's errors, with the same one.

    `common` says which parameters they share, as `all 6 have boosting=rf`.
    """

    kind: str
    example: str
    message: str
    count: int = 0
    common: Sequence[str] = ()
    _sets: list[Mapping[str, Json]] = field(default_factory=list)

    def add(self, params: Mapping[str, Json]) -> None:
        """Count a trial with these parameters."""
        self.count += 1
        if len(self._sets) < _MOST_FAILED:
            self._sets.append(params)

    def compare(self, names: Sequence[str], others: Sequence[Mapping[str, Json]]) -> None:
        """Set what the trials have in common, but not with others, which have results."""
        words = (_common(name, self._sets, others, len(names)) for name in names)
        self.common = [text for text in words if text]


@dataclass(slots=True)
class SweepSummary:
    """Accumulates trials one by one, and keeps only the values that a summary needs.

    Of several metrics it is about the one that is the sweep's `metric` (`summaries_of`).
    """

    sweep: SweepView
    cache: Path | None = None  # the directory that keeps the importance
    may_lag: bool = False  # the importance of a running sweep may lack its newest results
    objectives: array[float] = field(default_factory=lambda: array("d"))
    results: array[float] = field(default_factory=lambda: array("d"))  # of finished trials
    runs: dict[int, list[float]] = field(default_factory=dict)  # of replicates, by first trial
    reused: int = 0  # trials whose results were copied from older sweeps
    of_other_code: int = 0  # of these
    total_ms: int = 0  # of all attempts
    before_ms: int = 0  # of attempts that were restarted
    ran_on: set[str] = field(default_factory=set)  # digests of provenance records
    states: Counter[TrialState] = field(default_factory=Counter)
    diverged: int = 0
    _sets: list[_Set] = field(default_factory=list)
    _rng: random.Random = field(default_factory=lambda: random.Random(0))
    _failed: dict[tuple[str, str], FailureGroup] = field(default_factory=dict)
    _took: dict[TrialState, array[int]] = field(default_factory=dict)  # duration, step, duration, …

    def add(self, trials: Iterable[TrialView]) -> SweepSummary:
        """Add trials."""
        for trial in trials:
            self.states[trial.state] += 1
            failure = trial.failure
            if trial.state is TrialState.FAILED and failure and not failure.kind.counts_as_failure:
                self.diverged += 1
            self.reused += bool(trial.reused)
            if trial.provenance and not trial.reused and len(self.ran_on) < _MOST_RECORDS:
                self.ran_on.add(trial.provenance)
            self.of_other_code += trial.reused.endswith(OTHER_CODE)
            if trial.state.is_complete and not trial.reused:
                self._took.setdefault(trial.state, array("q")).extend(
                    (trial.duration_ms, trial.step)
                )
            self.total_ms += trial.total_ms
            self.before_ms += trial.before_ms
            objective = self._objective(trial)
            if objective is not None and trial.state.is_complete:
                self._add_result(trial, objective)
            if trial.failure is not None and (
                trial.state is TrialState.FAILED or trial.failure.kind is FailureKind.UNREPORTED
            ):
                kind, message = trial.failure.kind.value, clean(trial.failure.message)
                new = FailureGroup(kind=kind, example=str(trial.id), message=message)
                is_own = trial.failure.kind is FailureKind.USER_ERROR
                key = kind, trial.failure.fingerprint if is_own else ""
                self._failed.setdefault(key, new).add(self._varied(trial))
        return self

    def of_moment(self) -> SweepView:
        """Return the sweep with the counts of the trials that were added, which began.

        The sweep was read before them: some of its queued trials may have ended meanwhile.
        """
        counts, seen = self.sweep.counts, self.states
        rest = max(0, counts.total - seen.total())  # never claimed
        cancelled = min(rest, max(0, counts.cancelled - seen[TrialState.CANCELLED]))
        now = replace(
            counts,
            queued=seen[TrialState.QUEUED] + rest - cancelled,
            running=seen[TrialState.RUNNING],
            finished=seen[TrialState.FINISHED],
            failed=seen[TrialState.FAILED],
            pruned=seen[TrialState.PRUNED],
            cancelled=seen[TrialState.CANCELLED] + cancelled,
            diverged=self.diverged,
        )
        return replace(self.sweep, counts=now)

    @property
    def metric_name(self) -> str:
        """The name of the metric; "" without one."""
        return self.sweep.metric.name if self.sweep.metric else ""

    def _objective(self, trial: TrialView) -> float | None:
        metric = self.sweep.metric
        if metric is None or not self.sweep.objectives:
            return trial.objective
        found = trial.metrics.get(metric.name)
        return found if found is not None and math.isfinite(found) else None

    def _add_result(self, trial: TrialView, objective: float) -> None:
        is_finished = trial.state is TrialState.FINISHED
        self.objectives.append(objective)
        if is_finished:  # for means and medians: a pruned one is of a step
            self.results.append(objective)
        first = first_of_set(self.sweep, trial.id.number)
        if self.sweep.replicates > 1:
            self.runs.setdefault(first, []).append(objective)
        count = len(self.objectives)
        at = count - 1 if count <= _MOST_SETS else self._rng.randrange(count)
        if at < _MOST_SETS:
            self._sets[at : at + 1] = [(self._varied(trial), objective, is_finished, first)]

    def _varied(self, trial: TrialView) -> dict[str, Json]:
        """Return a trial's values of the parameters that vary; a condition may omit some."""
        leaves = {**flatten(trial.params), **trial.params}
        return {n: leaves[n] for n in self.sweep.varying if n in leaves}

    @property
    def pruned(self) -> str:
        """`; 10 pruned not counted`: the ranked trials that `results` leaves out."""
        rest = len(self.objectives) - len(self.results)
        return f"; {rest:,} pruned not counted" if rest else ""

    @property
    def typical(self) -> Sequence[float]:
        """The results of finished trials; of replicates, the mean of each setting, as ranked."""
        return [mean_of(some) for some in self.runs.values()] or self.results

    @property
    def typical_of(self) -> str:
        """`28 finished; 2 pruned not counted`, or `10 settings (30 runs)`: what `typical` holds."""
        if self.runs:
            runs = trials_of(len(self.objectives), "run")
            return f"{trials_of(len(self.runs), 'setting')} ({runs})"
        return f"{len(self.results):,} finished{self.pruned}"

    @property
    def counted(self) -> str:
        """`of 90 finished trials; 10 pruned not counted`, for effects; "" if all trials count.

        Of replicates, as `typical_of`.
        """
        if self.runs:
            return f"of {self.typical_of}"
        count = sum(is_finished for _, _, is_finished, _ in self._sets)
        drawn = f"{count:,} drawn of " if count < len(self.results) else ""
        finished = plural(len(self.results), "finished trial")
        all_ = f"of {drawn}{len(self.results):,} {finished}{self.pruned}"
        return all_ if drawn or self.pruned else ""

    @property
    def saved(self) -> TimeSaved | None:
        """The time saved by early termination; None if it stopped no trial."""
        none: array[int] = array("q")
        pruned = self._took.get(TrialState.PRUNED, none)
        done = self._took.get(TrialState.FINISHED, none)
        finished, last = done[::2], median(done[1::2]) if done else math.inf
        # A trial that was pruned at the usual last step had nothing left to save.
        stopped = [
            took for took, step in zip(pruned[::2], pruned[1::2], strict=True) if step < last
        ]
        if not stopped:
            return None
        usual = median(finished) if finished else None
        return TimeSaved(
            stopped=len(stopped),
            finished=len(finished),
            ran_ms=sum(pruned[::2]) + sum(finished),
            usual_ms=usual,
            ms=sum(max(0.0, usual - took) for took in stopped) if usual else 0.0,
        )

    @property
    def failures(self) -> list[FailureGroup]:
        """The failures, the most frequent first, with what the trials of each have in common."""
        others = [some for some, *_ in self._sets]
        for group in self._failed.values():
            group.compare(self.sweep.varying, others)
        return sorted(self._failed.values(), key=lambda f: -f.count)

    @property
    def importance(self) -> Importance:
        """Which parameter matters."""
        sets, objectives = [s for s, *_ in self._sets], [o for _, o, *_ in self._sets]
        found = importance_of(self.sweep, sets, objectives, self.cache, may_lag=self.may_lag)
        is_drawn = len(sets) < len(self.objectives)
        return replace(found, of=len(self.objectives)) if is_drawn else found

    @property
    def effects(self) -> list[Effect]:
        """The effect of each varying parameter on finished trials, the largest first.

        Replicates count once, with their mean. None of too few trials.
        """
        if self.runs:
            settings = {first: some for some, *_, first in self._sets}
            rows = [(some, mean_of(self.runs[first])) for first, some in settings.items()]
        else:
            rows = [(some, result) for some, result, is_finished, _ in self._sets if is_finished]
        if len(rows) < MIN_TRIALS_FOR_EFFECTS:
            return []
        found = [
            effect(name, [some[name] for some, _ in rows if name in some],
                   [result for some, result in rows if name in some])
            for name in self.sweep.varying
        ]  # fmt: skip
        return sorted((e for e in found if e), key=lambda e: -e.size)


def summaries_of(
    sweep: SweepView, cache: Path | None = None, *, may_lag: bool = False
) -> list[SweepSummary]:
    """Return a summary without trials for each metric of a sweep, or for its objective."""
    views = [replace(sweep, metric=metric) for metric in sweep.objectives] or [sweep]
    return [SweepSummary(view, cache, may_lag) for view in views]


def effect(param: str, values: Sequence[Json], objectives: Sequence[float]) -> Effect | None:
    """Return the objective for each value of a parameter; quarters of many numbers.

    None if it did not vary among these trials, or has too many values that are not numbers.
    """
    groups: dict[str, list[float]] = {}
    for v, objective in zip(values, objectives, strict=True):
        groups.setdefault(json.dumps(v, sort_keys=True), []).append(objective)
    # A single trial is noise: numbers that rarely repeat are grouped into quarters.
    if len(groups) > min(_MAX_VALUES, max(_QUARTERS, len(objectives) // 2)):
        return _quarters(param, values, objectives)
    if len(groups) < 2:
        return None
    pairs = sorted(((json.loads(k), v) for k, v in groups.items()), key=lambda p: _order(p[0]))
    levels = [_level(value(v), some) for v, some in pairs]
    return Effect(param=clean(param), levels=tuple(levels))


def _quarters(param: str, values: Sequence[Json], objectives: Sequence[float]) -> Effect | None:
    numbers = [
        (float(v), o)
        for v, o in zip(values, objectives, strict=True)
        if isinstance(v, int | float) and not isinstance(v, bool)
    ]
    if len(numbers) < len(values):
        return None
    numbers.sort()
    levels = []
    begin = 0
    least = max(2, len(numbers) // (2 * _QUARTERS))
    for end in range(1, len(numbers) + 1):
        is_last = end == len(numbers)
        if not is_last and (
            number(numbers[end][0]) == number(numbers[end - 1][0])  # equal labels share a bar
            or end - begin < least
            or end * _QUARTERS // len(numbers) == begin * _QUARTERS // len(numbers)
        ):
            continue
        low, high = number(numbers[begin][0]), number(numbers[end - 1][0])
        label = low if low == high else f"{low} to {high}"
        levels.append(_level(label, [o for _, o in numbers[begin:end]]))
        begin = end
    return Effect(param=clean(param), levels=tuple(levels)) if len(levels) > 1 else None


def _level(label: str, objectives: Sequence[float]) -> Level:
    mean = sum(o / len(objectives) for o in objectives)
    return Level(label=label, count=len(objectives), median=median(objectives), mean=mean)


def _order(v: Any) -> tuple[int, float, str]:
    if isinstance(v, int | float):
        return (0, float(v), "")
    return (1, 0.0, str(v))


def _common(
    name: str, failed: Sequence[Mapping[str, Json]], others: Sequence[Mapping[str, Json]], of: int
) -> str:
    """Return what failed trials share of one of `of` parameters; "" if it may be by chance."""
    if len(failed) < 2 or not all(name in params for params in failed):
        return ""
    values = [params[name] for params in failed]
    rest = [params.get(name) for params in others]
    tests: list[tuple[str, Callable[[Json], bool]]] = []
    first = json.dumps(values[0], sort_keys=True)
    if all(json.dumps(one, sort_keys=True) == first for one in values):
        tests = [(f"={value(values[0])}", lambda one: json.dumps(one, sort_keys=True) == first)]
    elif are_numbers(values):
        numbers = [float(one) for one in values if isinstance(one, int | float)]
        low, high = min(numbers), max(numbers)
        tests = [
            (f" >= {value(low)}", lambda one: isinstance(one, int | float) and one >= low),
            (f" <= {value(high)}", lambda one: isinstance(one, int | float) and one <= high),
        ]
    for text, has in tests:
        alike = sum(map(has, rest))
        share = (alike + len(failed)) / (len(rest) + len(failed))
        if share ** len(failed) * of < _CHANCE:
            compared = f", as {alike} of {len(rest):,} trials with a result" if alike else ""
            return f"all {len(failed):,} have {clean(name)}{text}{compared}"
    return ""
