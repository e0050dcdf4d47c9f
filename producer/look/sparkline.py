"""A curve in one line of text: what a metric did, at a glance. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
