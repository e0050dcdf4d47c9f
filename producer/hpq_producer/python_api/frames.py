"""Make pandas tables of trials and curves; imports pandas when called."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from hpq.domain.sweep import SweepView
from hpq.domain.trial import TrialView
from hpq.errors import UserError
from hpq.extras import library
from hpq.store.reader import StoreReader
from hpq_views.analysis.history import read_curves
from hpq_views.analysis.output_records import HISTORY_COLUMNS, column_order
from hpq_views.text.text import WHY_THINNED, trials_of

if TYPE_CHECKING:
    from pandas import DataFrame

Metrics = str | Iterable[str] | None


def trials_frame(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Return a row a trial; times become timestamps in UTC."""
    pandas = library("pandas", "to_pandas()")
    names = column_order(name for row in rows for name in row)
    frame = pandas.DataFrame.from_records(rows, columns=names)
    for name in {"started", "ended"} & set(names):
        frame[name] = pandas.to_datetime(frame[name], utc=True)
    return frame


def write_parquet(frame: DataFrame, file: BinaryIO) -> None:
    """Write a table with pyarrow; a column whose values differ in type becomes text (JSON)."""
    for name, column in frame.items():
        kinds = set(map(type, column.dropna()))
        if len(kinds) > 1 or kinds & {list, dict}:
            frame[name] = column.map(json.dumps, na_action="ignore")
    frame.to_parquet(file, index=False)


def history_frame(
    reader: StoreReader, sweep: SweepView, trials: Sequence[TrialView], metric: Metrics
) -> DataFrame:
    """Read a row a value: HISTORY_COLUMNS. Warn of trials whose curves were dropped.

    Raises:
        UserError: these trials have reported values, but none of a metric that is wanted.
    """
    pandas = library("pandas", "history()")
    wanted = None if metric is None else frozenset([metric] if isinstance(metric, str) else metric)
    known = dict.fromkeys(name for trial in trials for name in trial.metrics)
    unknown = (wanted or frozenset()) - known.keys() - {sweep.metric and sweep.metric.name}
    if known and unknown:
        text = f"no trial has reported {min(unknown)!r}; known metrics: {', '.join(known)}"
        raise UserError(text, code="column-unknown")
    if thinned := sum(trial.thinned for trial in trials):
        text = f"the curves of {trials_of(thinned)} were {WHY_THINNED}"
        warnings.warn(text, stacklevel=3)
    columns: dict[str, list[Any]] = {name: [] for name in HISTORY_COLUMNS}
    for curve in read_curves(reader, trials, wanted):
        columns["trial"] += [curve.trial] * len(curve.steps)
        columns["metric"] += [curve.metric] * len(curve.steps)
        columns["attempt"] += curve.attempts
        columns["step"] += curve.steps
        columns["value"] += curve.values
        columns["received"] += curve.times_ms
    frame = pandas.DataFrame(columns)
    frame["received"] = pandas.to_datetime(frame["received"], unit="ms", utc=True)
    return frame
