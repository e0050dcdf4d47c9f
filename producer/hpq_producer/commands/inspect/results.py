"""`hpq results`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Annotated

from typer import Option

from hpq.access.session import open_session
from hpq.domain.sweep import SweepView
from hpq.domain.trial import Curve, Json, TrialView, flatten
from hpq.errors import UserError
from hpq.extras import library
from hpq.notice import print_message
from hpq.store.reader import StoreReader
from hpq_producer.commands.common_flags import WhereExpr
from hpq_producer.python_api.frames import history_frame, trials_frame, write_parquet
from hpq_views.analysis.filter import Filter
from hpq_views.analysis.history import read_curves
from hpq_views.analysis.output_records import (
    HISTORY_COLUMNS,
    flat_record,
    history_records,
    trial_record,
)
from hpq_views.analysis.pareto_front import metrics_of
from hpq_views.analysis.selection import Selection
from hpq_views.command_output.results_table import (
    column_names,
    result_columns,
    result_row,
    write_trials,
)
from hpq_views.targets import SweepRef
from hpq_views.text.console import show_table
from hpq_views.text.output import Format, show_rows, write_csv
from hpq_views.text.style import Span
from hpq_views.text.tables import Column
from hpq_views.text.text import clean, trials_of

_NUMBERS = ("trial", "attempt", "step", "value")

# In every table.
_SHOWN = ("", *"objective rank trial number state step duration duration_s".split())


def results(
    sweep: SweepRef = None,
    output: Annotated[
        Format,
        Option(
            "--output",
            "-o",
            metavar="FORMAT",
            help="Print table, json, jsonl, yaml, csv or parquet; --json is short for -o json.",
        ),
    ] = Format.TABLE,
    sort: Annotated[
        str,
        Option(
            metavar="NAME",
            help="Sort by objective, duration, a metric or a parameter; -NAME reverses the order.",
        ),
    ] = "",
    top: Annotated[
        int | None, Option(min=1, help="Print only the first N trials, after --sort.")
    ] = None,
    where: WhereExpr = None,
    history: Annotated[
        bool, Option(help="Print every kept value of every metric of these trials, one per row.")
    ] = False,
) -> None:
    """Print the trials of a sweep that started, or their curves; the table shows what varies.

    CSV, Parquet, JSON and YAML have all parameters (param.NAME), the last value of each metric
    (last.NAME), the best value of the sweep's metric (best.NAME), and what a trial used of its
    machine (rss_gb, gpu.memory_gb, …).

    Examples:
      hpq results -o csv > results.csv
      hpq results digits-3f2a1 --where 'state == failed' --sort=-duration
      hpq results --where 'state == queued'
      hpq results --where 'gpu.memory_gb < 20'
      hpq results --history -o jsonl > curves.jsonl
      hpq results -o parquet > results.parquet
    """
    only = Filter.of(where) if where is not None else None
    with open_session() as session:
        reader = session.reader
        found = session.verifiable(sweep)
        begun = only is None or not only.asks_for("state")
        chosen = Selection(reader=reader, sweep=found, sort=sort, top=top, where=only, begun=begun)
        if begun and (rest := found.counts.queued):
            queued = trials_of(rest, "queued trial")
            print_message(f"{queued}: hpq results {found.id} --where 'state == queued'")
        if output is Format.PARQUET:
            return _write_parquet(reader, found, list(chosen.trials()), history)
        if history:
            return _show_history(read_curves(reader, chosen.trials()), output)
        if output is Format.CSV:
            return write_trials([found], chosen.trials())
        if output.is_data:
            return show_rows((trial_record(t, found) for t in chosen.trials()), output)
        key = re.sub(r"^-?(param\.|last\.)?", "", sort)
        own = (metric.name for metric in metrics_of(found))
        titles = (column.title for column in result_columns(found))
        key = "" if key in (*_SHOWN, *own, *found.varying, *titles) else key
        trials = chosen.trials()
        first = next(trials, None)
        if first is None and only is not None:
            return print_message(f"no trial of {found.id} matches --where")
        rows = chain([first] if first else [], trials)
        cells = (result_row(t, found, key) for t in rows)
        show_table(result_columns(found, key), cells, explain=column_names(found))


def _write_parquet(
    reader: StoreReader, sweep: SweepView, trials: Sequence[TrialView], history: bool
) -> None:
    if sys.stdout.isatty():
        text = "-o parquet is no text for a terminal; run: hpq results -o parquet > results.parquet"
        raise UserError(text, code="usage")
    library("pyarrow", "-o parquet", "pandas pyarrow")
    if history:
        frame = history_frame(reader, sweep, trials, None)
    else:
        shown = trials or islice(reader.trials.all(sweep.id), 1)  # for the columns
        frame = trials_frame([_exact_record(trial, sweep) for trial in shown])[: len(trials)]
    write_parquet(frame, sys.stdout.buffer)


def _exact_record(trial: TrialView, sweep: SweepView) -> dict[str, Json]:
    """Return the row of CSV, also with infinities, which JSON lacks."""
    exact = flatten({"objective": trial.objective, "last": dict(trial.metrics)})
    return {name: exact.get(name, v) for name, v in flat_record(trial, sweep).items()}


def _show_history(curves: Iterable[Curve], output: Format) -> None:
    records = history_records(curves)
    if output is Format.CSV:
        return write_csv(sys.stdout, HISTORY_COLUMNS, records)
    if output.is_data:
        return show_rows(records, output)
    columns = [Column(title=name, right=name in _NUMBERS) for name in HISTORY_COLUMNS]
    rows = ([Span(clean(str(record[name]))) for name in HISTORY_COLUMNS] for record in records)
    show_table(columns, rows)
