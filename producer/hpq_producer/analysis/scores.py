"""Format objectives and parameters of trials. Pure.

Tables, effects, CSV and --sort name nested parameters with dots: `optimizer.lr` for
{optimizer: {lr: …}}. `hpq best` and --json keep them nested.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hpq.domain.sweep import Sweep
from hpq.domain.trial import Json, Params, ReplicateGroup, TrialView
from hpq_producer.terminal.text import clean, measure, value


def score(trial: TrialView) -> str:
    """Return `0.9421`, or `0.9421 ± 0.0013 (3 of 3)`; "" without a value."""
    if trial.objective is None:
        return ""
    return measure(trial.objective) + spread(trial.group)


def newest_value(sweep: Sweep, trial: TrialView) -> float | None:
    """Return a trial's objective, or, before it has one, the newest value of the metric."""
    if trial.objective is not None or sweep.metric is None:
        return trial.objective
    return trial.metrics.get(sweep.metric.name)


def spread(group: ReplicateGroup | None) -> str:
    """Return ` ± 0.0013 (3 of 3)`, the suffix of a mean; "" without replicates."""
    if group is None:
        return ""
    done = len(group.objectives)
    sign = f" ± {measure(group.spread)}" if done > 1 else ""
    return f"{sign} ({done} of {group.of})"


def group_record(group: ReplicateGroup | None) -> dict[str, Any] | None:
    """Return the group as data for `--json`."""
    if group is None:
        return None
    return {
        "trials": list(range(group.first, group.first + group.of)),
        "objectives": list(group.objectives),
        "mean": group.mean,
        "sd": group.spread,
    }


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


def param_text(params: Params, name: str) -> str:
    """Return the value of a name as text for a table; "" if missing."""
    leaves = params if name in params else flatten(params)
    return value(leaves[name]) if name in leaves else ""


def param_pairs(params: Params, names: Iterable[str]) -> str:
    """Return e.g. `lr=0.1 opt.name=adam`: the named parameters that the trial has."""
    leaves = {**flatten(params), **params}
    return " ".join(f"{clean(name)}={value(leaves[name])}" for name in names if name in leaves)
