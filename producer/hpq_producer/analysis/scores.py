"""Objectives and parameters of trials as text. Pure.

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
    """`0.9421`, or `0.9421 ± 0.0013 (3 of 3)`; empty where there is nothing yet."""
    if trial.objective is None:
        return ""
    return measure(trial.objective) + spread(trial.group)


def newest_value(sweep: Sweep, trial: TrialView) -> float | None:
    """A trial's objective, or while it has none the newest value of the metric."""
    if trial.objective is not None or sweep.metric is None:
        return trial.objective
    return trial.metrics.get(sweep.metric.name)


def spread(group: ReplicateGroup | None) -> str:
    """` ± 0.0013 (3 of 3)`, to stand after the mean; nothing where sets have no replicates."""
    if group is None:
        return ""
    done = len(group.objectives)
    sign = f" ± {measure(group.spread)}" if done > 1 else ""
    return f"{sign} ({done} of {group.of})"


def group_record(group: ReplicateGroup | None) -> dict[str, Any] | None:
    """The group as data for `--json`."""
    if group is None:
        return None
    return {
        "trials": list(range(group.first, group.first + group.of)),
        "objectives": list(group.objectives),
        "mean": group.mean,
        "sd": group.spread,
    }


def flatten(params: Params) -> dict[str, Json]:
    """The values by dotted name, in order; an empty mapping is a value."""
    out: dict[str, Json] = {}
    for name, inner in params.items():
        if isinstance(inner, dict) and inner:
            out |= {f"{name}.{below}": leaf for below, leaf in flatten(inner).items()}
        else:
            out[name] = inner
    return out


def param_value(params: Params, name: str) -> Json:
    """The value of a name, dotted or of the top; None where there is none."""
    return params[name] if name in params else flatten(params).get(name)


def param_text(params: Params, name: str) -> str:
    """The value of a name as a table shows it; blank where there is none."""
    leaves = params if name in params else flatten(params)
    return value(leaves[name]) if name in leaves else ""


def param_pairs(params: Params, names: Iterable[str]) -> str:
    """`lr=0.1 opt.name=adam`: the named parameters that are there."""
    leaves = {**flatten(params), **params}
    return " ".join(f"{clean(name)}={value(leaves[name])}" for name in names if name in leaves)
