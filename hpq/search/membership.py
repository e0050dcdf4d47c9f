"""Decide whether a set of parameters lies in a space. Pure."""

from __future__ import annotations

import math

from hpq.domain.trial import Json, Params
from hpq.search.conditions import MISSING, Names, find, nest
from hpq.search.continuous import QuantizedDistribution
from hpq.search.discrete import Distribution
from hpq.search.space import Space

_NEAR = 1e-9  # of a limit or a step: draws reach it through logarithms, or rounding, and back


def is_inside(params: Params, space: Space) -> bool:
    """True if each parameter of the space has an allowed value, and the set has no others."""
    for condition in space.when:
        is_absent = find(params, condition.path) is MISSING
        if is_absent == condition.wanted.matches(params):
            return False
    return space.allows(params) and _fits(params, space)


def _fits(params: Params, space: Space) -> bool:
    found: list[tuple[Names, Json]] = []
    conditional = {condition.path for condition in space.when}  # checked by the caller
    for path, leaf in space.leaves:
        value = find(params, path)
        if value is MISSING:
            if path in conditional:
                continue
            return False
        found.append((path, value))  # type: ignore[arg-type]
        if not _allows(leaf, found[-1][1]):
            return False
    return nest(found) == dict(params)


def _allows(leaf: Distribution, value: Json) -> bool:
    if not isinstance(leaf, QuantizedDistribution):
        return leaf.has(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if leaf.has(value):
        return True
    return leaf.q is None and any(_is_near(end, value) for end in leaf.reach())


def _is_near(wanted: Json, value: float) -> bool:
    assert isinstance(wanted, int | float)
    return math.isclose(wanted, value, rel_tol=_NEAR, abs_tol=1e-12)
