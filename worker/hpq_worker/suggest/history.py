"""What a sweep's events say of its trials, as a sampler wants to hear it. Pure.

All values are turned so that less is better. Where the file wants the worst of all for a trial
without a result, that is infinity here: samplers go by rank, or take it for the worst they know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from hpq.domain.snapshot import Event
from hpq.domain.sweep import Impute, ObjectiveValue
from hpq.domain.trial import TrialState
from hpq.search.search_spec import Search

WORST = math.inf


class Results:
    """The trials that wait or run, and what the others came to."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self.waiting: set[int] = set()
        self.running: set[int] = set()

    def see(self, event: Event) -> tuple[int, float | None] | None:
        """Take an event; answers the trial and its value (None: it counts for nothing) where it
        has ended by it."""
        n = event.trial
        if event.what in ("claimed", "resumed"):
            self.waiting.discard(n)
            self.running.add(n)
        elif event.what in ("requeued", "retried"):
            self.running.discard(n)
            self.waiting.add(n)
        elif event.what == "reused":  # as it ended in an older sweep
            self.waiting.discard(n)
            return n, self._value(TrialState.FINISHED, event.fields)
        elif event.what in set(TrialState):
            self.waiting.discard(n)
            self.running.discard(n)
            return n, self._value(event.what, event.fields)
        return None

    def _value(self, state: str, fields: Mapping[str, str]) -> float | None:
        if state == TrialState.CANCELLED:  # a person's choice says nothing of the set
            return None
        search, objective = self._search, fields.get("objective", "")
        best = fields.get("best") or objective
        if state == TrialState.FAILED:
            told = {Impute.BEST: best, Impute.LATEST: objective}.get(search.impute, "")
        else:
            told = best if search.take is ObjectiveValue.BEST else objective
        return self.turned(float(told)) if told else WORST

    def turned(self, value: float) -> float:
        """A value of the metric so that less is better; the worst, where it is not finite."""
        if not math.isfinite(value):
            return WORST
        return -value if self._search.maximize else value

    def stand_in(self, told: float | None) -> float | None:
        """What a running trial counts as that reports this now; None: as one without a result."""
        how = self._search.impute_while_running
        if how is Impute.WORST:
            return WORST
        return None if how is None or told is None else self.turned(told)
