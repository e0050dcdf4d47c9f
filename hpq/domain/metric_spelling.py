"""Detect trials that report the sweep's metric under another spelling, or never."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from difflib import SequenceMatcher
from functools import cache, lru_cache

from hpq.domain.sweep import SweepView
from hpq.domain.trial import TrialState, TrialView

ENOUGH_REPORTS = 5  # without the metric
_ABBREVIATED = 3  # the fewest letters of an abbreviation, such as acc
_TYPO = 0.9  # the least likeness of two words: rmse and mse have 0.86
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_VALIDATION = frozenset({"val", "valid", "validation"})
# In "val loss: 0.3", the word before "loss" makes it another metric.
QUALIFIERS = _VALIDATION | frozenset("train training test eval dev best min max mean avg".split())


@cache
def spellings(metric: str) -> re.Pattern[str]:
    """Return a pattern for other spellings of a name: Val-Loss and validation_loss of val_loss."""
    parts = [part.lower() for part in _PARTS.findall(metric)]
    words = [r"val(?:id(?:ation)?)?" if part in _VALIDATION else part for part in parts]
    return re.compile("[ _./-]?".join(words) or "(?!)", re.IGNORECASE)


def near_miss(metric: str, names: Collection[str]) -> str:
    """Return the reported name that is another spelling of the metric's.

    Returns "" without one, or if the metric was reported.
    """
    if metric in names:
        return ""
    return next((name for name in names if _is_near(metric, name)), "")


@lru_cache(maxsize=1_000)
def _is_near(metric: str, name: str) -> bool:
    """True for Val-Loss, validation/loss and val_los of val_loss; False for train_loss."""
    if spellings(metric).fullmatch(name):
        return True
    wanted, found = (_PARTS.findall(text) for text in (metric, name))
    return len(wanted) == len(found) > 0 and all(map(_is_same_word, wanted, found))


def _is_same_word(one: str, other: str) -> bool:
    short, long = sorted((one.lower(), other.lower()), key=len)
    if short == long or {short, long} <= _VALIDATION:
        return True
    if not short.isalpha() or not QUALIFIERS.isdisjoint((short, long)):
        return False
    is_abbreviated = len(short) >= _ABBREVIATED and long.startswith(short)
    return is_abbreviated or SequenceMatcher(None, short, long).ratio() >= _TYPO


def missing_metric(metric: str, near: str) -> str:
    """Describe a trial that reports a near miss of the metric: `has not reported …`."""
    return (
        f"has not reported {metric} so far; it reports {near}; report {metric}, or write {near!r}"
        " as metric.name in the sweep file"
    )


def metric_warning(
    sweep: SweepView, trials: Sequence[TrialView], best: Sequence[TrialView] = ()
) -> str:
    """Return why a trial lacks the metric; "" if a trial has it, or may still report it."""
    metric = sweep.metric
    names = sweep.further_metrics
    ended = [trial for trial in (*best, *trials) if trial.state is TrialState.FINISHED]
    if ended and (lacks := [n for n in names if all(n not in t.metrics for t in ended)]):
        return f"#{ended[0].id.number}: finished without reporting {lacks[0]}"
    if metric is None or best or any(metric.name in trial.metrics for trial in trials):
        return ""
    for trial in trials:
        if trial.state is TrialState.FINISHED and trial.failure:
            return f"#{trial.id.number}: {trial.failure.message}"
        is_running = trial.state is TrialState.RUNNING and trial.step >= ENOUGH_REPORTS
        if is_running and (near := near_miss(metric.name, trial.metrics)):
            return f"#{trial.id.number} {missing_metric(metric.name, near)}"
    return ""
