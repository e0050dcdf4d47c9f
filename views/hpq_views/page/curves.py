"""Pack the curves of a sweep: thinned, 16 bits a number, one scale for all. Pure."""

from __future__ import annotations

import math
import sys
from array import array
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from hpq_views.text.charts import axis_of, is_wide

Curve = Sequence[tuple[float, float]]  # steps and values

POINTS = 50  # of a curve on a page that polls
_FINE = 1_000  # of a curve of few
_BUDGET = 30_000  # points of an answer, which a running sweep asks for again
_TOP = 65_534  # the highest number; the next one is a gap


def points_of(count: int, budget: int = _BUDGET) -> int:
    """Return how many points each of `count` curves may have, of this many in all."""
    return min(_FINE, max(3, budget // max(1, count)))


def pack_curves(
    curves: Mapping[int, Curve],
    is_log: bool | None = None,
    points: int = POINTS,
    longest: int | None = None,
) -> dict[str, Any]:
    """Return trials, lengths, and the points as base64 of little-endian uint16.

    A place p of `y` is the value v = low + p / 65534 * (high - low), or unit * sinh(v) if `unit` is
    not 0: values far from the others keep their own, and the others their digits. 65535 is a gap.
    `log`: the axis is logarithmic; by default the values decide on that. `per`: the most values
    that one point is the mean of, if the longest curve had `longest` values.
    """
    longest = (
        max((len(curve) for curve in curves.values()), default=0) if longest is None else longest
    )
    thin = {n: thinned(curve, points) for n, curve in sorted(curves.items()) if curve}
    flat = [point for curve in thin.values() for point in curve]
    values = [value for _, value in flat if math.isfinite(value)]
    log = is_wide(values) if is_log is None else is_log
    unit = _unit(values) if log or axis_of(values).is_cut else 0.0
    placed = [_wound(value, unit) for _, value in flat]
    finite = [place for place in placed if math.isfinite(place)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    last = max((step for step, _ in flat), default=1) or 1
    steps = array("H", (round(max(0.0, step) / last * _TOP) for step, _ in flat))
    places = array("H", (_place(place, low, high - low or 1.0) for place in placed))
    if sys.byteorder == "big":
        steps.byteswap()
        places.byteswap()
    return {
        "n": list(thin),
        "len": [len(curve) for curve in thin.values()],
        "x": b64encode(steps.tobytes()).decode(),
        "y": b64encode(places.tobytes()).decode(),
        "last": last,
        "low": low,
        "high": high,
        "unit": unit,
        "log": log,
        "per": _per(longest, points),
    }


def _unit(values: Iterable[float]) -> float:
    """Return a tenth of the smallest tenth of the values, in which most keep four digits."""
    sizes = sorted(abs(value) for value in values if value)
    return sizes[len(sizes) // 10] / 10 if sizes else 0.0


def _wound(value: float, unit: float) -> float:
    return math.asinh(value / unit) if unit else value


def _place(place: float, low: float, reach: float) -> int:
    return round((place - low) / reach * _TOP) if math.isfinite(place) else _TOP + 1


def _per(count: int, most: int) -> int:
    return 1 if count <= most else -(-(count - 2) // (most - 2))


def thinned(curve: Curve, most: int) -> Curve:
    """Return at most `most` points: the first, the last, and between them the means of buckets.

    Piecewise aggregate approximation (Keogh et al., 2001): a mean keeps the level of a noisy curve,
    of which the points that stand out most would be its extremes. A mean leaves out what is not
    finite.
    """
    if len(curve) <= most:
        return curve
    inner = curve[1:-1]
    ends = [i * len(inner) // (most - 2) for i in range(most - 1)]
    buckets = [inner[start:stop] for start, stop in pairwise(ends)]
    return [curve[0], *map(_mean, buckets), curve[-1]]


def _mean(bucket: Curve) -> tuple[float, float]:
    finite = [value for _, value in bucket if math.isfinite(value)]
    step = math.fsum(step for step, _ in bucket) / len(bucket)
    return step, math.fsum(finite) / len(finite) if finite else math.nan
