"""Detect while trials run that they do not report the sweep's metric, and suggest its name."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches

from hpq.domain.sweep import Sweep
from hpq.domain.trial import TrialView

ENOUGH_REPORTS = 5  # of other names
_SHOWN = 6  # names


def similar_name(metric: str, names: Collection[str]) -> str:
    """Return the reported name that is most like the metric's; "" if none is similar."""
    return next(iter(get_close_matches(metric, names, n=1)), "")


def missing_metric(metric: str, names: Sequence[str]) -> str:
    """Describe a trial that reported only these other names: `has not reported …`."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    close = similar_name(metric, names)
    hint = f"; did you mean {close!r}?" if close else ""
    return f"has not reported {metric} so far; it reports {', '.join(names[:_SHOWN])}{more}{hint}"


def metric_warning(
    sweep: Sweep, running: Sequence[TrialView], best: Sequence[TrialView] = ()
) -> str:
    """Return `#1 has not reported …`; "" if a trial has reported the metric, or too few values."""
    metric = sweep.metric
    if metric is None or best or any(metric.name in trial.metrics for trial in running):
        return ""
    for trial in running:
        if trial.metrics and trial.step >= ENOUGH_REPORTS:
            return f"#{trial.id.number} {missing_metric(metric.name, tuple(trial.metrics))}"
    return ""
