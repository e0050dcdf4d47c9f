"""Which trials of a sweep, in which order; read in chunks, so that 100,000 do not fill memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice

from hpq.domain.sweep import Goal, Sweep
from hpq.domain.trial import Json, TrialState, TrialView
from hpq.errors import UserError
from hpq.store.reader import StoreReader
from hpq_producer.analysis.scores import flatten, param_value
from hpq_producer.query.filter import Filter

_CHUNK = 500
# what every trial may have beside parameters and metrics; duration in seconds
TRIAL_FIELDS: Mapping[str, Callable[[TrialView], Json]] = {
    "objective": lambda t: t.objective,
    "duration": lambda t: t.duration_ms / 1000 or None,
    "number": lambda t: t.id.number,
    "state": lambda t: t.state.value,
    "step": lambda t: t.step or None,
    "attempt": lambda t: t.attempt or None,
    "ended": lambda t: t.ended_ms or None,
    "host": lambda t: t.host or None,
    "worker": lambda t: t.worker or None,
    "failure": lambda t: t.failure.kind.value if t.failure else None,
}
_Key = tuple[int, float, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Trials of a state, by a name, the first few; `sort` as `results --sort` takes it."""

    reader: StoreReader
    sweep: Sweep
    state: TrialState | None = None
    sort: str = ""
    top: int | None = None
    where: Filter | None = None

    def trials(self) -> Iterator[TrialView]:
        """The trials, as they are read.

        Raises:
            UserError: no trial has what they are to be sorted by, or chosen by.
        """
        if not self.sort and self.top is None:
            yield from self._matching()
            return
        numbers = self.numbers()
        for start in range(0, len(numbers), _CHUNK):
            yield from self.reader.trials.get_many(self.sweep.id, numbers[start : start + _CHUNK])

    def _matching(self) -> Iterator[TrialView]:
        for trial in self.reader.trials.all(self.sweep.id):
            if self.where is not None and not self.where.matches(partial(field_of, trial)):
                continue
            if self.state is None or trial.state is self.state:
                yield trial
        if self.where is not None:
            self.where.check_names((*self.sweep.varying, *TRIAL_FIELDS))

    def numbers(self) -> list[int]:
        """Numbers in order; of the trials no more is kept than what decides it."""
        name = self.sort.removeprefix("-") or "objective"
        best_high = self.sweep.metric is not None and self.sweep.metric.goal is Goal.MAXIMIZE
        is_descending = self.sort.startswith("-") != (name == "objective" and best_high)
        present, missing = [], []
        for trial in self._matching():
            key = _key(field_of(trial, name))
            if key is None:
                missing.append(trial.id.number)
            else:
                present.append((key, trial.id.number))
        if missing and not present and self.sort:
            text = f"--sort {self.sort}: no trial has {name!r}; {_explain_names(self.sweep)}"
            raise UserError(text, code="column-unknown")
        present.sort(key=lambda pair: pair[0], reverse=is_descending)
        return ([n for _, n in present] + missing)[: self.top]


def names_in(reader: StoreReader, sweep: Sweep) -> tuple[list[str], list[str]]:
    """All parameters and all other metrics that trials of a sweep have, in order of appearance."""
    params: dict[str, None] = dict.fromkeys(sweep.varying)
    metrics: dict[str, None] = {}
    for trial in reader.trials.all(sweep.id):
        params.update(dict.fromkeys(flatten(trial.params)))
        metrics.update(dict.fromkeys(sorted(trial.metrics)))
    if sweep.metric:
        metrics.pop(sweep.metric.name, None)
    return list(params), list(metrics)


def field_of(trial: TrialView, name: str) -> Json:
    """A parameter, else a metric, else one of FIXED; None where the trial has no such thing."""
    if (param := param_value(trial.params, name)) is not None:
        return param
    if name in trial.metrics:
        return trial.metrics[name]
    return TRIAL_FIELDS[name](trial) if name in TRIAL_FIELDS else None


def _key(value: Json) -> _Key | None:
    """Numbers before text; None for what has no place."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, int | float):
        return (0, float(value), "")
    return (1, 0.0, str(value))


def _explain_names(sweep: Sweep) -> str:
    names = ["objective", "duration", "number", "ended", *islice(sweep.varying, 8)]
    return "there are " + ", ".join(names)
