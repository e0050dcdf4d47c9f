"""Define what an operator lets an owner of sweeps have, and what the owner uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpq.domain.budget import HOUR_MS
from hpq.domain.sweep import MAX_PRIORITY

EVERYBODY = "*"  # the owner whose limits are those of all without an own value
LIMITS = ("priority", "running", "gpu_ms")
# What an operator writes: the key of a limit → the least and the greatest value.
RANGES: Mapping[str, tuple[int, int]] = {
    "priority": (-MAX_PRIORITY, MAX_PRIORITY),
    "running": (0, 10**9),
    "gpu_hours": (0, 10**9),
}


def name_of(key: str) -> str:
    """Return the name of LIMITS that a key of RANGES sets."""
    return "gpu_ms" if key == "gpu_hours" else key


def stored_value(key: str, value: float) -> int:
    """Return the value of a key of RANGES as the store holds it."""
    return round(value * HOUR_MS) if key == "gpu_hours" else int(value)


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
