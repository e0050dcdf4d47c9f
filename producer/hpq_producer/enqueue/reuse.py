"""Find finished trials of older sweeps whose results a new sweep can copy (`--reuse`)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import Launch, Metric, ObjectiveValue, SweepView, is_same_metric
from hpq.domain.trial import OTHER_CODE, FailureKind, TrialState, TrialView
from hpq.search.replicates import replicated, seed_at, seed_of_result
from hpq.store.reader import StoreReader
from hpq_producer.enqueue.provenance import CodeLocation, code_location
from hpq_producer.sweepfile.spec import SweepSpec
from hpq_views.text.text import clean, trials_of

_CHUNK = 100  # sweeps read in one round trip


class Reuse(Enum):
    """The sweeps whose results are copied."""

    SAME_CODE = "same code"
    ANY_CODE = "any code"  # the same trainer or program in the same directory


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseCriteria:
    """The launch, code location, metric and seed that results must match.

    `any_seed`: results with another seed match, and keep their seed.
    """

    launch: Launch
    location: CodeLocation
    metric: Metric | None = None
    further: tuple[str, ...] = ()  # names of other metrics that a result needs
    seed: int = 0
    any_seed: bool = False


class OlderResult(NamedTuple):
    """A trial with a result in an older sweep, and its parameters."""

    params: ParameterSet
    trial: TrialView


OlderResults = Mapping[bytes, OlderResult]  # by parameters and seed: `ParameterSet.salted(seed)`


def older_results(reader: StoreReader, criteria: ReuseCriteria, scope: Reuse) -> OlderResults:
    """Return trials with a result by result key; the newest sweep's if several match.

    With `any_seed`, results of other seeds are also found under the key of the wanted seed.
    """
    found: dict[bytes, OlderResult] = {}
    other_seeds: dict[bytes, OlderResult] = {}
    for sweep in sweeps_of_same_code(reader, criteria, scope):
        fits = is_comparable(sweep, criteria.metric)
        if not fits or not (sweep.counts.finished or sweep.counts.failed):
            continue
        for trial in reader.trials.begun(sweep.id):
            result = _result(trial, sweep, criteria.metric)
            has_all = all(math.isfinite(trial.metrics.get(n, math.nan)) for n in criteria.further)
            if result is not None and has_all:
                seed = seed_of_result(sweep, trial)
                source = trial.reused or str(trial.id)
                is_other = not sweep.launch.has_code_of(criteria.launch)
                if is_other and not source.endswith(OTHER_CODE):
                    source += OTHER_CODE
                result = replace(result, seed=seed, reused=source)
                older = OlderResult(ParameterSet(trial.params), result)
                found.setdefault(older.params.salted(seed), older)
                if criteria.any_seed:
                    own_seed = seed_at(criteria.seed, 0, trial.params)
                    other_seeds.setdefault(older.params.salted(own_seed), older)
    return other_seeds | found


def result_key(params: ParameterSet, replicate: int, spec: SweepSpec) -> bytes:
    """Return the key of interchangeable results: parameters and seed."""
    return params.salted(seed_at(spec.keys.seed, replicate, params))


def result_keys(params: ParameterSet, spec: SweepSpec) -> list[bytes]:
    """Return the result key of each replicate."""
    every = replicated(params, spec.keys.replicates)
    return [result_key(again, i, spec) for i, again in enumerate(every)]


def _result(trial: TrialView, sweep: SweepView, metric: Metric | None) -> TrialView | None:
    """Return a trial with its value of a metric; None if it did not finish or has no value.

    None, too, if it began at a checkpoint of another trial: its parameters alone do not repeat it.
    """
    if trial.start is not None:
        return None
    is_nameless = trial.failure is not None and trial.failure.kind is FailureKind.UNREPORTED
    if trial.state is not TrialState.FINISHED and not is_nameless:
        return None
    if is_same_metric(sweep.metric, metric):
        return (
            trial if not is_nameless and (metric is None or trial.objective is not None) else None
        )
    value = trial.metrics.get(metric.name, math.nan) if metric else math.nan
    return replace(trial, objective=value) if math.isfinite(value) else None


def reusable_sets(older: OlderResults, spec: SweepSpec) -> Iterator[ParameterSet]:
    """Yield parameters with older results in a file's space, once each; all replicates need one."""
    taken = {one for point in spec.points for one in result_keys(point, spec)}
    for first, (params, _) in older.items():
        every = result_keys(params, spec)
        is_whole = every[0] == first and all(other in older for other in every)
        if spec.space is None or not is_whole or not taken.isdisjoint(every):
            continue
        if spec.space.contains(params, is_grid=spec.method == "grid"):
            taken.update(every)
            yield params


def sweeps_of_same_code(
    reader: StoreReader, criteria: ReuseCriteria, scope: Reuse
) -> Iterator[SweepView]:
    """Yield readable sweeps of the same code, newest first; it may be in any directory."""
    ids, program = reader.sweeps.ids(), _program_name(criteria.launch)
    for start in range(0, len(ids), _CHUNK):
        for sweep in reader.sweeps.get_each(ids[start : start + _CHUNK]):
            if not isinstance(sweep, SweepView) or _program_name(sweep.launch) != program:
                continue
            if scope is Reuse.ANY_CODE:
                fits = criteria.location.is_same_as(code_location(sweep))
            else:
                fits = _has_same_code(sweep, criteria)
            if fits:
                yield sweep


def _has_same_code(sweep: SweepView, criteria: ReuseCriteria) -> bool:
    """Return True if the command and the files that decide results are the same.

    A command without a program may start other files, so it must be in the same directory.
    """
    was, now = sweep.launch, criteria.launch
    if was.command != now.command or not was.has_code_of(now):
        return False
    return bool(now.trainer or now.program) or criteria.location.is_same_as(code_location(sweep))


def _program_name(launch: Launch) -> tuple[object, ...]:
    """Return the trainer or program, or else the words of the command."""
    if launch.trainer or launch.program:
        return (launch.trainer, launch.program)
    return launch.command


def is_comparable(sweep: SweepView, metric: Metric | None) -> bool:
    """Return True if a sweep's results are valid for a metric.

    The last value of every reported metric is stored, so another metric or goal needs no training,
    unless trials were pruned by the old metric.
    """
    if is_same_metric(sweep.metric, metric):
        return True
    return metric is not None and metric.take is ObjectiveValue.LAST and not sweep.counts.pruned


_SHOWN = 5  # sweeps


def describe_reuse(
    reader: StoreReader, taken: Iterable[TrialView], launch: Launch, owner: str
) -> tuple[str, ...]:
    """Return a line for each source sweep: number of results, owner, code directory.

    `launch` is that of the new sweep: a line says if only files that it does not reach differ.
    """
    count = Counter(trial.id.sweep for trial in taken)
    if not count:
        return (
            "0 results copied: --reuse copies finished trials of the same code with the same"
            " parameters and seed, and a value of this metric; with --any-code also those of"
            " earlier versions of the code",
        )
    lines = []
    for sweep in reader.sweeps.get_many(list(count)[:_SHOWN]):
        whose = "" if sweep.owner == owner else f"{clean(sweep.owner)}'s "
        what = clean(sweep.launch.what)
        where = f"{clean(sweep.launch.code_dir)}/{what}" if sweep.launch.code_dir else what
        taken_of = trials_of(count[sweep.id], "result")
        differs = sweep.launch.code != launch.code and sweep.launch.has_code_of(launch)
        note = "; files that the program does not import differ" if differs else ""
        lines.append(f"{taken_of} copied from {whose}{sweep.id}, {where}{note}")
    if len(count) > _SHOWN:
        lines.append(f"… and {trials_of(len(count) - _SHOWN, 'more sweep')}")
    return tuple(lines)
