"""Define what Redis stores of a sweep's state: whether its trials may start, and why not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hpq.notice import Notice


class StoredState(StrEnum):
    """What Redis stores of a sweep's state: whether its waiting trials may start."""

    OPEN = "open"
    PAUSED = "paused"
    HELD = "held"
    STOPPED = "stopped"
    CANCELLED = "cancelled"


class Cause(StrEnum):
    """What holds a sweep."""

    ALIKE = "alike"  # its trials fail alike
    UNREPORTED = "unreported"  # its trials lack the metric
    DAMAGED = "damaged"  # a script cannot read its record
    GPU_HOURS = "budget.gpu_hours"  # the key of the budget that allows no further trial
    UNTIL = "budget.until"

    @property
    def is_budget(self) -> bool:
        """True if the sweep's budget holds it."""
        return self in (Cause.GPU_HOURS, Cause.UNTIL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Why a sweep is held: the cause, and a line about it, "" for a budget."""

    cause: Cause
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetReached:
    """The trial whose value reached the metric's target and so ended the sweep."""

    trial: int
    value: float
    target: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """A trial that returns to the queue again and again: its number, how often and why."""

    trial: int
    notice: Notice
