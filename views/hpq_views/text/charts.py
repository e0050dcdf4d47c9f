"""Draw horizontal bars, curves of one line, and a curve in braille. Pure.

Several curves share one scale, so that equal heights are equal values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hpq_views.text.text import measure

_LEAST_CUT, _FAR = 5, 3.0  # values; times the range of their middle 80 %
_LOG_RATIO = 50.0  # 98th / 2nd percentile: from here on, an axis is logarithmic
_EIGHTHS = " ▏▎▍▌▋▊▉"
_OUTSIDE = "◀ and ▶ mark values outside"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Where bars and axes begin and end. `is_log`: the ends are logarithms to base 10."""

    low: float
    high: float
    is_cut: bool = False  # values lie beyond it
    is_log: bool = False

    @property
    def is_from_zero(self) -> bool:
        """True where the length of a bar is its value."""
        return self.low == 0


def is_wide(values: Sequence[float]) -> bool:
    """Return True if these values belong on a logarithmic axis, which has no place for 0."""
    found = sorted(v for v in values if math.isfinite(v))
    outer = len(found) // 50
    return bool(found) and found[0] > 0 and found[-1 - outer] / found[outer] >= _LOG_RATIO


def axis_of(values: Sequence[float], is_log: bool = False, best: float | None = None) -> Scale:
    """Return the scale of a page's panels and of bars: the one rule on what a scale leaves out.

    Values farther from the middle 80 % than three times its range are left out: a tenth of them
    would hide what the others differ in. The best value stays.
    """
    finite = sorted(v for v in values if math.isfinite(v) and (v > 0 or not is_log))
    if is_log:
        finite = [math.log10(v) for v in finite]
        best = None if best is None else math.log10(best)
    count, outer = len(finite), max(1, len(finite) // 10)
    if count >= _LEAST_CUT and (far := _FAR * (finite[-1 - outer] - finite[outer])):
        lowest, highest = finite[outer] - far, finite[-1 - outer] + far
        finite = [v for v in finite if lowest <= v <= highest or v == best]
    low, high = (finite[0], finite[-1]) if finite else (0.0, 1.0)
    return Scale(low=low, high=high, is_cut=0 < len(finite) < count, is_log=is_log)


def scale_of(values: Sequence[float]) -> Scale:
    """From zero; from the smallest value if all are so alike that bars would say nothing."""
    scale = axis_of(values)
    if 0 <= scale.low <= scale.high / 2 or scale.low == scale.high >= 0:
        return replace(scale, low=0, high=scale.high or 1)
    return scale


def bar(value: float, scale: Scale, columns: int) -> str:
    """A bar of a value, or a point on a line of `columns` if the scale does not begin at zero."""
    if not math.isfinite(value):
        return ""
    share = (value - scale.low) / (scale.high - scale.low) if scale.high > scale.low else 1.0
    mark = "◀" if share < 0 else "▶" if share > 1 else "●"
    share = min(1.0, max(0.0, share))
    if not scale.is_from_zero:
        place = round(share * (columns - 1))
        return "·" * place + mark + "·" * (columns - 1 - place)
    if mark != "●":
        return "◀" if mark == "◀" else "█" * (columns - 1) + mark
    eighths = round(share * columns * 8)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def ends_of(scale: Scale) -> str:
    """`points between 0.96 and 0.98`; empty if bars begin at zero."""
    ends = f"{measure(scale.low)} and {measure(scale.high)}"
    outside = f"; {_OUTSIDE}" if scale.is_cut else ""
    if scale.is_from_zero:
        return f"bars lie between {ends}{outside}" if scale.is_cut else ""
    return f"points lie between {ends}{outside}"


_LEVELS = "▁▂▃▄▅▆▇█"
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille cell, row by row
_OUTER = 0.02  # of the values lie below a column's scale, and as many above


def buckets(
    points: Iterable[tuple[float, float]], columns: int, first: float, last: float
) -> list[float]:
    """Mean value in each of `columns` equal parts of the steps from `first` to `last`.

    The list ends with the last part that has a point. A part without one repeats the part before
    it; a part whose values are all not finite is NaN, which is drawn as a gap.
    """
    parts: dict[int, list[float]] = {}
    for step, value in points:
        place = int(columns * (step - first) / (last - first + 1))
        parts.setdefault(min(columns - 1, max(0, place)), []).append(value)
    means: list[float] = []
    for place in range(max(parts, default=-1) + 1):
        if place in parts:
            finite = [v for v in parts[place] if math.isfinite(v)]
            # Divided first: a sum may overflow.
            means.append(math.fsum(v / len(finite) for v in finite) if finite else math.nan)
        else:
            means.append(means[-1] if means else math.nan)
    return means


def curve_scale(values: Iterable[float]) -> Scale | None:
    """The 2nd to the 98th percentile of all finite values; None if there are none."""
    ranked = sorted(v for v in values if math.isfinite(v))
    if not ranked:
        return None
    outer = int(_OUTER * len(ranked))
    return Scale(low=ranked[outer], high=ranked[-1 - outer])


def curve(means: Iterable[float], scale: Scale) -> str:
    """Buckets as one line on a scale; ▲ and ▼ lie beyond it, a blank is NaN."""
    span, out = scale.high - scale.low, []
    for v in means:
        if v != v:
            out.append(" ")
        elif v > scale.high or v < scale.low:
            out.append("▲" if v > scale.high else "▼")
        else:
            share = (v - scale.low) / span if 0 < span < math.inf else 0.5
            out.append(_LEVELS[round(share * (len(_LEVELS) - 1))])
    return "".join(out)


def plot(points: Sequence[tuple[float, float]], columns: int, rows: int) -> list[str]:
    """A curve as `rows` lines of braille between its lowest and its highest value."""
    steps = [step for step, _ in points]
    means = buckets(points, 2 * columns, min(steps), max(steps)) if points else []
    finite = [v for v in means if math.isfinite(v)]
    if not finite:
        return [""] * rows
    low = min(finite)
    span = max(finite) - min(finite)
    top = 4 * rows - 1
    cells = [[0] * columns for _ in range(rows)]
    before: int | None = None
    for x, v in enumerate(means):
        if not math.isfinite(v):
            before = None
            continue
        y = top - round((v - low) / span * top) if 0 < span < math.inf else top // 2
        # A steep part is drawn as a line, not as two points.
        since = y if before is None else before
        for at in range(min(y, since), max(y, since) + 1):
            cells[at // 4][x // 2] |= _DOTS[at % 4][x % 2]
        before = y
    return ["".join(chr(0x2800 + cell) if cell else " " for cell in line) for line in cells]
