"""Compare the result in a trial's last event with the result in the store. Pure."""

from __future__ import annotations

import math

from hpq.domain.status import Event
from hpq.domain.trial import TrialState
from hpq.store.audit_reader import StoredResult

_ENDS = frozenset(state.value for state in TrialState if state.is_terminal)
_COUNTED = frozenset({"finished", "pruned", "reused"})
_RANKED = frozenset({TrialState.FINISHED, TrialState.PRUNED})


class Results:
    """Fold the events of a sweep's trials, and compare results with them.

    `replicates` is the sweep's number of replicates, `is_ranked` whether it has a metric.
    """

    def __init__(self, replicates: int = 1, is_ranked: bool = True) -> None:
        self._replicates, self._is_ranked = max(1, replicates), is_ranked
        self._ended: dict[int, float | None] = {}  # of ended trials; None: no result
        self._counted: set[int] = set()  # trials in the means of their groups of replicates

    def add(self, event: Event) -> None:
        """Add the next event of a trial."""
        text = event.fields.get("objective")
        is_end = event.what in _ENDS or event.what == "reused"
        if is_end and text is not None:
            self._ended[event.trial] = _number(text)
        else:
            self._ended.pop(event.trial, None)
        self._counted.discard(event.trial)
        if self._replicates > 1 and text and event.what in _COUNTED:
            self._counted.add(event.trial)

    def differs(self, number: int, state: TrialState, stored: StoredResult) -> str | None:
        """Return the difference between a trial's stored result and its last event, or None."""
        if not stored.is_known:
            return "its parameters changed after it was created"
        if number in self._ended and not _is_same(self._ended[number], _number(stored.objective)):
            value = self._ended[number]
            return f"its result is {stored.objective or 'missing'}, but its last event has {value}"
        if state not in _RANKED and stored.score is not None:
            return f"it is {state}, but ranked by {stored.score}"
        if state in _RANKED and number in self._ended:
            value = self._ended[number] if self._is_ranked else stored.score
            if not _is_same(value, stored.score):
                ranked = "not ranked" if stored.score is None else f"ranked by {stored.score}"
                return f"it is {ranked}, but its last event has {value}"
        if state.is_terminal and stored.is_filed != stored.has_pointers:
            return "its files are lost" if stored.is_filed else "its files are not listed"
        return self._mean_differs(number, stored)

    def _mean_differs(self, number: int, stored: StoredResult) -> str | None:
        if self._replicates < 2 or (number - 1) % self._replicates or not self._is_ranked:
            return None
        numbers = [n for n in range(number, number + self._replicates) if n in self._counted]
        values = [value for n in numbers if (value := self._ended[n]) is not None]
        mean = sum(values) / len(values) if values else None
        if mean is None or stored.mean is None:
            is_same = mean is stored.mean
        else:
            is_same = math.isclose(mean, stored.mean, rel_tol=1e-9, abs_tol=1e-300)
        return (
            None
            if is_same
            else f"the mean of its replicates is {stored.mean}, its events have {mean}"
        )


def _number(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _is_same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return one == other or (math.isnan(one) and math.isnan(other))
