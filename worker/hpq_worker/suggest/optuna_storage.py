"""Optuna's storage interface over a plain list, which hpq's own history fills.

Redis holds the lasting state. Unlike Optuna's own storages this one can change a trial after its
end (a retry), remove one (a duplicate set) and set a result at once.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy
from optuna.trial import FrozenTrial, TrialState

_STUDY = 0
_AT = datetime(2000, 1, 1)  # no sampler looks at times


class InMemoryStorage(BaseStorage):
    """One study that minimises. A trial's id is its number, counted from 0."""

    def __init__(self) -> None:
        self._trials: list[FrozenTrial] = []
        self._name = ""
        self._user: dict[str, Any] = {}
        self._system: dict[str, Any] = {}

    # --- hpq's side ---------------------------------------------------------------------------

    def add(self, params: Mapping[str, Any], distributions: Mapping[str, BaseDistribution]) -> int:
        """Add a running trial; return its number."""
        number = self.create_new_trial(_STUDY)
        trial = self._trials[number]
        trial.params, trial.distributions = dict(params), dict(distributions)
        return number

    def put(self, number: int, state: TrialState, value: float | None = None) -> None:
        """Set the state and the value of a trial."""
        trial = self._trials[number]
        trial.state, trial.values = state, None if value is None else [value]
        trial.datetime_complete = _AT if state.is_finished() else None

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

    # --- Optuna's side ------------------------------------------------------------------------

    def create_new_study(
        self, directions: Sequence[StudyDirection], study_name: str | None = None
    ) -> int:
        self._name = study_name or "hpq"
        return _STUDY

    def delete_study(self, study_id: int) -> None:
        self._trials.clear()

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        self._user[key] = value

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        self._system[key] = value

    def get_study_id_from_name(self, study_name: str) -> int:
        return _STUDY

    def get_study_name_from_id(self, study_id: int) -> str:
        return self._name

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return [StudyDirection.MINIMIZE]

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return self._user

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return self._system

    def get_all_studies(self) -> list[FrozenStudy]:
        return []

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        number = len(self._trials)
        trial = FrozenTrial(
            number=number,
            trial_id=number,
            state=TrialState.RUNNING,
            value=None,
            values=None,
            datetime_start=_AT,
            datetime_complete=None,
            params={},
            distributions={},
            user_attrs={},
            system_attrs={},
            intermediate_values={},
        )
        self._trials.append(trial)
        return number

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
    ) -> None:
        trial = self._trials[trial_id]
        trial.params[param_name] = distribution.to_external_repr(param_value_internal)
        trial.distributions[param_name] = distribution

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        self.put(trial_id, state, values[0] if values else None)
        return True

    def set_trial_intermediate_value(
        self, trial_id: int, step: int, intermediate_value: float
    ) -> None:
        self._trials[trial_id].intermediate_values[step] = intermediate_value

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        self._trials[trial_id].user_attrs[key] = value

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        self._trials[trial_id].system_attrs[key] = value

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return self._trials[trial_id]

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        # Nothing outside this process holds a trial, so none is copied.
        if states is None:
            return list(self._trials)
        return [trial for trial in self._trials if trial.state in states]
