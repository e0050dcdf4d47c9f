"""Chooses a sweep's next set: drawn while results are few, then by the model; each set once."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from hpq.identity import identity
from hpq.search import samplers
from hpq.search.record import Sampler, Search
from hpq.trial import Json, Params

if TYPE_CHECKING:
    from worker.suggest.model import Model

log = logging.getLogger("hpq.suggest")
_TRIES = 10  # sets of the model that were there already, before one is drawn


class Chooser:
    """All that is known of a sweep's sets. `begun` is how many there were when it was made."""

    def __init__(self, search: Search, begun: int = 0) -> None:
        self._search = search
        self._seen: set[bytes] = set()
        self._values: dict[int, float] = {}
        self._draws: Iterator[dict[str, Json]] = samplers.random(search.space, None, search.seed)
        self._model: Model | None = None
        self._has_told = False
        if search.sampler is not Sampler.RANDOM:  # Optuna takes a second to import
            self._model = import_module("worker.suggest.model").Model(search, begun)

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

    def ask(self, number: int, stand_ins: Mapping[int, float]) -> dict[str, Json] | None:
        """The next set, which gets this number; None where the space has no more."""
        if self._model is None or self.is_drawing:
            return self._draw(number)
        tries = len(self._seen) + 1 if self._search.sampler is Sampler.QMC else _TRIES
        for _ in range(tries):
            try:
                params = self._model.ask(stand_ins)
            except Exception as error:  # of the sampler's arithmetic: the search goes on without it
                self._tell(error)
                break
            mark = identity(params)
            if mark not in self._seen and self._search.space.allows(params):
                self._seen.add(mark)
                self._model.keep(number)
                return params
            self._model.drop()
        return self._draw(number)

    def _tell(self, error: Exception) -> None:
        if not self._has_told:
            what = f"{type(error).__name__}: {error}"
            log.error("%s fails (%s); sets are drawn instead", self._search.sampler, what)
        self._has_told = True

    def _draw(self, number: int) -> dict[str, Json] | None:
        for params in self._draws:
            if identity(params) not in self._seen:
                self.add(number, params)
                return params
        return None
