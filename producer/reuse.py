"""Finished trials of older sweeps whose results a new sweep begins with. Reads only."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from hpq.identity import identity
from hpq.search.replicates import replicated, seed_at, seed_of_result
from hpq.sweep import Launch, Metric, Sweep, Take
from hpq.trial import FailureKind, Json, Params, Trial, TrialState
from hpq.view import View
from producer.inside import is_inside
from producer.place import Place, place_of_sweep
from producer.sweepfile.spec import SweepSpec

_SOME = 100  # sweeps asked about in one round trip


class Reuse(Enum):
    """Of which sweeps."""

    SAME_CODE = "same code"
    ANY_CODE = "any code"  # of the same trainer or program in the same place


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a sweep runs, where it lies, what it measures, and what its trials are seeded with.

    `any_seed`: results of another seed pass, and keep theirs.
    """

    launch: Launch
    place: Place
    metric: Metric | None = None
    seed: int = 0
    any_seed: bool = False


def older_results(view: View, wanted: Wanted, which: Reuse) -> dict[bytes, Trial]:
    """Trials with a result by the mark of their set; the newest sweep's where several fit.

    Where another seed passes, such a one is found under the mark of the wanted seed, too.
    """
    found: dict[bytes, Trial] = {}
    others: dict[bytes, Trial] = {}
    for sweep in same_code(view, wanted, which):
        fits = compares(sweep, wanted.metric)
        if not fits or not (sweep.counts.finished or sweep.counts.failed):
            continue
        for trial in view.all_trials(sweep.id):
            result = _result(trial, sweep, wanted.metric)
            if result is not None:
                seed = seed_of_result(sweep, trial)
                result = replace(result, seed=seed)
                found.setdefault(mark_of(trial.params, seed), result)
                if wanted.any_seed:
                    here = seed_at(wanted.seed, 0, trial.params)
                    others.setdefault(mark_of(trial.params, here), result)
    return others | found


def mark_of(params: Params, seed: int) -> bytes:
    """What results have in common that stand for each other: a set, and what it was seeded with."""
    return identity(params, seed)


def marks_of(params: dict[str, Json], spec: SweepSpec) -> list[bytes]:
    """The mark of each replicate of a file's set."""
    every = replicated(params, spec.replicates)
    return [mark_of(again, seed_at(spec.seed, i, again)) for i, again in enumerate(every)]


def _result(trial: Trial, sweep: Sweep, metric: Metric | None) -> Trial | None:
    """A trial with its value of a metric; None where it did not come to its end, or has none."""
    is_nameless = trial.failure is not None and trial.failure.kind is FailureKind.UNREPORTED
    if trial.state is not TrialState.FINISHED and not is_nameless:
        return None
    if means_the_same(sweep.metric, metric):
        return (
            trial if not is_nameless and (metric is None or trial.objective is not None) else None
        )
    value = trial.metrics.get(metric.name, math.nan) if metric else math.nan
    return replace(trial, objective=value) if math.isfinite(value) else None


def sets_inside(older: Mapping[bytes, Trial], spec: SweepSpec) -> Iterator[dict[str, Json]]:
    """Sets with older results that lie in a file's space, each once; where a file has replicates,
    those of which every replicate has a result."""
    taken = {one for point in spec.points for one in marks_of(point, spec)}
    for first, trial in older.items():
        params = dict(trial.params)
        every = marks_of(params, spec)
        is_whole = every[0] == first and all(other in older for other in every)
        if spec.space is None or not is_whole or not taken.isdisjoint(every):
            continue
        if is_inside(params, spec.space):
            taken.update(every)
            yield params


def same_code(view: View, wanted: Wanted, which: Reuse) -> Iterator[Sweep]:
    """Sweeps of the same code, newest first; what is the same to the byte may lie anywhere."""
    for sweep in same_program(view, wanted.launch):
        if which is Reuse.ANY_CODE:
            fits = wanted.place.is_that_of(place_of_sweep(sweep))
        else:
            fits = is_same_code(sweep, wanted)
        if fits:
            yield sweep


def is_same_code(sweep: Sweep, wanted: Wanted) -> bool:
    """True where the command and all files are the same.

    The files of a command without a program may say nothing of what it starts: only in its place.
    """
    was, now = sweep.launch, wanted.launch
    if (was.command, was.code) != (now.command, now.code):
        return False
    return bool(now.trainer or now.program) or wanted.place.is_that_of(place_of_sweep(sweep))


def same_program(view: View, launch: Launch) -> Iterator[Sweep]:
    """Sweeps of a trainer or program of this name, newest first; unreadable ones are left out."""
    ids = view.sweep_ids()
    for start in range(0, len(ids), _SOME):
        for sweep in view.sweeps_or_why(ids[start : start + _SOME]):
            if isinstance(sweep, Sweep) and _named(sweep.launch) == _named(launch):
                yield sweep


def _named(launch: Launch) -> tuple[object, ...]:
    """What is started; the words of a command are its name where there is no other."""
    if launch.trainer or launch.program:
        return (launch.trainer, launch.program)
    return launch.command


def compares(sweep: Sweep, metric: Metric | None) -> bool:
    """True where a sweep's results are results for a metric.

    The last value of everything that a trial reported is kept, so a metric that is another, or has
    another goal, asks for no training; where trials were pruned, the old one chose those.
    """
    if means_the_same(sweep.metric, metric):
        return True
    return metric is not None and metric.take is Take.LAST and not sweep.counts.pruned


def means_the_same(one: Metric | None, other: Metric | None) -> bool:
    """True where results of both compare."""
    return _means(one) == _means(other)


def _means(metric: Metric | None) -> tuple[object, ...]:
    return (metric.name, metric.goal, metric.take) if metric else ()
