"""Horizontal bars in text, to an eighth of a column, and sparklines: a curve in one line. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Where bars begin and end."""

    low: float
    high: float

    @property
    def is_from_zero(self) -> bool:
        """True where the length of a bar is its value."""
        return self.low == 0


def scale_of(values: Sequence[float]) -> Scale:
    """From zero; but near the smallest value where all are so alike that bars would say nothing."""
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return Scale(low=0, high=1)
    low, high = min(finite), max(finite)
    if 0 <= low <= high / 2 or low == high >= 0:
        return Scale(low=0, high=high or 1)
    # A tenth of the span below the smallest, so that its bar is seen.
    return Scale(low=low - (high - low or abs(high) or 1) / 10, high=high)


def bar(value: float, scale: Scale, columns: int) -> str:
    """The bar of a value, at most `columns` long."""
    if not math.isfinite(value):
        return ""
    share = (value - scale.low) / (scale.high - scale.low) if scale.high > scale.low else 1.0
    eighths = round(min(1.0, max(0.0, share)) * columns * 8)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


_LEVELS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], columns: int) -> str:
    """The values as a curve of at most `columns` characters, from their lowest to their highest.

    More values than columns are averaged in equal parts. A value that is not finite is a blank; a
    curve that does not move runs along the middle.
    """
    if columns < 1 or not values:
        return ""
    parts = values if len(values) <= columns else _averaged(values, columns)
    finite = [v for v in parts if math.isfinite(v)]
    if not finite:
        return " " * len(parts)
    low, high = min(finite), max(finite)
    span = high - low
    if not math.isfinite(span) or span == 0:
        return "".join(_LEVELS[3] if math.isfinite(v) else " " for v in parts)
    top = len(_LEVELS) - 1
    return "".join(
        _LEVELS[round((v - low) / span * top)] if math.isfinite(v) else " " for v in parts
    )


def _averaged(values: Sequence[float], columns: int) -> list[float]:
    out = []
    for i in range(columns):
        part = values[i * len(values) // columns : (i + 1) * len(values) // columns]
        finite = [v for v in part if math.isfinite(v)]
        # Exact: a curve that does not move must have one mean, and no sum may overflow.
        out.append(math.fsum(v / len(finite) for v in finite) if finite else math.nan)
    return out
