"""Read the curves that pages draw: of metrics, of the time, and of what trials use."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from hpq.domain.sweep import SweepView
from hpq.domain.trial import Curve as ReportedCurve
from hpq.domain.trial import TrialView
from hpq.domain.usage import UsageCurves
from hpq.store.reader import StoreReader
from hpq_views.analysis.history import read_curves
from hpq_views.page.curves import Curve, thinned

RUNTIME = "_runtime"  # seconds since the trial began, which pages place beside the steps
_RUNTIME_POINTS = 16
SYSTEM = {  # title and unit of what a trial uses
    "gpu.util": ("GPU use", "%"),
    "gpu.memory_gb": ("GPU memory", "GiB"),
    "gpu.power_w": ("GPU power", "W"),
    "rss_gb": ("memory", "GiB"),
    "cpu": ("CPU cores", ""),
}
_SYSTEM = "_system/"  # before their names, where they stand beside metrics


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
    """Read the curves of these metrics, by metric and trial. RUNTIME is one of them.

    Those of `system_metrics` are over the seconds of a trial's latest attempt.
    """
    found: dict[str, dict[int, Curve]] = {name: {} for name in metrics}
    for curve in read_curves(reader, trials, metrics):
        found[curve.metric][curve.trial] = _points(curve)
    if RUNTIME in found:
        found[RUNTIME] = _runtimes(reader, sweep, trials)
    readings = [name for name in SYSTEM if _SYSTEM + name in found]
    for number, used in read_usage(reader, trials).items() if readings else ():
        for name in readings:
            values = [math.nan if v is None else v for v in used.values.get(name, ())]
            if values:
                found[_SYSTEM + name][number] = list(zip(used.seconds, values, strict=True))
    return found


def read_usage(reader: StoreReader, trials: Sequence[TrialView]) -> dict[int, UsageCurves]:
    """Return what the latest attempt of each trial used over time, by trial, if it has readings."""
    every = reader.usage_curves([trial.id for trial in trials])
    return {
        trial.id.number: used
        for trial, used in zip(trials, every, strict=True)
        if used and used.attempt == trial.attempt
    }


def readings_of(reader: StoreReader, running: Sequence[TrialView]) -> frozenset[str]:
    """Return the names of what running trials have used so far."""
    every = read_usage(reader, running).values()
    return frozenset(name for used in every for name in used.values)


def system_metrics(trials: Sequence[TrialView], running: Collection[str]) -> dict[str, str]:
    """Return the name and the title of each reading of trials that have ended or are running."""
    known = {name for trial in trials for name in trial.usage}.union(running)
    return {
        _SYSTEM + name: f"{title}, {unit}" if unit else title
        for name, (title, unit) in SYSTEM.items()
        if name in known
    }


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
        if not curve.times_ms:  # a full server dropped its points
            continue
        began = min(first[curve.trial] or curve.times_ms[0], curve.times_ms[0])
        since = [(at_ms - began) / 1000 for at_ms in curve.times_ms]
        points = [(0.0, 0.0), *zip(map(float, curve.steps), since, strict=True)]
        if curve.trial not in found or points[-1][0] > found[curve.trial][-1][0]:
            found[curve.trial] = thinned(points, _RUNTIME_POINTS)
    return found


def _points(curve: ReportedCurve) -> Curve:
    return list(zip(curve.steps, curve.values, strict=True))
