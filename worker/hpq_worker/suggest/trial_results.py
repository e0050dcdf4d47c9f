"""The results of a sweep's trials, from its events, as a sampler needs them. Pure.

All values are minimized. A trial without a result that counts as the worst has infinity: samplers
rank, or use their worst finite value. With several metrics a value is a tuple of one each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from hpq.domain.status import Event
from hpq.domain.sweep import Impute, ObjectiveValue
from hpq.domain.trial import TrialState
from hpq.search.samplers import Search

WORST = math.inf
Value = float | tuple[float, ...]


class Ended(NamedTuple):
    """A trial that ended: its value (None: not counted), and how far it violates constraints."""

    number: int
    value: Value | None
    violations: tuple[float, ...] = ()


class TrialResults:
    """The trials that wait or run, and the values of the others."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self.waiting: set[int] = set()
        self.running: set[int] = set()

    def apply(self, event: Event) -> Ended | None:
        """Apply an event; return the trial that it ended."""
        n = event.trial
        if event.what in ("claimed", "resumed"):
            self.waiting.discard(n)
            self.running.add(n)
        elif event.what in ("requeued", "retried"):
            self.running.discard(n)
            self.waiting.add(n)
        elif event.what == "reused":  # its result is of an older sweep
            self.waiting.discard(n)
            return self._ended(n, TrialState.FINISHED, event.fields)
        elif event.what in set(TrialState):
            self.waiting.discard(n)
            self.running.discard(n)
            return self._ended(n, event.what, event.fields)
        return None

    def _ended(self, number: int, state: str, fields: Mapping[str, str]) -> Ended:
        count = self._search.constraints
        violations = _reals(fields.get("violations", ""), count) or (WORST,) * count
        return Ended(number, self._value(state, fields), violations)

    def _value(self, state: str, fields: Mapping[str, str]) -> Value | None:
        if state == TrialState.CANCELLED:  # a cancellation tells nothing about the parameters
            return None
        search, objective = self._search, fields.get("objective", "")
        if search.maximizes:
            count = len(search.maximizes)
            values = _reals(fields.get("values", ""), count)
            if state == TrialState.FAILED or not values:
                return (WORST,) * count
            return tuple(map(_minimized, values, search.maximizes))
        best = fields.get("best") or objective
        if state == TrialState.FAILED:
            text = {Impute.BEST: best, Impute.LATEST: objective}.get(search.impute, "")
        else:
            text = best if search.take is ObjectiveValue.BEST else objective
        return self.minimized(float(text)) if text else WORST

    def minimized(self, value: float) -> float:
        """Return a value of the metric so that less is better; infinity if it is not finite."""
        return _minimized(value, self._search.maximize)

    def imputed(self, reported: float | None) -> float | None:
        """Return the value of a running trial with this last report; None: not counted."""
        how = self._search.impute_while_running
        if how is Impute.WORST:
            return WORST
        return None if how is None or reported is None else self.minimized(reported)


def _minimized(value: float, maximize: bool) -> float:
    if not math.isfinite(value):
        return WORST
    return -value if maximize else value


def _reals(text: str, count: int) -> tuple[float, ...]:
    """Return `count` numbers of a text; () if it has fewer or more."""
    found = tuple(map(float, text.split()))
    return found if len(found) == count else ()
