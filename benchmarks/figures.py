"""The figures of benchmarks: rounds, target and the figure to compare with. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table, with one value per round or per trial; the table shows the median.

    `target` is the allowed maximum, or the minimum if more is better. `beside` is hpq's own figure
    if this one is a peer's.
    """

    what: str
    unit: str
    values: Sequence[float]
    target: float | None = None
    more_is_better: bool = False
    beside: Figure | None = None

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return median(self.values)

    @property
    def is_over(self) -> bool:
        """True if the median misses the target."""
        if self.target is None:
            return False
        return self.median < self.target if self.more_is_better else self.median > self.target

    @property
    def ratio(self) -> float | None:
        """The factor by which hpq is better than this peer; below 1 if the peer is better."""
        if self.beside is None:
            return None
        ours, theirs = self.beside.median, self.median
        high, low = (ours, theirs) if self.more_is_better else (theirs, ours)
        return high / low if low else None

    def peer(self, what: str, values: Sequence[float]) -> Figure:
        """Return a peer's figure to compare with this one."""
        return Figure(
            what=what,
            unit=self.unit,
            values=values,
            more_is_better=self.more_is_better,
            beside=self,
        )


def in_turn(rounds: int, calls: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """Run all calls once per round, so that a busy machine affects them equally."""
    found: dict[str, list[T]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            found[name].append(call())
    return found


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile of the values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
