"""Whether a set of parameters lies in a search space, as a sweep file writes it. Pure.

By the file's data, not by draws: a value that the space might have given is inside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from hpq.identity import identity
from hpq.search.conditions import MISSING, find
from hpq.search.space import Space
from hpq.trial import Json, Params

_ANY_NUMBER = ("normal", "log_normal", "q_normal", "q_log_normal", "beta", "q_beta")
_EXPONENTS = ("log_uniform", "q_log_uniform")
_NEAR = 1e-9  # of a limit: draws reach it through logarithms and back


def is_inside(params: Params, entries: Mapping[str, Json], space: Space) -> bool:
    """True where every parameter of the space has a value that it allows, and there is no other.

    `entries` are the file's, and `space` what they come to with its conditions and exclusions.
    """
    for condition in space.when:
        is_absent = find(params, condition.path) is MISSING
        if is_absent == condition.wanted.matches(params):
            return False
    return space.allows(params) and _fits(params, entries, bool(space.when))


def _fits(params: Params, entries: Mapping[str, Json], may_lack: bool) -> bool:
    names = {name for name, entry in entries.items() if isinstance(entry, dict)}
    if not (set(params) <= names if may_lack else set(params) == names):
        return False
    return all(_allows(entries[name], value, may_lack) for name, value in params.items())


def _allows(entry: Json, value: Json, may_lack: bool) -> bool:
    if not isinstance(entry, dict):
        return False
    inner = entry.get("parameters")
    if isinstance(inner, dict):
        return isinstance(value, dict) and _fits(value, inner, may_lack)
    if "value" in entry:
        return _same(entry["value"], value)
    values = entry.get("values")
    if isinstance(values, list):
        return any(_same(one, value) for one in values)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    ends = _ends(entry)
    if ends is None:
        return True
    # Rounding to q may leave the range by half a step.
    step, q = 0.0, entry.get("q", 1)
    if str(entry.get("distribution", "")).startswith("q_") and isinstance(q, int | float):
        step = q / 2
    near = _NEAR * max(map(abs, ends))
    return ends[0] - step - near <= value <= ends[1] + step + near


def _ends(entry: Mapping[str, Json]) -> tuple[float, float] | None:
    """The smallest and the largest value; None where there are none."""
    kind, low, high = entry.get("distribution", ""), entry.get("min"), entry.get("max")
    if kind in _ANY_NUMBER or not isinstance(low, int | float) or not isinstance(high, int | float):
        return None
    if kind in _EXPONENTS:
        return math.exp(low), math.exp(high)
    if kind == "inv_log_uniform":
        return math.exp(-high), math.exp(-low)
    return low, high


def _same(a: Json, b: Json) -> bool:
    return identity({"": a}) == identity({"": b})
