"""Chooses a sweep's next set: drawn while results are few, then by the model; each set once.

By default (`auto`) the model is a Gaussian process while results are few enough for one, and a tree
of Parzen estimators after that, where something that it needs is missing, or nobody can wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from hpq.domain.identity import identity
from hpq.domain.trial import Json, Params
from hpq.search import samplers
from hpq.search.search_spec import Sampler, Search, is_installed, unaided

if TYPE_CHECKING:
    from hpq_worker.suggest.optuna_model import Model

log = logging.getLogger("hpq.suggest")
_TRIES = 10  # sets of a model that were there already, before another makes one
_TRIES_GP = 2  # each takes long, and it hardly changes its mind
_MOST_GP = 200  # results that it learns from by default: its time rises with their cube in the end


class Chooser:
    """All that is known of a sweep's sets. `auto` is a Gaussian process only where it `may_gp`."""

    def __init__(
        self,
        search: Search,
        is_there: Callable[[str], bool] = is_installed,
        *,
        may_gp: bool = True,
    ) -> None:
        self._search = search
        self._seen: set[bytes] = set()
        self._values: dict[int, float] = {}
        self._draws: Iterator[dict[str, Json]] = samplers.random(search.space, None, search.seed)
        self._model: Model | None = None
        self._has_told = False
        # It would take what stands for a parameter that is not there for a value of it.
        is_flat = not search.space.when
        self._has_gp = may_gp and is_flat and unaided(search.sampler, is_there) is None
        self.by = Sampler.RANDOM  # who made the last set
        if search.sampler is not Sampler.RANDOM:  # Optuna takes a second to import
            self._model = import_module("hpq_worker.suggest.optuna_model").Model(search)

    def add(self, number: int, params: Params) -> None:
        """A set of the sweep that somebody else has made."""
        self._seen.add(identity(params))
        if self._model:
            self._model.add(number, params)

    def runs(self, number: int) -> None:
        """A trial that had ended was queued again."""
        self._values.pop(number, None)
        if self._model:
            self._model.runs(number)

    def ends(self, number: int, value: float | None) -> None:
        """A trial has ended; less is better, None counts for nothing."""
        if value is not None:
            self._values[number] = value
        if self._model:
            self._model.ends(number, value)

    @property
    def is_drawing(self) -> bool:
        """True while sets follow from no result."""
        if self._model is None:
            return True
        startup = self._search.sampler.startup
        return len(self._seen) < startup or len(self._values) < min(startup, 3)

    def warm_up(self) -> None:
        """Import what the first set of a Gaussian process would wait for: seconds."""
        if self._model and self._makers(is_hurried=False)[0] is Sampler.GP:
            with suppress(Exception):  # whoever asks for that set meets it again
                self._model.warm_up()

    def ask(
        self, number: int, stand_ins: Mapping[int, float], *, is_hurried: bool = False
    ) -> dict[str, Json] | None:
        """The next set, which gets this number; None where the space has no more.

        `is_hurried` says that a worker would wait for a set that takes long.
        """
        if self._model is None or self.is_drawing:
            return self._draw(number)
        for maker in self._makers(is_hurried):
            self.by = maker
            params = self._ask(self._model, number, stand_ins)
            if params is not None:
                return params
        return self._draw(number)

    def _makers(self, is_hurried: bool) -> tuple[Sampler, ...]:
        """Whose set it is to be; the second's, where the first has no new one."""
        sampler = self._search.sampler
        if sampler is Sampler.GP:
            return (Sampler.GP, Sampler.TPE)
        if sampler is not Sampler.AUTO:
            return (sampler,)
        is_gp = self._has_gp and not is_hurried and len(self._values) <= _MOST_GP
        return (Sampler.GP, Sampler.TPE) if is_gp else (Sampler.TPE,)

    def _ask(
        self, model: Model, number: int, stand_ins: Mapping[int, float]
    ) -> dict[str, Json] | None:
        for _ in range(self._tries):
            try:
                params = model.ask(self.by, number, stand_ins)
            except Exception as error:  # of the sampler's arithmetic: the search goes on without it
                self._tell(error)
                break
            mark = identity(params)
            if mark not in self._seen and self._search.space.allows(params):
                self._seen.add(mark)
                model.keep(number, params)
                return params
            model.drop()
        return None

    @property
    def _tries(self) -> int:
        if self.by is Sampler.QMC:
            return len(self._seen) + 1
        return _TRIES_GP if self.by is Sampler.GP else _TRIES

    def _tell(self, error: Exception) -> None:
        if not self._has_told:
            what = f"{type(error).__name__}: {error}"
            instead = "made by tpe" if self.by is Sampler.GP else "drawn"
            log.error("%s fails (%s); sets are %s instead", self.by, what, instead)
        self._has_told = True

    def _draw(self, number: int) -> dict[str, Json] | None:
        self.by = Sampler.RANDOM
        for params in self._draws:
            if identity(params) not in self._seen:
                self.add(number, params)
                return params
        return None
