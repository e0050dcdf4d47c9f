"""Values as a Gaussian process is told them: high walls made lower, the order kept. Pure.

A loss that is 5 near the bottom and 5,000 elsewhere hides the bottom from a process that takes both
for one height. Yeo and Johnson's transformation has one exponent, chosen so that the values look as
normal as can be. Where it would flatten a valley instead, values stay. scipy is imported late.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise
from math import isfinite
from statistics import fmean, pstdev


def warped(values: Sequence[float]) -> list[float]:
    """The values with their order kept and the bad ones nearer to the good; less stays better.

    What is infinite counts as the worst that is not.
    """
    known = [value for value in values if isfinite(value)]
    if len(set(known)) < 3:
        return _bounded(values, known)
    level = _bounded(values, known)
    middle, spread = fmean(level), pstdev(level)
    if not isfinite(spread) or not spread > 0:
        return level
    even = _even([(value - middle) / spread for value in level])
    return even if _keeps_order(level, even) else level


def _bounded(values: Sequence[float], known: Sequence[float]) -> list[float]:
    worst = max(known, default=0.0)
    return [value if isfinite(value) else worst for value in values]


def _even(values: list[float]) -> list[float]:
    stats = import_module("scipy.stats")
    try:
        even, exponent = stats.yeojohnson(values)
    except (ArithmeticError, ValueError, RuntimeError):  # no exponent fits
        return values
    return [float(value) for value in even] if exponent < 1 else values


def _keeps_order(before: Sequence[float], after: Sequence[float]) -> bool:
    """True where what was better is better, if only by the last bit, and equal what was equal."""
    if not all(map(isfinite, after)):
        return False
    pairs = sorted(zip(before, after, strict=True))
    return all((a < c) == (b < d) and b <= d for (a, b), (c, d) in pairwise(pairs))
