"""Read the curves that pages draw: of the sweep's metric, of others, and of the time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from hpq.domain.sweep import SweepView
from hpq.domain.trial import Curve as ReportedCurve
from hpq.domain.trial import TrialView
from hpq.store.reader import StoreReader
from hpq_views.analysis.history import read_curves
from hpq_views.page.curves import Curve, thinned

RUNTIME = "_runtime"  # seconds since the trial began, which pages place beside the steps
_RUNTIME_POINTS = 16


def read_first(
    reader: StoreReader, sweep: SweepView, trials: Sequence[TrialView]
) -> Iterable[tuple[int, Curve]]:
    """Yield number, steps and values of each curve of the sweep's metric."""
    names = (sweep.metric.name,) if sweep.metric else ()
    for curve in read_curves(reader, trials, names):
        yield curve.trial, _points(curve)


def read_more(
    reader: StoreReader, sweep: SweepView, trials: Sequence[TrialView], metrics: Collection[str]
) -> dict[str, dict[int, Curve]]:
    """Read the curves of these metrics, by metric and trial. RUNTIME is one of them."""
    found: dict[str, dict[int, Curve]] = {name: {} for name in metrics}
    for curve in read_curves(reader, trials, metrics):
        found[curve.metric][curve.trial] = _points(curve)
    if RUNTIME in found:
        found[RUNTIME] = _runtimes(reader, sweep, trials)
    return found


def step_metrics(trials: Sequence[TrialView], metrics: Sequence[str]) -> dict[str, str]:
    """Return the metrics over whose values the script draws others, as its first trial defines."""
    ruled = next((trial for trial in trials if trial.run_info.get("axes")), None)
    found = {name: ruled.axis_of(name) for name in metrics} if ruled else {}
    return {name: axis for name, axis in found.items() if axis in metrics}


def _runtimes(
    reader: StoreReader, sweep: SweepView, trials: Sequence[TrialView]
) -> dict[int, Curve]:
    """Return the seconds at which Redis received each step of the metric with the latest ones."""
    found = dict[int, Curve]()
    first = {t.id.number: t.claimed_ms for t in trials}
    names = {sweep.metric.name} if sweep.metric else set[str]()
    names |= {next(iter(t.metrics)) for t in trials if t.metrics and not names & t.metrics.keys()}
    for curve in read_curves(reader, trials, names):
        began = min(first[curve.trial] or curve.times_ms[0], curve.times_ms[0])
        since = [(at_ms - began) / 1000 for at_ms in curve.times_ms]
        points = [(0.0, 0.0), *zip(map(float, curve.steps), since, strict=True)]
        if curve.trial not in found or points[-1][0] > found[curve.trial][-1][0]:
            found[curve.trial] = thinned(points, _RUNTIME_POINTS)
    return found


def _points(curve: ReportedCurve) -> Curve:
    return list(zip(curve.steps, curve.values, strict=True))
