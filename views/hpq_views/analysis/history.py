"""Read the curves of a sweep: every stored value of every metric, with its attempt and its time.

Commands, page and Python API read curves here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from hpq.domain.durations import iso
from hpq.domain.trial import Curve, TrialView
from hpq.store.reader import StoreReader
from hpq_views.analysis.records import finite

HISTORY_COLUMNS = ("trial", "attempt", "step", "metric", "value", "received")
_CURVES_PER_ROUND_TRIP = 200  # about 1,000 values each at most


def read_curves(
    reader: StoreReader, trials: Iterable[TrialView], metrics: Collection[str] | None = None
) -> Iterator[Curve]:
    """Yield the curves of trials of one sweep, trial by trial; `metrics`: only these.

    One round trip reads 200 curves, a second one the attempts of trials that began twice.
    """
    wanted = (
        (trial, name)
        for trial in trials
        for name in trial.metrics
        if metrics is None or name in metrics
    )
    while chunk := list(islice(wanted, _CURVES_PER_ROUND_TRIP)):
        sid = chunk[0][0].id.sweep
        curves = reader.trials.curves(sid, [(trial.id.number, name) for trial, name in chunk])
        again = {trial.id.number: trial.id for trial, _ in chunk if trial.attempt > 1}
        claims = reader.events.claims(list(again.values())) if again else {}
        for curve in curves:
            starts = claims.get(curve.trial)
            yield replace(curve, attempts=_attempts(curve.times_ms, starts)) if starts else curve


def _attempts(times_ms: Sequence[int], starts: Sequence[tuple[int, int]]) -> list[int]:
    """Return the attempt that had the trial at each time; `starts` are (time, attempt)."""
    begins = [at_ms for at_ms, _ in starts]
    return [starts[max(0, bisect_right(begins, at_ms) - 1)][1] for at_ms in times_ms]


def history_records(curves: Iterable[Curve]) -> Iterator[dict[str, Any]]:
    """Yield the values of curves as records of HISTORY_COLUMNS."""
    for curve in curves:
        columns = (curve.attempts, curve.steps, curve.values, curve.times_ms)
        for attempt, step, value, at_ms in zip(*columns, strict=True):
            row = (curve.trial, attempt, step, curve.metric, finite(value), iso(at_ms))
            yield dict(zip(HISTORY_COLUMNS, row, strict=True))
