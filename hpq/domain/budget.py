"""Define a sweep's budget, which is GPU-hours and a time until, and the words about it."""

from __future__ import annotations

from dataclasses import dataclass

from hpq.domain.durations import clock
from hpq.domain.usage import short
from hpq.notice import plural

HOUR_MS = 3_600_000
NEAR = 0.8  # of a budget's hours; lua/lib/budget.lua tells once


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a sweep may spend and has spent, in GPU-milliseconds; a CPU counts as one GPU.

    `budget_ms` 0: no limit. `until_ms` is the time at which trials must have ended, 0: none.
    `useful_ms` is the part of `spent_ms` of the attempts whose trials finished or were pruned.
    `trial_ms` is what a trial was expected to take when the sweep was held.
    """

    budget_ms: int = 0
    until_ms: int = 0
    spent_ms: int = 0
    useful_ms: int = 0
    trial_ms: int = 0

    @classmethod
    def of_hours(cls, gpu_hours: float, until_ms: int) -> Budget:
        """Return the budget of a new sweep."""
        return cls(budget_ms=round(gpu_hours * HOUR_MS), until_ms=until_ms)

    @property
    def gpu_hours(self) -> float:
        """The limit; 0 if there is none."""
        return self.budget_ms / HOUR_MS

    @property
    def used_hours(self) -> float:
        """GPU-hours of all attempts that ended."""
        return self.spent_ms / HOUR_MS

    @property
    def wasted_hours(self) -> float:
        """GPU-hours of the attempts that ended without a result: failed, lost, cancelled, …"""
        return (self.spent_ms - self.useful_ms) / HOUR_MS

    @property
    def is_near(self) -> bool:
        """True once 80 % of the hours are used."""
        return 0 < NEAR * self.budget_ms <= self.spent_ms

    @property
    def usage(self) -> str:
        """Return `31.5 of 40 GPU-hours used, 2.25 wasted`."""
        wasted = f", {short(self.wasted_hours)} wasted" if self.spent_ms > self.useful_ms else ""
        return self._used + wasted

    @property
    def _used(self) -> str:
        limit = f" of {self.gpu_hours:.6g}" if self.budget_ms else ""
        hours = plural(self.gpu_hours if self.budget_ms else self.used_hours, "GPU-hour")
        return f"{short(self.used_hours)}{limit} {hours} used"

    @property
    def limits(self) -> str:
        """Return `40 GPU-hours, until 2027-01-31 08:00+01:00`."""
        hours = plural(self.gpu_hours, "GPU-hour")
        most = f"{self.gpu_hours:.6g} {hours}" if self.budget_ms else ""
        until = f"until {clock(self.until_ms)}" if self.until_ms else ""
        return ", ".join(filter(None, (most, until)))

    def __str__(self) -> str:
        return self.usage + (f", until {clock(self.until_ms)}" if self.until_ms else "")

    def why(self, bound: str) -> str:
        """Return why the key of a budget, `budget.gpu_hours` or `budget.until`, holds a sweep."""
        if bound == "budget.until":
            return f"no waiting trial would end by {clock(self.until_ms)}"
        return f"no waiting trial fits its budget: {self._used}"

    def change(self, bound: str) -> str:
        """Return the words for `hpq set` that end a hold by such a key."""
        if bound == "budget.until":
            return f"{bound}=none"
        more = short(1.5 * max(self.budget_ms, self.spent_ms + self.trial_ms) / HOUR_MS)
        return f"{bound}={more}"
