"""Find finished trials of older sweeps whose results a new sweep begins with (`--reuse`).

`describe_reuse` says which sweeps they are of, or why there are none.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from hpq.domain.identity import identity
from hpq.domain.sweep import Launch, Metric, ObjectiveValue, Sweep
from hpq.domain.trial import FailureKind, Json, Params, Trial, TrialState
from hpq.search.membership import is_inside
from hpq.search.samplers import SEED, replicated, seed_at, seed_of_result
from hpq.store.reader import StoreReader
from hpq_producer.enqueue.provenance import Place, place_of_sweep
from hpq_producer.sweepfile.spec import SweepSpec
from hpq_producer.terminal.text import clean, trials_of

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


def older_results(reader: StoreReader, wanted: Wanted, which: Reuse) -> dict[bytes, Trial]:
    """Trials with a result by the mark of their set; the newest sweep's where several fit.

    Where another seed passes, such a one is found under the mark of the wanted seed, too.
    """
    found: dict[bytes, Trial] = {}
    others: dict[bytes, Trial] = {}
    for sweep in same_code(reader, wanted, which):
        fits = compares(sweep, wanted.metric)
        if not fits or not (sweep.counts.finished or sweep.counts.failed):
            continue
        for trial in reader.trials.all(sweep.id):
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


def same_code(reader: StoreReader, wanted: Wanted, which: Reuse) -> Iterator[Sweep]:
    """Sweeps of the same code, newest first; what is the same to the byte may lie anywhere."""
    for sweep in same_program(reader, wanted.launch):
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


def same_program(reader: StoreReader, launch: Launch) -> Iterator[Sweep]:
    """Sweeps of a trainer or program of this name, newest first; unreadable ones are left out."""
    ids = reader.sweeps.ids()
    for start in range(0, len(ids), _SOME):
        for sweep in reader.sweeps.get_each(ids[start : start + _SOME]):
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
    return metric is not None and metric.take is ObjectiveValue.LAST and not sweep.counts.pruned


def means_the_same(one: Metric | None, other: Metric | None) -> bool:
    """True where results of both compare."""
    return _means(one) == _means(other)


def _means(metric: Metric | None) -> tuple[object, ...]:
    return (metric.name, metric.goal, metric.take) if metric else ()


_SHOWN = 5  # sweeps
_FILES = 3
_LOOKED_AT = 100  # sweeps of the same program, of the newest


def reuse_lines(
    reader: StoreReader, wanted: Wanted, which: Reuse | None, taken: Collection[Trial], but: str
) -> tuple[str, ...]:
    """What became of --reuse for the sweep `but`; nothing where it was not asked for."""
    if which is None:
        return ()
    if taken:
        return tuple(_taken(reader, taken, wanted.place.owner))
    return (_why_none(reader, wanted, which, but),)


def _taken(reader: StoreReader, taken: Iterable[Trial], owner: str) -> list[str]:
    """A line for each sweep that results were taken of: how many, whose it is, where it ran."""
    count = Counter(trial.id.sweep for trial in taken)
    lines = []
    for sweep in reader.sweeps.get_many(list(count)[:_SHOWN]):
        whose = "" if sweep.owner == owner else f"{clean(sweep.owner)}'s "
        what = clean(sweep.launch.what)
        where = f"{clean(sweep.launch.code_dir)}/{what}" if sweep.launch.code_dir else what
        lines.append(f"{trials_of(count[sweep.id], 'result')} of {whose}{sweep.id}, {where}")
    if len(count) > _SHOWN:
        rest = sum(count.values()) - sum(count[sid] for sid in list(count)[:_SHOWN])
        lines.append(f"{trials_of(rest, 'result')} of {len(count) - _SHOWN} other sweeps")
    return lines


def _why_none(reader: StoreReader, wanted: Wanted, which: Reuse, but: str) -> str:
    """One line: what keeps the results of older sweeps of the same program from being taken."""
    what = clean(wanted.launch.what)
    reasons: Counter[str] = Counter()
    for number, sweep in enumerate(same_program(reader, wanted.launch)):
        if number > _LOOKED_AT:
            break
        if sweep.id != but:
            reasons[_reason(reader, sweep, wanted, which)] += 1
    if not reasons:
        return f"0 results taken: no older sweep runs {what}"
    told = [f"{trials_of(n, 'sweep')} of {what}: {why}" for why, n in reasons.most_common(_SHOWN)]
    return f"0 results taken: {'; '.join(told)}"


def _reason(reader: StoreReader, sweep: Sweep, wanted: Wanted, which: Reuse) -> str:
    place = place_of_sweep(sweep)
    is_here = wanted.place.is_that_of(place)
    if not is_here and (which is Reuse.ANY_CODE or not is_same_code(sweep, wanted)):
        return f"another one, in {clean(place.folder or 'an installed package')}"
    if which is Reuse.SAME_CODE and not is_same_code(sweep, wanted):
        return _difference(reader, sweep, wanted)
    if not compares(sweep, wanted.metric):
        return _other_metric(sweep, wanted.metric)
    if wanted.metric and not means_the_same(sweep.metric, wanted.metric):
        return f"no trial with one of these sets has a last {clean(wanted.metric.name)}"
    if not sweep.counts.finished:
        return "no trial is finished"
    if sweep.seed != wanted.seed and not wanted.any_seed and not _has_own_seeds(sweep):
        return f"the seed is another, {sweep.seed}"
    return "no finished trial has one of these sets"


def _has_own_seeds(sweep: Sweep) -> bool:
    parameters = sweep.spec.get("parameters")
    return isinstance(parameters, dict) and SEED in parameters


def _other_metric(sweep: Sweep, now: Metric | None) -> str:
    """What differs, and why that keeps the results from being taken."""
    was = sweep.metric
    if was is None or now is None:
        return f"the metric is {clean(was.name) if was else 'none'} there, and another here"
    facts = ((was.name, now.name), (was.goal, now.goal), (f"{was.take} value", f"{now.take} value"))
    there, here = (", ".join(clean(f[i]) for f in facts if f[0] != f[1]) for i in (0, 1))
    pruned = sweep.counts.pruned and now.take is ObjectiveValue.LAST
    more = f", and by that {trials_of(sweep.counts.pruned)} were pruned" if pruned else ""
    return f"the metric is another ({there} there, {here} here){more}"


def _difference(reader: StoreReader, sweep: Sweep, wanted: Wanted) -> str:
    if sweep.launch.code == wanted.launch.code:
        return "the command is another"
    was, now = reader.sweeps.manifest(sweep.launch.code), reader.sweeps.manifest(wanted.launch.code)
    paths = [p for p in sorted({*was, *now}) if was.get(p) != now.get(p)] if was and now else []
    if not paths:
        return f"the code is {clean(sweep.launch.code[:12])}, and now another; see --any-code"
    more = f" and {len(paths) - _FILES} more" if len(paths) > _FILES else ""
    return f"{clean(', '.join(paths[:_FILES]))}{more} differ{'' if len(paths) > 1 else 's'}"
