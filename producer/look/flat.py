"""Nested parameters as people name them: `optimizer.lr` for {optimizer: {lr: …}}. Pure.

Tables, effects, CSV and --sort go by these names; what is handed on (`best`, --json) stays nested.
"""

from __future__ import annotations

from collections.abc import Iterable

from hpq.trial import Json, Params
from producer.look.text import clean, value


def flat(params: Params) -> dict[str, Json]:
    """The values by dotted name, in order; an empty mapping is a value."""
    out: dict[str, Json] = {}
    for name, inner in params.items():
        if isinstance(inner, dict) and inner:
            out |= {f"{name}.{below}": leaf for below, leaf in flat(inner).items()}
        else:
            out[name] = inner
    return out


def pick(params: Params, name: str) -> Json:
    """The value of a name, dotted or of the top; None where there is none."""
    return params[name] if name in params else flat(params).get(name)


def cell(params: Params, name: str) -> str:
    """The value of a name as a table shows it; blank where there is none."""
    leaves = params if name in params else flat(params)
    return value(leaves[name]) if name in leaves else ""


def pairs(params: Params, names: Iterable[str]) -> str:
    """`lr=0.1 opt.name=adam`: the named parameters that are there."""
    leaves = {**flat(params), **params}
    return " ".join(f"{clean(name)}={value(leaves[name])}" for name in names if name in leaves)
