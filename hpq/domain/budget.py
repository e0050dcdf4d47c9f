"""Define a sweep's budget, the words about it, and the limits of an owner of sweeps.

A budget is GPU-hours and a time until. An operator sets what an owner may have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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


EVERYBODY = "*"  # the owner whose limits are those of all without an own value
LIMITS = ("priority", "running", "gpu_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """An owner's limits in force, by name of LIMITS, and its running trials and used GPU time.

    `defaults` are the names of those limits that are everybody's. `spent_ms` counts since an
    operator set the first limit of any owner.
    """

    name: str
    limits: Mapping[str, int] = field(default_factory=dict)
    defaults: frozenset[str] = frozenset()
    running: int = 0
    spent_ms: int = 0

    @property
    def gpu_hours(self) -> float:
        """GPU-hours used."""
        return self.spent_ms / HOUR_MS

    @property
    def most_gpu_hours(self) -> float | None:
        """GPU-hours that the owner may use; None without a limit."""
        return self.limits["gpu_ms"] / HOUR_MS if "gpu_ms" in self.limits else None

    def bound(self, priority: int) -> str:
        """Return the limit that lets no trial of a priority start; "" if there is none."""
        uses = {"priority": priority, "gpu_ms": self.spent_ms + 1, "running": self.running + 1}
        return next((name for name, use in uses.items() if use > self.limits.get(name, use)), "")
