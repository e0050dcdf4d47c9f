"""The results of one sweep as Optuna's samplers read them: a storage on Optuna's public interface.

Optuna's own storages cannot change a trial after its end (a retry), remove one (a duplicate set) or
set its parameters at once.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from copy import deepcopy as deep_copy
from typing import Any, NoReturn

from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from hpq_worker.suggest.trial_results import Value

STUDY = "hpq"
_STUDY_ID = 0  # of the only study


class SweepStorage(BaseStorage):
    """One study that minimizes one value or several. A trial's number, from 0, is also its id.

    A trial is replaced, never changed: Optuna may still read the older one.
    """

    def __init__(self, values: int) -> None:
        self.directions = [StudyDirection.MINIMIZE] * values
        self._trials: list[FrozenTrial] = []
        self._trial_attributes: list[dict[str, Any]] = []  # what samplers keep with each trial
        self._study_attributes: dict[str, Any] = {}  # and with the study

    def add(self, params: Mapping[str, Any], distributions: Mapping[str, BaseDistribution]) -> int:
        """Add a running trial; return its number."""
        number = len(self._trials)
        self._trial_attributes.append({})
        self._trials.append(self._trial(number, TrialState.RUNNING, params, distributions))
        return number

    def put(
        self,
        number: int,
        state: TrialState,
        value: Value | None = None,
        violations: Sequence[float] = (),
    ) -> None:
        """Set the state and the value of a trial, and how far it violates the constraints.

        A violation that exceeds 0 is not met.
        """
        old = self._trials[number]
        trial = self._trial(number, state, old.params, old.distributions)
        if value is not None:
            trial.values = [*value] if isinstance(value, tuple) else [value]
        for index, violation in enumerate(violations):
            trial.set_constraint(str(index), violation)
        self._trials[number] = trial

    def put_back(self, trials: Sequence[FrozenTrial]) -> None:
        """Undo changes of trials since `ended` returned them."""
        for trial in trials:
            self._trials[trial.number] = trial

    def ended(self) -> list[FrozenTrial]:
        """Return the trials that have ended with a value."""
        return [trial for trial in self._trials if trial.state is TrialState.COMPLETE]

    @property
    def count(self) -> int:
        """Number of trials."""
        return len(self._trials)

    def take_back(self) -> None:
        """Remove the newest trial."""
        self._trials.pop()
        self._trial_attributes.pop()

    def _trial(
        self,
        number: int,
        state: TrialState,
        params: Mapping[str, Any],
        distributions: Mapping[str, BaseDistribution],
    ) -> FrozenTrial:
        return FrozenTrial(
            number=number,
            trial_id=number,
            state=state,
            value=None,
            params=dict(params),
            distributions=dict(distributions),
            system_attrs=dict(self._trial_attributes[number]),
            user_attrs={},
            intermediate_values={},
            datetime_start=None,
            datetime_complete=None,
        )

    # What a study and its samplers call follows.

    def get_study_id_from_name(self, study_name: str) -> int:
        return _STUDY_ID

    def get_study_name_from_id(self, study_id: int) -> str:
        return STUDY

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return self.directions

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return self._study_attributes

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        self._study_attributes[key] = value

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        return self.add({}, {})

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return self._trials[trial_id]

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        found = [trial for trial in self._trials if states is None or trial.state in states]
        return deep_copy(found) if deepcopy else found

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
    ) -> None:
        old = self._trials[trial_id]
        params = old.params | {param_name: distribution.to_external_repr(param_value_internal)}
        distributions = old.distributions | {param_name: distribution}
        self._trials[trial_id] = self._trial(trial_id, old.state, params, distributions)

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        self._trial_attributes[trial_id][key] = value
        old = self._trials[trial_id]
        self._trials[trial_id] = self._trial(trial_id, old.state, old.params, old.distributions)

    def _unused(self, *args: Any, **more: Any) -> NoReturn:
        """The storage has one study, whose trials end by `put`."""
        raise NotImplementedError

    create_new_study = _unused
    delete_study = _unused
    get_all_studies = _unused
    get_study_user_attrs = _unused
    set_study_user_attr = _unused
    set_trial_intermediate_value = _unused
    set_trial_state_values = _unused
    set_trial_user_attr = _unused
