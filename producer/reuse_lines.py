"""What `--reuse` says: of which sweeps results were taken, or why none were. Reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from hpq.search.replicates import SEED
from hpq.sweep import Metric, Sweep, Take
from hpq.trial import Trial
from hpq.view import View
from producer.look.text import clean, trials_of
from producer.place import place_of_sweep
from producer.reuse import Reuse, Wanted, compares, is_same_code, means_the_same, same_program

_SHOWN = 5  # sweeps
_FILES = 3
_LOOKED_AT = 100  # sweeps of the same program, of the newest


def reuse_lines(
    view: View, wanted: Wanted, which: Reuse | None, taken: Collection[Trial], but: str
) -> tuple[str, ...]:
    """What became of --reuse for the sweep `but`; nothing where it was not asked for."""
    if which is None:
        return ()
    if taken:
        return tuple(_taken(view, taken, wanted.place.owner))
    return (_why_none(view, wanted, which, but),)


def _taken(view: View, taken: Iterable[Trial], owner: str) -> list[str]:
    """A line for each sweep that results were taken of: how many, whose it is, where it ran."""
    count = Counter(trial.id.sweep for trial in taken)
    lines = []
    for sweep in view.sweeps(list(count)[:_SHOWN]):
        whose = "" if sweep.owner == owner else f"{clean(sweep.owner)}'s "
        what = clean(sweep.launch.what)
        where = f"{clean(sweep.launch.code_dir)}/{what}" if sweep.launch.code_dir else what
        lines.append(f"{trials_of(count[sweep.id], 'result')} of {whose}{sweep.id}, {where}")
    if len(count) > _SHOWN:
        rest = sum(count.values()) - sum(count[sid] for sid in list(count)[:_SHOWN])
        lines.append(f"{trials_of(rest, 'result')} of {len(count) - _SHOWN} other sweeps")
    return lines


def _why_none(view: View, wanted: Wanted, which: Reuse, but: str) -> str:
    """One line: what keeps the results of older sweeps of the same program from being taken."""
    what = clean(wanted.launch.what)
    reasons: Counter[str] = Counter()
    for number, sweep in enumerate(same_program(view, wanted.launch)):
        if number > _LOOKED_AT:
            break
        if sweep.id != but:
            reasons[_reason(view, sweep, wanted, which)] += 1
    if not reasons:
        return f"0 results taken: no older sweep runs {what}"
    told = [f"{trials_of(n, 'sweep')} of {what}: {why}" for why, n in reasons.most_common(_SHOWN)]
    return f"0 results taken: {'; '.join(told)}"


def _reason(view: View, sweep: Sweep, wanted: Wanted, which: Reuse) -> str:
    place = place_of_sweep(sweep)
    is_here = wanted.place.is_that_of(place)
    if not is_here and (which is Reuse.ANY_CODE or not is_same_code(sweep, wanted)):
        return f"another one, in {clean(place.folder or 'an installed package')}"
    if which is Reuse.SAME_CODE and not is_same_code(sweep, wanted):
        return _difference(view, sweep, wanted)
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
    pruned = sweep.counts.pruned and now.take is Take.LAST
    more = f", and by that {trials_of(sweep.counts.pruned)} were pruned" if pruned else ""
    return f"the metric is another ({there} there, {here} here){more}"


def _difference(view: View, sweep: Sweep, wanted: Wanted) -> str:
    if sweep.launch.code == wanted.launch.code:
        return "the command is another"
    was, now = view.manifest(sweep.launch.code), view.manifest(wanted.launch.code)
    paths = [p for p in sorted({*was, *now}) if was.get(p) != now.get(p)] if was and now else []
    if not paths:
        return f"the code is {clean(sweep.launch.code[:12])}, and now another; see --any-code"
    more = f" and {len(paths) - _FILES} more" if len(paths) > _FILES else ""
    return f"{clean(', '.join(paths[:_FILES]))}{more} differ{'' if len(paths) > 1 else 's'}"
