"""Write trials as an Optuna study in a journal file, which optuna-dashboard opens."""

from __future__ import annotations

import copy
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from hpq.domain.sweep import Goal, SweepView
from hpq.domain.trial import Curve, Json, TrialState, TrialView, flatten
from hpq.extras import library
from hpq.search.distributions import (
    Categorical,
    Distribution,
    IntUniform,
    QuantizedDistribution,
    Weighted,
)
from hpq_views.analysis.pareto_front import values_of
from hpq_views.analysis.space import are_numbers, is_log, space_of


class _Buffer:
    """Optuna's journal in memory: its file backend syncs the disk for each trial."""

    def __init__(self) -> None:
        self.logs: list[dict[str, Any]] = []

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        # As a file gives them: Optuna must not change what is written later.
        return iter(copy.deepcopy(self.logs[log_number_from:]))

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        self.logs += logs


class OptunaJournal:
    """Adds trials to a new study, which has the sweep's id as its name.

    Finished trials are COMPLETE, pruned ones PRUNED. Failed and cancelled ones are FAIL, and so are
    finished ones without a finite value of each metric; of several metrics, pruned ones, too. A
    constraint is violated if its value exceeds 0, as Optuna's samplers read it.
    """

    def __init__(self, path: Path, sweep: SweepView) -> None:
        self._optuna = library("optuna", "--to optuna", "optuna")
        self._optuna.logging.set_verbosity(self._optuna.logging.WARNING)
        journal = library("optuna.storages.journal", "--to optuna", "optuna")
        self._file, self._buffer = journal.JournalFileBackend(str(path)), _Buffer()
        metrics, self._sweep = sweep.objectives or (sweep.metric,), sweep
        ways = ["maximize" if one and one.goal is Goal.MAXIMIZE else "minimize" for one in metrics]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
            self._study = self._optuna.create_study(
                storage=self._optuna.storages.JournalStorage(self._buffer),
                study_name=sweep.id,
                directions=ways,
            )
            if sweep.metric:
                self._study.set_metric_names([one.name for one in metrics if one])
        self._leaves = space_of(sweep)

    def add(self, trials: Sequence[tuple[TrialView, Sequence[Curve]]]) -> None:
        """Add ended trials with the curves of the metric; ranges and choices are the sweep file's.

        A value outside them, from a file that was added later, widens its range.
        """
        seen: dict[str, list[Json]] = {}
        for trial, _ in trials:
            for name, value in flatten(trial.params).items():
                seen.setdefault(name, []).append(_choice(value))
        space = {name: self._distribution(name, values) for name, values in seen.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
            self._study.add_trials([self._trial(t, curves, space) for t, curves in trials])
        self._file.append_logs(self._buffer.logs)

    def _trial(self, view: TrialView, curves: Sequence[Curve], space: Mapping[str, Any]) -> Any:
        states = self._optuna.trial.TrialState
        params = {name: _choice(value) for name, value in flatten(view.params).items()}
        state = states.PRUNED if view.state is TrialState.PRUNED else states.FAIL
        values = values_of(self._sweep, view)
        if self._sweep.objectives:  # Optuna prunes, and keeps curves, for one metric only
            state, curves = states.FAIL, ()
        if view.state is TrialState.FINISHED and values:
            state = states.COMPLETE
        points = ((s, v) for c in curves for s, v in zip(c.steps, c.values, strict=True))
        attributes: dict[str, Json] = {"hpq": str(view.id), "hpq_state": view.state.value}
        if view.failure:
            attributes["failure"] = f"{view.failure.kind.value}: {view.failure.message}"
        finite = {f"last.{n}": v for n, v in view.metrics.items() if math.isfinite(v)}
        trial = self._optuna.trial.create_trial(
            state=state,
            values=None if state is states.FAIL else values or None,
            params=params,
            distributions={name: space[name] for name in params},
            user_attrs=attributes | finite,
            system_attrs=self._constraints(view),
            intermediate_values={step: v for step, v in points if math.isfinite(v)},
        )
        trial.datetime_start = datetime.fromtimestamp((view.claimed_ms or view.ended_ms) / 1000)
        trial.datetime_complete = datetime.fromtimestamp(view.ended_ms / 1000)
        return trial

    def _constraints(self, view: TrialView) -> dict[str, Any]:
        found = self._sweep.violations(view.metrics)
        return {"constraints": list(found)} if found and all(map(math.isfinite, found)) else {}

    def _distribution(self, name: str, values: Sequence[Json]) -> Any:
        kinds, leaf = self._optuna.distributions, self._leaves.get(name)
        choices = leaf.values if isinstance(leaf, Categorical | Weighted) else ()
        if choices or not are_numbers(values):
            known = {json.dumps(value): value for value in (*map(_choice, choices), *values)}
            return kinds.CategoricalDistribution(tuple(known.values()))
        ends: list[Any] = [*values, *(end for end in _reach(leaf) if math.isfinite(end))]
        low, high = min(ends), max(ends)
        if isinstance(low, int) and isinstance(high, int) and not (leaf and leaf.is_fractional):
            return kinds.IntDistribution(low, high)
        return kinds.FloatDistribution(float(low), float(high), log=is_log(leaf, ends))


def _reach(leaf: Distribution | None) -> tuple[float, float]:
    if isinstance(leaf, IntUniform):
        return leaf.low, leaf.high
    return leaf.reach() if isinstance(leaf, QuantizedDistribution) else (-math.inf, math.inf)


def _choice(value: Json) -> Json:
    """Return a value that Optuna takes as a choice: a list or a mapping becomes JSON."""
    return json.dumps(value) if isinstance(value, list | dict) else value
