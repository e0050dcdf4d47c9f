"""What a training costs in arithmetic, and what a GPU could do: model FLOP utilisation. Pure."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate
from statistics import mean, variance

# Dense peak of half precision with float32 sums, FLOP/s; the vendor's figures.
_PEAKS = {"H200": 989e12, "H100 PCIe": 756e12, "H100": 989e12, "A100": 312e12, "V100": 125e12}


def peak(device: str) -> float | None:
    """Of a GPU of this name; None where it is not in the table."""
    return next((flops for name, flops in _PEAKS.items() if name in device), None)


def training_flop(width: int) -> float:
    """Of one image forward and backward: 2.27e9 at width 64, norms and pooling left out."""
    w = width
    convs = [(3, w, 32), (w, 2 * w, 32), (2 * w, 2 * w, 16), (2 * w, 2 * w, 16)]
    convs += [(2 * w, 4 * w, 16), (4 * w, 8 * w, 8), (8 * w, 8 * w, 4), (8 * w, 8 * w, 4)]
    forward = sum(2 * 9 * c_in * c_out * side**2 for c_in, c_out, side in convs)
    first = 2 * 9 * 3 * w * 32**2  # nobody asks for the gradient of the images
    return 3 * (forward + 2 * 8 * w * 10) - first


def interval(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """The difference of two means, ours less theirs, and the half width of its 90 % interval.

    Welch's; two values of each at least.
    """
    parts = [variance(values) / len(values) for values in (ours, theirs)]
    error = math.sqrt(sum(parts))
    if not error:  # all alike, as in a small run on noise
        return mean(ours) - mean(theirs), 0.0
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(values) - 1) for part, values in zip(parts, (ours, theirs), strict=True)
    )
    return mean(ours) - mean(theirs), _student(freedom) * error


def _student(freedom: float) -> float:
    """Student's 95 % quantile: at tan(a) · √freedom his density goes as cos(a) ** (freedom - 1)."""
    step = math.pi / 2 / 100_000
    sums = list(accumulate(math.cos((i + 0.5) * step) ** (freedom - 1) for i in range(100_000)))
    return math.tan((bisect(sums, 0.9 * sums[-1]) + 0.5) * step) * math.sqrt(freedom)
