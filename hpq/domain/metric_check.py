"""Find the sweep's metric in printed text; detect trials that do not report it, and say why."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from functools import cache

from hpq.domain.sweep import Sweep
from hpq.domain.trial import TrialState, TrialView

ENOUGH_REPORTS = 5  # of other names
_SHOWN = 6  # names
NUMBER = r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?|nan|inf)"
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_VALIDATION = frozenset({"val", "valid", "validation"})
# In "val loss: 0.3", the word before "loss" makes it another metric.
_QUALIFIERS = _VALIDATION | frozenset("train training test eval dev best min max mean avg".split())


@cache
def _spellings(metric: str) -> re.Pattern[str]:
    """Return a pattern for other spellings of a name: Val-Loss and validation_loss of val_loss."""
    parts = [part.lower() for part in _PARTS.findall(metric)]
    words = [r"val(?:id(?:ation)?)?" if part in _VALIDATION else part for part in parts]
    return re.compile("[ _./-]?".join(words) or "(?!)", re.IGNORECASE)


@cache
def _in_text(metric: str) -> re.Pattern[str]:
    name = f"(?P<name>{re.escape(metric)}|{_spellings(metric).pattern})"
    end = r"(?!\w|[./:-]\d)"  # of a number: not 3/10, 10:30 or a date
    return re.compile(rf"(?<![\w./-]){name}[\"']?\s*[=:]\s*(?P<value>{NUMBER}){end}", re.IGNORECASE)


def metric_in_text(metric: str, line: str) -> tuple[str, float] | None:
    """Return the last `metric=number` or `metric: number` of a line, or else of a near miss."""
    near = None
    for found in reversed(list(_in_text(metric).finditer(line))):
        before = line[: found.start()].rsplit(None, 1)[-1:] if found.start() else []
        if before and before[0].lower() in _QUALIFIERS:
            continue
        said = found["name"], float(found["value"])
        if said[0] == metric:
            return said
        near = near or said
    return near


def is_misreported(metric: str, names: Collection[str], reports: int) -> bool:
    """True if only other metrics were reported: one of them often, or under a near miss."""
    if metric in names:
        return False
    return reports >= ENOUGH_REPORTS or any(map(_spellings(metric).fullmatch, names))


def similar_name(metric: str, names: Collection[str]) -> str:
    """Return the reported name that is most like the metric's; "" if none is similar."""
    near = [name for name in names if _spellings(metric).fullmatch(name)]
    return next(iter(near or get_close_matches(metric, names, n=1)), "")


def missing_metric(metric: str, names: Sequence[str]) -> str:
    """Describe a trial that reported only these other names: `has not reported …`."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    close = similar_name(metric, names)
    hint = (
        f"; report {metric}, or write {close!r} as metric.name in the sweep file" if close else ""
    )
    return f"has not reported {metric} so far; it reports {', '.join(names[:_SHOWN])}{more}{hint}"


def metric_warning(
    sweep: Sweep, trials: Sequence[TrialView], best: Sequence[TrialView] = ()
) -> str:
    """Return `#1 has not reported …`; "" if a trial has reported the metric, or too few values."""
    metric = sweep.metric
    if metric is None or best or any(metric.name in trial.metrics for trial in trials):
        return ""
    for trial in trials:
        if trial.state is TrialState.FINISHED and trial.failure:
            return f"#{trial.id.number}: {trial.failure.message}"
        is_running, reports = trial.state is TrialState.RUNNING, trial.step if trial.metrics else 0
        if is_running and is_misreported(metric.name, trial.metrics, reports):
            return f"#{trial.id.number} {missing_metric(metric.name, tuple(trial.metrics))}"
    return ""
