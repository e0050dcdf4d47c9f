"""Finished trials of older sweeps whose results a new sweep begins with. Reads only."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from hpq.identity import identity
from hpq.sweep import Launch, Metric, Sweep
from hpq.trial import Trial, TrialState
from hpq.view import View

_SOME = 100  # sweeps asked about in one round trip


class Reuse(Enum):
    """Of which sweeps."""

    SAME_CODE = "same code"
    ANY_CODE = "any code"  # of the same trainer or program


def older_results(
    view: View, launch: Launch, metric: Metric | None, which: Reuse
) -> dict[bytes, Trial]:
    """Finished trials by the identity of their set; the newest sweep's where several fit."""
    found: dict[bytes, Trial] = {}
    for sweep in comparable(view, launch, metric, which):
        for trial in view.all_trials(sweep.id):
            if trial.state is not TrialState.FINISHED:
                continue
            if metric is None or trial.objective is not None:
                replicate = (trial.id.number - 1) % sweep.replicates
                found.setdefault(identity(trial.params, replicate), trial)
    return found


def comparable(view: View, launch: Launch, metric: Metric | None, which: Reuse) -> Iterator[Sweep]:
    """Sweeps with finished trials whose results mean the same, newest first."""
    for sweep in same_code(view, launch, which):
        if sweep.counts.finished and _means(sweep.metric) == _means(metric):
            yield sweep


def same_code(view: View, launch: Launch, which: Reuse) -> Iterator[Sweep]:
    """Sweeps of the same code, wherever it lies, newest first; unreadable ones are passed over."""
    ids = view.sweep_ids()
    for start in range(0, len(ids), _SOME):
        for sweep in view.sweeps_or_why(ids[start : start + _SOME]):
            if isinstance(sweep, Sweep) and _runs(sweep.launch, which) == _runs(launch, which):
                yield sweep


def _runs(launch: Launch, which: Reuse) -> tuple[object, ...]:
    what = (launch.trainer, launch.program)
    return what if which is Reuse.ANY_CODE else (*what, launch.command, launch.code)


def _means(metric: Metric | None) -> tuple[object, ...]:
    return (metric.name, metric.goal, metric.take) if metric else ()
