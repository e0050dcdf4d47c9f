"""Compare the result in a trial's last event with the result in the store. Pure."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from typing import Any

from hpq.domain.status import Event
from hpq.domain.trial import TrialState
from hpq.store.audit_reader import StoredResult

_ENDS = frozenset(state.value for state in TrialState if state.is_terminal)
_COUNTED = frozenset({"finished", "pruned", "reused"})
_RANKED = frozenset({TrialState.FINISHED, TrialState.PRUNED})
_ENDED = 1
_HAS_VALUE = 2
_COUNTS = 4
_INFEASIBLE = 8
_PAGE = 64  # trials


class Column:
    """A number for each trial, 0 at first: few bytes each, and none for numbers never seen.

    Events may name any trial, so the largest number allocates no more than another.
    """

    def __init__(self, kind: str) -> None:
        self._blank: array[Any] = array(kind, bytes(_PAGE * array(kind).itemsize))
        self._pages: dict[int, array[Any]] = {}

    def __getitem__(self, trial: int) -> Any:
        return self._pages.get(trial // _PAGE, self._blank)[trial % _PAGE]

    def __setitem__(self, trial: int, number: float) -> None:
        page = self._pages.get(trial // _PAGE)
        if page is None:
            page = self._pages[trial // _PAGE] = self._blank[:]
        page[trial % _PAGE] = number

    def items(self) -> Iterator[tuple[int, Any]]:
        """Yield each trial whose number is not 0, with the number."""
        for i, page in self._pages.items():
            yield from ((i * _PAGE + k, number) for k, number in enumerate(page) if number)


class Results:
    """Fold the events of a sweep's trials, and compare results with them.

    `replicates` is the sweep's number of replicates, `is_ranked` whether it has a metric.
    """

    def __init__(self, replicates: int = 1, is_ranked: bool = True) -> None:
        self._replicates, self._is_ranked = max(1, replicates), is_ranked
        self._values = Column("d")
        self._flags = Column("b")  # _COUNTS: it is in the mean of its group of replicates

    def add(self, event: Event) -> None:
        """Add the next event of a trial."""
        text = event.fields.get("objective")
        is_end = event.what in _ENDS or event.what == "reused"
        flags = 0
        if is_end and text is not None:
            value, flags = _number(text), _ENDED
            if value is not None:
                self._values[event.trial], flags = value, _ENDED | _HAS_VALUE
        if event.fields.get("infeasible"):
            flags |= _INFEASIBLE
        elif self._replicates > 1 and text and event.what in _COUNTED:
            flags |= _COUNTS
        if flags or self._flags[event.trial]:
            self._flags[event.trial] = flags

    def _value(self, number: int) -> float | None:
        has_value = self._flags[number] & _HAS_VALUE
        return float(self._values[number]) if has_value else None

    def differs(self, number: int, state: TrialState, stored: StoredResult) -> str | None:
        """Return the difference between a trial's stored result and its last event, or None."""
        if not stored.is_known:
            return "its parameters changed after it was created"
        value, has_ended = self._value(number), bool(self._flags[number])
        if has_ended and not _is_same(value, _number(stored.objective)):
            return f"its result is {stored.objective or 'missing'}, but its last event has {value}"
        if state not in _RANKED and stored.score is not None:
            return f"it is {state}, but ranked by {stored.score}"
        if state in _RANKED and has_ended:
            value = value if self._is_ranked else stored.score
            value = None if self._flags[number] & _INFEASIBLE else value
            if not _is_same(value, stored.score):
                ranked = "not ranked" if stored.score is None else f"ranked by {stored.score}"
                return f"it is {ranked}, but its last event has {value}"
        if state.is_terminal and stored.is_filed != stored.has_pointers:
            return "its files are lost" if stored.is_filed else "its files are not listed"
        return self._mean_differs(number, stored)

    def _mean_differs(self, number: int, stored: StoredResult) -> str | None:
        if self._replicates < 2 or (number - 1) % self._replicates or not self._is_ranked:
            return None
        group = range(number, number + self._replicates)
        numbers = [n for n in group if self._flags[n] & _COUNTS]
        values = [value for n in numbers if (value := self._value(n)) is not None]
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
