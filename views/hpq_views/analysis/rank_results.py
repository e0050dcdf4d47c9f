"""Rank the results of a sweep once, for every view: rank, winner, front, feasible or not.

A setting is one set of parameters: a trial, or its replicates, which count once, by their mean. The
store keeps the same order (`RankingReader.numbers`), so a view that reads few trials prints the
same numbers. Charts of a page get the order, and rank nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from hpq.domain.sweep import Goal, SweepView
from hpq.domain.trial import ReplicateGroup, Standing, TrialId, TrialState, TrialView
from hpq.search.replicates import first_of_set, set_of
from hpq.store.reader import StoreReader
from hpq_views.analysis.pareto_front import Front, front_of
from hpq_views.text.text import trials_of


@dataclass(frozen=True, kw_only=True)
class Standings:
    """The settings of a sweep with a result, each by the number of its first trial, best first.

    `infeasible` settings have results, of which none meets the constraints. `groups` are the
    results of each setting, empty if only the order was read.
    """

    sweep: SweepView
    order: Sequence[int]  # feasible; () of several metrics
    infeasible: Sequence[int] = ()
    groups: Mapping[int, ReplicateGroup] = field(default_factory=dict)
    front: Front | None = None
    unreported: Sequence[str] = ()  # metrics of constraints that no finished trial reported

    @property
    def members(self) -> frozenset[int]:
        """The numbers of the trials on the front; none if the sweep has one metric."""
        return self.front.numbers if self.front else frozenset()

    @property
    def missing(self) -> Sequence[str]:
        """The metrics, also of constraints, that no finished trial reported."""
        return self.front.missing if self.front else self.unreported

    @cached_property
    def _ranks(self) -> Mapping[int, int]:
        return {first: rank for rank, first in enumerate(self.order, start=1)}

    def __str__(self) -> str:
        """Return `120 results`, or of replicates `3 settings (15 runs)`."""
        if self.sweep.replicates < 2:
            return trials_of(len(self.order), "result")
        runs = sum(len(self.groups[first].objectives) for first in self.order)
        return f"{trials_of(len(self.order), 'setting')} ({trials_of(runs, 'run')})"

    def of(self, number: int) -> Standing:
        """Return where the trial with this number stands."""
        first = first_of_set(self.sweep, number)
        return Standing(
            setting=set_of(self.sweep, number),
            rank=self._ranks.get(first, 0),
            of=len(self.order),
            is_front=None if self.front is None else number in self.members,
        )

    def placed(self, trial: TrialView) -> TrialView:
        """Return the trial with its standing."""
        return replace(trial, standing=self.of(trial.id.number))

    def best(self, trials: Mapping[int, TrialView], most: int) -> list[TrialView]:
        """Return the first trials of the best settings, as `RankingReader.best`.

        `trials` are those that were ranked, by number.
        """
        found = []
        for first in self.order[:most]:
            if (trial := trials.get(first)) is None:
                continue  # a page of very many trials does not hold all
            group = self.groups[first]
            result = replace(trial, objective=group.mean)  # as it was when the results were read
            found.append(self.placed(replace(result, group=group) if group.of > 1 else result))
        return found


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The feasible settings in the order in which they ended, and the best value so far."""

    order: Sequence[int]  # first trials
    best: Sequence[tuple[int, float]]  # settings that had ended, and the best of them: when it
    # improved, and at the last one


def progress_of(standings: Standings, trials: Iterable[TrialView]) -> Progress:
    """Return how the best value of ranked settings improved; a setting ends with its last trial."""
    groups, sign = standings.groups, _sign_of(standings.sweep)
    ended = dict[int, int]()
    ranked = set(standings.order)
    for trial in trials:
        first = first_of_set(standings.sweep, trial.id.number)
        if first in ranked and trial.state.is_complete:
            ended[first] = max(trial.ended_ms, ended.get(first, 0))
    order = sorted(ended, key=lambda first: (ended[first], first))
    best = list[tuple[int, float]]()
    for place, first in enumerate(order, start=1):
        mean = groups[first].mean
        if not best or sign * mean < sign * best[-1][1]:
            best.append((place, mean))
    if best and best[-1][0] < len(order):
        best.append((len(order), best[-1][1]))
    return Progress(order=order, best=best)


def _sign_of(sweep: SweepView) -> int:
    return -1 if sweep.metric and sweep.metric.goal is Goal.MAXIMIZE else 1


def result_of(trial: TrialView) -> float | None:
    """Return the result that ranks a trial; None if it has none, or has not ended."""
    if not trial.state.is_complete or trial.objective is None or math.isnan(trial.objective):
        return None
    return trial.objective


def feasible_result(sweep: SweepView, trial: TrialView) -> float | None:
    """Return the result that ranks a trial; None also if it does not meet the constraints."""
    return result_of(trial) if sweep.is_feasible(trial.metrics) else None


@dataclass(frozen=True, kw_only=True)
class Results:
    """Results by the number of their trial; those that do not meet the constraints apart."""

    sweep: SweepView
    feasible: dict[int, float] = field(default_factory=dict)
    infeasible: dict[int, float] = field(default_factory=dict)

    def add(self, trial: TrialView, result: float | None) -> None:
        """Add a result of a trial; None: it has none."""
        if result is None:
            return
        found = self.feasible if self.sweep.is_feasible(trial.metrics) else self.infeasible
        found[trial.id.number] = result

    def ranked(self) -> Standings:
        """Rank the results; settings with equal means by number."""
        groups = _grouped(self.sweep, self.feasible)
        others = _grouped(self.sweep, self.infeasible)
        rest = {first: group for first, group in others.items() if first not in groups}
        sign = _sign_of(self.sweep)
        order = sorted(groups, key=lambda first: (sign * groups[first].mean, first))
        return Standings(sweep=self.sweep, order=order, infeasible=[*rest], groups=groups | rest)


def standings_of(
    sweep: SweepView, trials: Iterable[TrialView], others: Mapping[int, float] | None = None
) -> Standings:
    """Rank trials; `others` are feasible results of trials that are not among them."""
    if sweep.objectives:
        return Standings(sweep=sweep, order=(), front=front_of(sweep, trials))
    results = Results(sweep=sweep, feasible=dict(others or {}))
    reported = None
    for trial in trials:
        if trial.state is TrialState.FINISHED and sweep.constraints:
            reported = {*(reported or ()), *trial.metrics}
        results.feasible.pop(trial.id.number, None)
        results.add(trial, result_of(trial))
    found = results.ranked()
    if reported is None:
        return found
    names = (name for name in sweep.further_metrics if name not in reported)
    return replace(found, unreported=tuple(names))


def _grouped(sweep: SweepView, results: Mapping[int, float]) -> dict[int, ReplicateGroup]:
    found = dict[int, list[float]]()
    for number in sorted(results):
        found.setdefault(first_of_set(sweep, number), []).append(results[number])
    return {
        first: ReplicateGroup(first=first, of=sweep.replicates, objectives=tuple(some))
        for first, some in found.items()
    }


def read_standings(reader: StoreReader, sweep: SweepView) -> Standings:
    """Read where every trial stands; of several metrics, from all results."""
    if sweep.objectives:
        return standings_of(sweep, reader.trials.begun(sweep.id))
    return Standings(sweep=sweep, order=reader.ranking.numbers(sweep))


def merge_ranked(
    sweeps: Sequence[SweepView], ranked: Iterable[Sequence[TrialView]]
) -> list[TrialView]:
    """Return the ranked trials of comparable sweeps in one ranking, each result once."""
    sign = _sign_of(sweeps[0])
    return sorted(once(chain(*ranked)), key=lambda trial: sign * (trial.objective or 0))


def once(trials: Iterable[TrialView]) -> list[TrialView]:
    """Leave out copies of a result that another trial has, most of all the one that trained it."""
    found = dict[tuple[TrialId, float | None], TrialView]()
    for trial in trials:
        key = trial.trained, trial.objective
        if key not in found or not trial.reused:
            found[key] = trial
    return list(found.values())


def read_standing(reader: StoreReader, sweep: SweepView, number: int) -> Standing:
    """Read where one trial stands: as `read_standings`, but of one metric in a few reads."""
    if sweep.objectives:
        return read_standings(reader, sweep).of(number)
    return reader.ranking.standing(sweep, number)
