"""A sweep's metric that its trials do not report: seen while they run. Pure; both sides say it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches

from hpq.domain.sweep import Sweep
from hpq.domain.trial import Trial

ENOUGH = 5  # reports of other names
_SHOWN = 6  # names


def likely(metric: str, names: Collection[str]) -> str:
    """The reported name that a metric's may stand for; "" where none is like it."""
    return next(iter(get_close_matches(metric, names, n=1)), "")


def unreported(metric: str, names: Sequence[str]) -> str:
    """What is said of a trial that has reported these names only: `has not reported …`."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    close = likely(metric, names)
    hint = f"; did you mean {close!r}?" if close else ""
    return f"has not reported {metric} so far; it reports {', '.join(names[:_SHOWN])}{more}{hint}"


def doubt(sweep: Sweep, running: Sequence[Trial], best: Sequence[Trial] = ()) -> str:
    """`#1 has not reported …`; "" where the name of the metric is known to be right."""
    metric = sweep.metric
    if metric is None or best or any(metric.name in trial.metrics for trial in running):
        return ""
    for trial in running:
        if trial.metrics and trial.step >= ENOUGH:
            return f"#{trial.id.number} {unreported(metric.name, tuple(trial.metrics))}"
    return ""
