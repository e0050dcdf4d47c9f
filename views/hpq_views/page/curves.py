"""Pack the curves of a sweep: at most 50 points each, 16 bits a number, one scale for all. Pure."""

from __future__ import annotations

import math
import sys
from array import array
from base64 import b64encode
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from hpq_views.text.charts import axis_of, is_wide

Curve = Sequence[tuple[float, float]]  # steps and values

POINTS = 50
_TOP = 65_534  # the highest number; the next one is NaN


def pack_curves(
    curves: Mapping[int, Curve], is_log: bool | None = None, points: int = POINTS
) -> dict[str, Any]:
    """Return trials, lengths, and the points as base64 of little-endian uint16, with their scale.

    A value beyond the scale is drawn at its end. `log`: the ends are logarithms to base 10.
    By default their values decide on that.
    """
    thin = {n: thinned(curve, points) for n, curve in sorted(curves.items()) if curve}
    flat = [point for curve in thin.values() for point in curve]
    values = [value for _, value in flat]
    scale = axis_of(values, is_wide(values) if is_log is None else is_log)
    low = scale.low
    high = scale.high
    is_log = scale.is_log
    if low == high:  # one value: in the middle, not half hidden by the axis
        room = abs(low) / 2 or 0.5
        low, high = low - room, high + room
    last = max((step for step, _ in flat), default=1) or 1
    reach = high - low
    steps = array("H", (round(max(0.0, step) / last * _TOP) for step, _ in flat))
    places = array("H", (_place(value, low, reach, is_log) for value in values))
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
        "high": low + reach,
        "log": is_log,
        "cut": scale.is_cut,
    }


def _place(value: float, low: float, reach: float, is_log: bool) -> int:
    if math.isnan(value):
        return _TOP + 1
    if is_log:
        value = math.log10(value) if value > 0 else -math.inf
    return round(min(1.0, max(0.0, (value - low) / reach)) * _TOP)


def thinned(curve: Curve, most: int) -> Curve:
    """Return at most `most` points that keep the shape of the curve, its first and last included.

    Largest triangle, three buckets (Steinarsson, 2013): of each bucket, the point that spans the
    largest area with the point kept before it and the mean of the next bucket.
    """
    if len(curve) <= most:
        return curve
    known = [(x, y if math.isfinite(y) else 0.0) for x, y in curve]
    size = (len(curve) - 2) / (most - 2)
    ends = [1 + int(i * size) for i in range(most - 1)]
    kept = [0]
    for i, (start, stop) in enumerate(pairwise(ends)):
        after = known[stop : ends[i + 2] if i + 2 < len(ends) else len(known)]
        ax, ay = known[kept[-1]]
        cx = math.fsum(x / len(after) for x, _ in after)
        cy = math.fsum(y / len(after) for _, y in after)
        areas = [abs((ax - cx) * (y - ay) - (ax - x) * (cy - ay)) for x, y in known[start:stop]]
        kept.append(start + areas.index(max(areas)))
    return [curve[i] for i in (*kept, len(curve) - 1)]
