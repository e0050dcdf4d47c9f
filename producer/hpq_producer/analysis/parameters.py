"""Name the values of nested parameters. Pure.

Tables, effects, CSV and --sort name them with dots: `optimizer.lr` for {optimizer: {lr: …}}.
`hpq best` and --json keep them nested.
"""

from __future__ import annotations

from hpq.domain.trial import Json, Params


def flatten(params: Params) -> dict[str, Json]:
    """Return the values by dotted name, in order; an empty mapping is a value."""
    out: dict[str, Json] = {}
    for name, inner in params.items():
        if isinstance(inner, dict) and inner:
            out |= {f"{name}.{below}": leaf for below, leaf in flatten(inner).items()}
        else:
            out[name] = inner
    return out


def param_value(params: Params, name: str) -> Json:
    """Return the value of a name, dotted or top-level; None if missing."""
    return params[name] if name in params else flatten(params).get(name)
