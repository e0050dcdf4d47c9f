"""The worst of the running trials, by the newest value of the sweep's metric. Pure.

Waiting trials have no value, and those that ended are done; a running one that has reported nothing
yet is left alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hpq.errors import UserError
from hpq.sweep import Goal, Sweep
from hpq.trial import Trial, TrialState


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """So many, or so many of a hundred (rounded down)."""

    count: float
    is_percent: bool

    @classmethod
    def of(cls, text: str) -> Share:
        """`3` or `50%`.

        Raises:
            UserError: it is neither.
        """
        plain = text.strip()
        is_percent = plain.endswith("%")
        try:
            count = float(plain.rstrip("%")) if is_percent else int(plain)
        except ValueError:
            count = math.nan
        if not count > 0 or (is_percent and count > 100):
            raise UserError(f"--worst {text}: write a number of trials, or a share such as 50%")
        return cls(count=count, is_percent=is_percent)

    def __str__(self) -> str:
        return f"{self.count:g}{'%' if self.is_percent else ''}"

    def of_all(self, total: int) -> int:
        """How many that is of so many."""
        return int(total * self.count / 100) if self.is_percent else min(total, int(self.count))


def value_of(sweep: Sweep, trial: Trial) -> float | None:
    """A trial's objective, or while it has none the newest value of the metric."""
    if trial.objective is not None or sweep.metric is None:
        return trial.objective
    return trial.metrics.get(sweep.metric.name)


def worst(sweep: Sweep, trials: Sequence[Trial], share: Share) -> list[Trial]:
    """The worst of those that run, worst first; a value that is not a number is the worst.

    Raises:
        UserError: the sweep names no metric.
    """
    if sweep.metric is None:
        raise UserError(f"--worst: {sweep.id} names no metric, so none is worse")
    sign = 1 if sweep.metric.goal is Goal.MAXIMIZE else -1
    running = (t for t in trials if t.state is TrialState.RUNNING)
    valued = [(value, t) for t in running if (value := value_of(sweep, t)) is not None]
    valued.sort(key=lambda pair: -math.inf if pair[0] != pair[0] else sign * pair[0])
    return [t for _, t in valued[: share.of_all(len(valued))]]
