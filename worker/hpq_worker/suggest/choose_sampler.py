"""How bayes chooses: parameters are drawn while results are few, then the model suggests them.

Each set of parameters is suggested once. By default (`auto`) the model is a Gaussian process while
results are few enough, and a tree-structured Parzen estimator (TPE) after that, if a library is
missing, or if a worker would wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from hpq.domain.identity import ParameterSet
from hpq.search import samplers
from hpq.search.samplers import Sampler, Search, is_installed, unaided
from hpq_worker.suggest.trial_results import Value

if TYPE_CHECKING:
    from hpq_worker.suggest.optuna_model import OptunaModel

log = logging.getLogger("hpq.suggest")
_TRIES = 10  # duplicates of a model, before another one suggests
_TRIES_CHECKED = 30  # if `require` may reject them
_TRIES_GP = 2  # each takes long, and mostly returns the same
_MOST_GP = 200  # results that it learns from by default: its time grows with their cube


class Chooser:
    """Suggests parameters of one sweep. `auto` uses a Gaussian process only if it `may_gp`."""

    def __init__(
        self,
        search: Search,
        has_module: Callable[[str], bool] = is_installed,
        *,
        may_gp: bool = True,
    ) -> None:
        self._search = search
        self._seen: set[bytes] = set()
        self._values: dict[int, Value] = {}
        self._draws = samplers.random(search.space, None, search.seed)
        self._model: OptunaModel | None = None
        self._has_logged = False
        self._no_gp = ""  # why `auto` never uses a Gaussian process
        if search.space.when:  # it would learn the placeholder of a missing parameter
            self._no_gp = "gp knows no conditions"
        elif unaided(search.sampler, has_module) is not None:
            self._no_gp = "scipy or torch is missing"
        elif not may_gp:
            self._no_gp = "gp was killed"
        self.by = Sampler.RANDOM  # of the last set
        self.why = ""  # if `by` is not the search's own sampler
        if search.sampler is not Sampler.RANDOM:  # Optuna takes a second to import
            self._model = import_module("hpq_worker.suggest.optuna_model").OptunaModel(search)

    def add(self, number: int, params: ParameterSet) -> None:
        """Add a set that exists already."""
        self._seen.add(params.identity)
        if self._model:
            self._model.add(number, params)

    def trial_requeued(self, number: int) -> None:
        """Forget the value of a trial that was queued again."""
        self._values.pop(number, None)
        if self._model:
            self._model.trial_requeued(number)

    def trial_ended(
        self, number: int, value: Value | None, violations: tuple[float, ...] = ()
    ) -> None:
        """Add the value of a trial; less is better, None is not counted.

        The value of a trial that the model lacks is not counted: nothing is learned from it.
        """
        if self._model and self._model.has(number):
            if value is not None:
                self._values[number] = value
            self._model.trial_ended(number, value, violations)

    @property
    def is_drawing(self) -> bool:
        """True while sets are drawn without results."""
        if self._model is None:
            return True
        startup = self._search.sampler.startup
        return len(self._seen) < startup or len(self._values) < min(startup, 3)

    @property
    def preferred(self) -> Sampler:
        """The sampler of the next set if no worker would wait for it."""
        return self._samplers(is_hurried=False)[0]

    def warm_up(self) -> None:
        """Import the libraries of a Gaussian process, which takes seconds."""
        if self._model and self.preferred is Sampler.GP:
            with suppress(Exception):  # `ask` raises it again
                self._model.warm_up()

    def ask(
        self, number: int, stand_ins: Mapping[int, float], *, is_hurried: bool = False
    ) -> ParameterSet | None:
        """Return the set of this trial number; None if the space is exhausted.

        `is_hurried`: a worker would wait for a slow sampler.
        """
        if self._model is None:
            return self._draw(number)
        if self.is_drawing:
            self.why = "results are few"
            return self._draw(number)
        self.why = self._why_no_gp(is_hurried)
        for sampler in self._samplers(is_hurried):
            self.by = sampler
            params = self._ask(self._model, number, stand_ins)
            if params is not None:
                return params
            self.why = f"{sampler} had no new set"
        return self._draw(number)

    def _samplers(self, is_hurried: bool) -> tuple[Sampler, ...]:
        """Return the samplers to try in turn: the next one if a sampler has no new set."""
        sampler = self._search.sampler
        if sampler not in (Sampler.AUTO, Sampler.GP):
            return (sampler,)
        return (Sampler.TPE,) if self._why_no_gp(is_hurried) else (Sampler.GP, Sampler.TPE)

    def _why_no_gp(self, is_hurried: bool) -> str:
        """Return why `auto` asks TPE for the next set; "" if it does not."""
        if self._search.sampler is not Sampler.AUTO:
            return ""
        if self._no_gp:
            return self._no_gp
        if len(self._values) > _MOST_GP:
            return f"results exceed {_MOST_GP}"
        return "workers would wait for gp" if is_hurried else ""

    def _ask(
        self, model: OptunaModel, number: int, stand_ins: Mapping[int, float]
    ) -> ParameterSet | None:
        for _ in range(self._tries):
            try:
                found = model.ask(self.by, number, stand_ins)
            except Exception as error:  # numerical errors of the sampler: the search continues
                self._log_error(error)
                break
            if found is None:
                model.reject()
            elif (params := ParameterSet(found)).identity in self._seen:
                model.drop()
            else:
                self._seen.add(params.identity)
                model.keep(number, params)
                return params
        model.forget_rejected()
        return None

    @property
    def _tries(self) -> int:
        if self.by is Sampler.QMC:
            return len(self._seen) + 1
        if self.by is Sampler.GP:
            return _TRIES_GP
        return _TRIES_CHECKED if self._search.space.has_expressions else _TRIES

    def _log_error(self, error: Exception) -> None:
        if not self._has_logged:
            what = f"{type(error).__name__}: {error}"
            instead = "suggested by tpe" if self.by is Sampler.GP else "drawn at random"
            log.error("%s fails (%s); parameters are %s instead", self.by, what, instead)
        self._has_logged = True

    def _draw(self, number: int) -> ParameterSet | None:
        self.by = Sampler.RANDOM
        for params in self._draws:
            if params.identity not in self._seen:
                self.add(number, params)
                return params
        return None
