"""A sweep's metric as `wire` stores it: JSON. Imported by wire only."""

from __future__ import annotations

import json
from dataclasses import asdict

from hpq.fields import word
from hpq.sweep import Goal, Impute, Metric, Take


def encode(metric: Metric | None) -> str:
    """The metric as JSON; empty for none."""
    if metric is None:
        return ""
    return json.dumps(asdict(metric), sort_keys=True, separators=(",", ":"), allow_nan=False)


def decode(text: str) -> Metric | None:
    """The metric from its JSON (ValueError, KeyError where it is not one).

    None for a goal of a newer version: no ranking is better than a wrong one.
    """
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("not a mapping")
    target = data.get("target")
    if not isinstance(data["name"], str) or not isinstance(target, int | float | None):
        raise ValueError("not a metric")
    goal, take = word(Goal, str(data["goal"])), word(Take, str(data["take"]))
    if goal is None:
        return None
    running = data.get("impute_while_running")
    return Metric(
        name=data["name"],
        goal=goal,
        take=take or Take.LAST,
        target=target,
        impute=word(Impute, str(data.get("impute", Impute.WORST))) or Impute.WORST,
        impute_while_running=word(Impute, running) if isinstance(running, str) else None,
    )
