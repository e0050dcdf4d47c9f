"""Define what a trial uses of its machine: the readings, and their values over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# What hpq reads while a trial runs, docs/guides/monitoring.md says how. NAME is the maximum and
# NAME.mean the mean. Redis keeps them by place: new names go to the end.
READINGS = ("rss_gb", "cpu", "gpu.util", "gpu.memory_gb", "gpu.power_w")
USAGE = (*(name + end for name in READINGS for end in ("", ".mean")), "gpu.size_gb")


def short(value: float) -> str:
    """Format a number with three digits, or with all digits of its whole part."""
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageCurves:
    """What an attempt used over time: each of READINGS that was read, thinned.

    A value is the maximum (memory) or the mean of the readings since the one before; None: unknown.
    """

    attempt: int = 0
    seconds: tuple[float, ...]  # since the attempt began
    values: Mapping[str, tuple[float | None, ...]]
