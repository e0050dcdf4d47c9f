"""Optuna's storage in memory, which hpq's own history fills. Redis holds the lasting state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

STUDY = "hpq"


class SweepStorage(InMemoryStorage):
    """One study that minimizes. Trials are named by their number, counted from 0.

    Optuna's interface cannot change a trial after its end (a retry), remove one (a duplicate set)
    or set its parameters at once, so these methods edit the list of the trials.
    """

    def __init__(self) -> None:
        super().__init__()
        self._study_id = self.create_new_study([StudyDirection.MINIMIZE], STUDY)

    @property
    def _trials(self) -> list[FrozenTrial]:
        trials: list[FrozenTrial] = self._studies[self._study_id].trials
        return trials

    def add(self, params: Mapping[str, Any], distributions: Mapping[str, BaseDistribution]) -> int:
        """Add a running trial; return its number."""
        self.create_new_trial(self._study_id)
        trial = self._trials[-1]
        trial.params, trial.distributions = dict(params), dict(distributions)
        return trial.number

    def put(self, number: int, state: TrialState, value: float | None = None) -> None:
        """Set the state and the value of a trial."""
        trial = self._trials[number]
        trial.state, trial.values = state, None if value is None else [value]

    def ended(self) -> list[FrozenTrial]:
        """Return the trials that have ended with a value."""
        return [trial for trial in self._trials if trial.state is TrialState.COMPLETE]

    def value(self, numbers: Sequence[int], values: Sequence[float]) -> None:
        """Set the values of ended trials."""
        for number, value in zip(numbers, values, strict=True):
            self._trials[number].values = [value]

    @property
    def count(self) -> int:
        """Number of trials."""
        return len(self._trials)

    def take_back(self) -> None:
        """Remove the newest trial."""
        self._trials.pop()
