"""Describe early termination: the rule, why a trial was stopped, the time saved. Pure."""

from __future__ import annotations

from hpq.domain import durations
from hpq.domain.status import Event
from hpq.domain.sweep import EarlyTerminate, Goal, SweepView, TerminationRule
from hpq.domain.trial import Pruning, TrialState, TrialView
from hpq.store.wire.trial import PRUNING
from hpq_views.text.text import clean, measure, number, trials_of

_FIRST = 4  # bands that are listed


def describe_rule(early: EarlyTerminate) -> str:
    """Return e.g. `hyperband, eta 3, strict, at values 3, 9, 27, …`."""
    words = [early.rule.value]
    if early.rule is TerminationRule.MEDIAN:
        words.append(f"of {trials_of(early.min_trials, 'other')} or more")
    else:
        words.append(f"eta {early.eta:g}")
    if early.rule is TerminationRule.HYPERBAND:
        words.append("strict" if early.strict else "not strict")
    bands = ", ".join(map(str, early.bands[:_FIRST]))
    more = ", …" if len(early.bands) > _FIRST else ""
    return f"{', '.join(words)}, at values {bands}{more}"


def describe_pruning(pruning: Pruning, sweep: SweepView) -> str:
    """Return `hyperband at its 9th value: loss 0.71 is number 8 of 12, and worse than 0.5`."""
    name = clean(sweep.metric.name) if sweep.metric else "the metric"
    value, threshold = _distinct(pruning.value, pruning.threshold)
    return (
        f"{clean(pruning.rule)} at its {_nth(pruning.band)} value: {name} {value}"
        f" is number {pruning.rank} of {pruning.n}, and worse than {threshold}"
    )


def _nth(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th, 11th, 21st."""
    is_teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if is_teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _distinct(a: float, b: float) -> tuple[str, str]:
    """Format two numbers with the fewest digits that distinguish them."""
    pairs = ((f"{a:.{digits}g}", f"{b:.{digits}g}") for digits in (4, 6, 9, 17))
    return next((pair for pair in pairs if pair[0] != pair[1]), (repr(a), repr(b)))


def describe_early_end(trial: TrialView, sweep: SweepView) -> str:
    """Return why early termination stopped a trial, or is stopping it; "" if it did not."""
    if trial.pruning:
        text = describe_pruning(trial.pruning, sweep)
        is_so = trial.state in (TrialState.PRUNED, TrialState.RUNNING)
        return text if is_so else f"{text}; the trial ended before the stop reached it"
    if sweep.reached and trial.state is TrialState.CANCELLED:
        return f"#{sweep.reached.trial} had reached the sweep's target"
    return ""


def describe_prune_event(event: Event, sweep: SweepView) -> str:
    """Return the text of the event `prune`."""
    try:
        return f"to be pruned: {describe_pruning(PRUNING.parse(event.fields['why']), sweep)}"
    except (KeyError, TypeError, ValueError):  # another client wrote it
        return "to be pruned"


def describe_target(sweep: SweepView) -> str:
    """Return e.g. `target reached: #7 has acc 0.9100 >= 0.9`; "" if it was not reached."""
    if sweep.reached is None or sweep.metric is None:
        return ""
    it, sign = sweep.reached, ">=" if sweep.metric.goal is Goal.MAXIMIZE else "<="
    name = clean(sweep.metric.name)
    return f"target reached: #{it.trial} has {name} {measure(it.value)} {sign} {number(it.target)}"


def describe_idle(below: float, seconds: float) -> str:
    """Describe the use of GPUs at which trials count as stalled."""
    return f"GPU use below {below:g} % for {durations.text(seconds)}"
