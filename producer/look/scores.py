"""What a trial came to, as text; of a set with replicates their mean and spread. Pure."""

from __future__ import annotations

from typing import Any

from hpq.sweep import Sweep
from hpq.trial import Group, Trial
from producer.look.text import measure


def score(trial: Trial) -> str:
    """`0.9421`, or `0.9421 ± 0.0013 (3 of 3)`; empty where there is nothing yet."""
    if trial.objective is None:
        return ""
    return measure(trial.objective) + spread(trial.group)


def newest_value(sweep: Sweep, trial: Trial) -> float | None:
    """A trial's objective, or while it has none the newest value of the metric."""
    if trial.objective is not None or sweep.metric is None:
        return trial.objective
    return trial.metrics.get(sweep.metric.name)


def spread(group: Group | None) -> str:
    """` ± 0.0013 (3 of 3)`, to stand after the mean; nothing where sets have no replicates."""
    if group is None:
        return ""
    done = len(group.objectives)
    sign = f" ± {measure(group.spread)}" if done > 1 else ""
    return f"{sign} ({done} of {group.of})"


def group_record(group: Group | None) -> dict[str, Any] | None:
    """The group as data for `--json`."""
    if group is None:
        return None
    return {
        "trials": list(range(group.first, group.first + group.of)),
        "objectives": list(group.objectives),
        "mean": group.mean,
        "sd": group.spread,
    }
