"""Select and sort the trials of a sweep; read in chunks, so that 100,000 do not fill memory."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import NoReturn

from hpq.code.signing import RowSigner, is_signed, verifying_key
from hpq.domain.sweep import Goal, Metric, SweepView, is_same_goal
from hpq.domain.trial import ALTERED, FailureKind, Json, TrialState, TrialView, param_value
from hpq.domain.usage import USAGE
from hpq.errors import HpqError, NotFound, UserError
from hpq.search.replicates import set_of
from hpq.settings import Settings
from hpq.store.reader import StoreReader
from hpq.yamlfile.problems import nearest
from hpq_views.analysis.filter import Filter
from hpq_views.analysis.output_records import best_values
from hpq_views.analysis.pareto_front import Front, averaged, front_of, metrics_of
from hpq_views.analysis.rank_results import Results, Standings, once, read_standings, result_of
from hpq_views.text.text import clean, first_of

_CHUNK = 500
# Trials whose curves are drawn.
_MOST_LINES = 500
_BEST = 20
_SAMPLE = 300
_UNBEGUN = (TrialState.QUEUED, TrialState.CANCELLED)  # states of trials that never began
# fields of every trial beside parameters and metrics; duration in seconds
TRIAL_FIELDS: Mapping[str, Callable[[TrialView], Json]] = {
    "objective": lambda t: t.objective,
    "duration": lambda t: t.duration_ms / 1000 if t.attempt or t.duration_ms else None,
    "number": lambda t: t.id.number,
    "state": lambda t: t.state.value,
    "rank": lambda t: (t.standing.rank or None) if t.standing else None,
    "is_front": lambda t: t.standing.is_front if t.standing else None,
    "step": lambda t: t.step or None,
    "attempt": lambda t: t.attempt or None,
    "ended": lambda t: t.ended_ms or None,
    "host": lambda t: t.host or None,
    "worker": lambda t: t.worker or None,
    "name": lambda t: t.run_name or None,  # that its script gives its run, like the next two
    "group": lambda t: t.run_group or None,
    "tags": lambda t: list(t.run_tags),
    "start.trial": lambda t: t.start.trial if t.start else None,
    "start.step": lambda t: t.start.checkpoint.step if t.start else None,
    "failure": lambda t: t.failure.kind.value if t.failure else None,
    "failure.kind": lambda t: t.failure.kind.value if t.failure else None,
    "failure.message": lambda t: t.failure.message if t.failure else None,
    **{name: lambda t, name=name: t.usage.get(name) for name in USAGE},  # type: ignore[misc]
}
_STANDING = ("rank", "is_front")  # of these, known once all results are
# likewise, computed of the sweep and the trial
_SWEEP_FIELDS: Mapping[str, Callable[[SweepView, TrialView], Json]] = {
    "setting": lambda sweep, t: set_of(sweep, t.id.number),
    "feasible": lambda sweep, t: sweep.is_feasible(t.metrics),
}
_Key = tuple[int, float, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The options of `hpq results`: a state, a filter, a sort key, the first N trials.

    `begun` leaves out trials that were never claimed, unless `state` asks for them. Without
    `checks_names`, the caller checks the filter's names after the last of several sweeps.
    """

    reader: StoreReader
    sweep: SweepView
    state: TrialState | None = None
    sort: str = ""
    top: int | None = None
    where: Filter | None = None
    begun: bool = False
    checks_names: bool = True

    def trials(self) -> Iterator[TrialView]:
        """Yield the trials as they are read.

        Raises:
            UserError: no trial has the sort key, or a name of the filter.
        """
        standings = read_standings(self.reader, self.sweep)
        yield from map(standings.placed, self._chosen())

    def _chosen(self) -> Iterator[TrialView]:
        if not self.sort and self.top is None:
            yield from self.matching()
            return
        numbers = self.numbers()
        for start in range(0, len(numbers), _CHUNK):
            yield from self.reader.trials.get_many(self.sweep.id, numbers[start : start + _CHUNK])

    def matching(self) -> Iterator[TrialView]:
        """Yield the trials of this state that match the filter, in order of number."""
        reader, is_begun = self.reader.trials, self.begun and self.state not in _UNBEGUN
        trials: Iterable[TrialView] = (reader.begun if is_begun else reader.all)(self.sweep.id)
        if _asks_for_standing(self.where) or self.sort.removeprefix("-") in _STANDING:
            trials = map(read_standings(self.reader, self.sweep).placed, trials)
        if self.where is not None:
            trials = matching(self.sweep, trials, self.where)
        for trial in trials:
            if self.state is None or trial.state is self.state:
                yield trial
        if self.where is not None and self.checks_names:
            self.where.check_names()

    def numbers(self) -> list[int]:
        """Return the trial numbers in order; only sort keys are kept in memory."""
        name = self.sort.removeprefix("-") or "objective"
        best_high = self.sweep.metric is not None and self.sweep.metric.goal is Goal.MAXIMIZE
        is_descending = self.sort.startswith("-") != (name == "objective" and best_high)
        present = []
        missing = []
        infeasible = set[int]()
        for trial in self.matching():
            key = _key(field_of(self.sweep, trial, name))
            if name == "objective" and not self.sweep.is_feasible(trial.metrics):
                infeasible.add(trial.id.number)
            if key is None:
                missing.append(trial.id.number)
            else:
                present.append((key, trial.id.number))
        if missing and not present and self.sort:
            names = ["objective", "rank", "duration", "number", "ended"]
            names += islice(self.sweep.varying, 8)
            text = f"--sort {self.sort}: no trial has {name!r}; choose from {', '.join(names)}"
            raise UserError(text, code="column-unknown")
        present.sort(key=lambda pair: pair[0], reverse=is_descending)
        present.sort(key=lambda pair: pair[1] in infeasible)
        return ([n for _, n in present] + missing)[: self.top]


def matching(sweep: SweepView, trials: Iterable[TrialView], where: Filter) -> Iterator[TrialView]:
    """Yield the trials of a sweep that match an expression; then it knows the names they have."""
    metrics: dict[str, float] = {}
    for trial in trials:
        metrics |= trial.metrics
        if where.matches(partial(field_of, sweep, trial)):
            yield trial
    where.known_names |= dict.fromkeys((*sweep.varying, *metrics, *TRIAL_FIELDS, *_SWEEP_FIELDS))


def _asks_for_standing(where: Filter | None) -> bool:
    return where is not None and any(map(where.asks_for, _STANDING))


def by_other_metric(sweep: SweepView, name: str, goal: Goal) -> SweepView:
    """Return a sweep as if it ranked by a metric that its trials reported beside its own."""
    return replace(sweep, metric=Metric(name=name, goal=goal))


def _measured(trial: TrialView, by: str) -> TrialView:
    """Return a trial with the last value of a metric as its result; "": with its own."""
    return replace(trial, objective=trial.metrics.get(by), best=None) if by else trial


def best_trials(
    reader: StoreReader,
    sweep: SweepView,
    n: int = 1,
    where: Filter | None = None,
    *,
    by: str = "",
    checks_names: bool = True,
) -> list[TrialView]:
    """Return the N best trials that match the expression, best first; ties by number.

    Of replicates that match, the first of the group stands for them, with their mean. `by` is the
    sweep's metric if that is not the one of its results (`by_other_metric`).

    Raises:
        HpqError: no trial has a result, or none that matches (says why).
    """
    if where is None and not by:
        found = reader.ranking.best(sweep, n)
    else:
        found = _best_matching(reader, sweep, n, where, by)
        if where is not None and checks_names:
            where.check_names()
    if found:
        return found
    raise no_best(reader, [sweep], where)


def _best_matching(
    reader: StoreReader, sweep: SweepView, n: int, where: Filter | None, by: str
) -> list[TrialView]:
    """Read every trial once, for the rank among all and the order of those that match.

    Raises:
        UserError: no trial reported `by`.
    """
    results = Results(sweep=sweep)
    chosen = set[int]()
    metrics = dict[str, float]()

    def noted() -> Iterator[TrialView]:
        for trial in reader.trials.begun(sweep.id):
            metrics.update(trial.metrics)
            results.add(trial, result_of(_measured(trial, by)))
            yield trial

    trials: Iterable[TrialView] = noted()
    if _asks_for_standing(where):
        own = reader.sweeps.get(sweep.id) if by else sweep
        trials = map(read_standings(reader, own).placed, trials)
    for trial in trials if where is None else matching(sweep, trials, where):
        chosen.add(trial.id.number)
    if by and by not in metrics:
        refuse_unreported(sweep, by, metrics)
    picked = {number: value for number, value in results.feasible.items() if number in chosen}
    every, best = results.ranked(), Results(sweep=sweep, feasible=picked).ranked()
    first = reader.trials.get_many(sweep.id, best.order[:n])
    found = best.best({t.id.number: _measured(t, by) for t in first}, n)
    return [every.placed(trial) for trial in found]


def refuse_unreported(sweep: SweepView, name: str, metrics: Collection[str]) -> NoReturn:
    """Raise a UserError: no trial of a sweep has reported a metric; name those that it has."""
    raise _unknown_metric(sweep, name, metrics)


def _unknown_metric(sweep: SweepView, name: str, metrics: Collection[str]) -> UserError:
    known = first_of([*metrics], len(metrics)) or "none"
    hint = nearest(name, metrics) or f"; its metrics: {known}"
    return UserError(f"{clean(name)!r} is not a metric of {sweep.id}{hint}", code="column-unknown")


def read_front(
    reader: StoreReader, sweeps: Sequence[SweepView], where: Filter | None = None
) -> Front:
    """Return the front of all trials of sweeps with the same metrics that match the expression.

    Raises:
        UserError: no trial has a name of the expression.
    """

    def finished() -> Iterator[TrialView]:
        for sweep in sweeps:
            chosen = Selection(
                reader=reader, sweep=sweep, where=where, begun=True, checks_names=False
            )
            yield from averaged(sweep, chosen.matching())

    trials = once(finished()) if sweeps[1:] else finished()
    found = front_of(replace(sweeps[0], replicates=1), trials)
    if where is not None:
        where.check_names()
    return found


def no_best(
    reader: StoreReader,
    sweeps: Sequence[SweepView],
    where: Filter | None = None,
    front: Front | None = None,
) -> HpqError:
    """Return the error that says why no trial is best; `front` is the empty one if it was read."""
    sweep = sweeps[0]
    ids = " ".join(one.id for one in sweeps)
    lacks = ""
    if front is None and sweep.constraints:
        front = read_front(reader, sweeps, where)
    if front and front.missing:
        lacks = f"; no finished trial reported {first_of(front.missing)}"
    elif front and front.unmeasured:
        lacks = f"; {front.unmeasured} finished without a finite value of every metric"
    if front and front.infeasible:
        limits = ", ".join(map(str, sweep.constraints))
        matches = f" and matches {where.test.text}" if where else ""
        text = f"{ids}: no trial meets the constraints: {limits}{matches}{lacks}"
        text += f"; hpq results {sweep.id}"
        return HpqError(text, code="constraints-unmet")
    if where is not None:
        text = f"{ids}: no trial with a result matches {where.test.text}{lacks}"
        text += f"; hpq results {sweep.id}"
        return NotFound(text, code="no-result")
    why = "; ".join(_why_none(reader, one) for one in sweeps)
    return HpqError(why + lacks, code="no-result")


def refuse_unknown_metric(sweep: SweepView, name: str | None) -> None:
    """Raise a UserError if a sweep has no metric of this name; None: none was named."""
    names = [metric.name for metric in metrics_of(sweep)]
    if name is not None and name not in names:
        raise _unknown_metric(sweep, name, names)


def refuse_incomparable(sweeps: Sequence[SweepView]) -> None:
    """Raise a UserError if results of these sweeps cannot be ranked together."""
    for other in sweeps[1:]:
        if not is_same_goal(sweeps[0], other):
            apart = ", ".join(f"{one.id} by {_metric_words(one)}" for one in (sweeps[0], other))
            ids = " ".join(one.id for one in sweeps)
            text = f"trials are ranked by metrics of the same name, goal and value: {apart}"
            raise UserError(
                f"{text}; hpq report {ids} shows the sweeps side by side", code="metrics-differ"
            )


def _metric_words(sweep: SweepView) -> str:
    metric = sweep.metric
    if metric is None:
        return "no metric"
    words = [f"{one.name} ({one.goal}, {one.take} value)" for one in sweep.objectives or (metric,)]
    return ", ".join([*words, *map(str, sweep.constraints)])


def refuse_altered(
    settings: Settings, sweeps: Iterable[SweepView], trials: Iterable[TrialView]
) -> None:
    """Raise a UserError if the parameters of a trial are not those that were signed.

    If this machine's key signed a sweep, it must have signed each of its trials: the read of a
    trial may have met another record, since any client of Redis may change one between two reads.
    """
    key, prefix = verifying_key(settings), settings.prefix
    signed = {one.id for one in sweeps if key is not None and is_signed(key, prefix, one)}
    for trial in trials:
        if trial.failure is ALTERED or (trial.id.sweep in signed and not trial.is_signed):
            raise UserError(f"{trial.id}: {ALTERED.message}", code="parameters-altered")


def refuse_unsigned(settings: Settings, sweep: SweepView, otherwise: str) -> None:
    """Raise a UserError if this machine's key did not sign a sweep.

    `otherwise` says what --unsigned does.
    """
    try:
        RowSigner.required(settings, sweep)
    except UserError as error:
        text = f"{error}; --unsigned {otherwise} all the same: read it before you run it"
        raise UserError(text, code="code-not-signed") from None


def drawn_trials(standings: Standings, trials: Sequence[TrialView]) -> list[TrialView]:
    """Return all trials, or of more than 500 the best 20 and a sample of 300, always the same."""
    if len(trials) <= _MOST_LINES:
        return list(trials)
    by_rank = sorted(trials, key=lambda t: standings.of(t.id.number).rank or math.inf)
    best, rest = by_rank[:_BEST], by_rank[_BEST:]
    chosen = best + random.Random(0).sample(rest, min(_SAMPLE, len(rest)))
    return sorted(chosen, key=lambda trial: trial.id.number)


def _why_none(reader: StoreReader, sweep: SweepView) -> str:
    if sweep.metric is None:
        return f"{sweep.id} has no metric, so no trial is best; add `metric:` to the sweep file"
    counts = sweep.counts
    last = (trial.failure for trial in reader.status(sweep.id, rows=0).recent)
    why = next((f"; {f.message}" for f in last if f and f.kind is FailureKind.UNREPORTED), "")
    known = [f"{n:,} {state}" for state in TrialState if (n := counts.of(state))]
    text = f"no trial of {sweep.id} has a result: {', '.join(known) or 'none was chosen yet'}{why}"
    if sweep.state.is_over:
        return text
    return f"{text}; wait for one: hpq watch {sweep.id}; other sweeps: hpq ls"


def field_of(sweep: SweepView, trial: TrialView, name: str) -> Json:
    """Return a parameter, else a metric, else one of TRIAL_FIELDS; None if the trial has none.

    `param.lr` and `last.acc`, as columns are named, mean `lr` and `acc`.
    """
    group, _, inner = name.partition(".")
    if (param := param_value(trial.params, name)) is not None:
        return param
    if name in trial.metrics:
        return trial.metrics[name]
    if name in TRIAL_FIELDS:
        return TRIAL_FIELDS[name](trial)
    if name in _SWEEP_FIELDS:
        return _SWEEP_FIELDS[name](sweep, trial)
    if group == "param":
        return param_value(trial.params, inner)
    if group == "best":
        return best_values(trial, sweep).get(inner)
    return trial.metrics.get(inner) if group == "last" else None


def _key(value: Json) -> _Key | None:
    """Return a sort key, numbers before text; None for a value without an order."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, int | float):
        return (0, float(value), "")
    return (1, 0.0, str(value))
