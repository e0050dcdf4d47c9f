"""`hpq results`."""

from __future__ import annotations

import sys
from typing import Annotated

from typer import Option

from hpq.domain.trial import TrialState
from hpq_producer.analysis.records import trial_record
from hpq_producer.commands.common_flags import Output, WhereExpr
from hpq_producer.query.filter import Filter
from hpq_producer.query.selection import Selection, names_in
from hpq_producer.reports.export import write_csv
from hpq_producer.reports.ranking import result_columns, result_row
from hpq_producer.reports.trial_rows import column_names
from hpq_producer.session import open_session
from hpq_producer.targets import SweepRef
from hpq_producer.terminal.console import show_table
from hpq_producer.terminal.output import Format, show_rows

_SHOWN = ("", "objective", "number", "state", "step", "duration")  # columns of every table


def results(
    sweep: SweepRef = None,
    output: Output = Format.TABLE,
    sort: Annotated[
        str,
        Option(
            metavar="NAME",
            help="Sort by objective, duration, a metric or a parameter; -NAME reverses the order.",
        ),
    ] = "",
    top: Annotated[int | None, Option(min=1, help="Print only the first N trials.")] = None,
    state: Annotated[TrialState | None, Option(help="Print only trials in this state.")] = None,
    where: WhereExpr = None,
    all_metrics: Annotated[
        bool, Option(help="Print every metric, not only the objective.")
    ] = False,
) -> None:
    """Print all trials of a sweep; CSV, JSON and YAML have all parameters.

    Examples:
      hpq results -o csv > results.csv
      hpq results digits-3f2a1 --state failed --sort=-duration
    """
    only = Filter.of(where) if where is not None else None
    with open_session() as session:
        reader = session.reader
        found = session.sweep(sweep)
        chosen = Selection(reader=reader, sweep=found, state=state, sort=sort, top=top, where=only)
        is_csv = output is Format.CSV
        if output.is_data and not is_csv:
            return show_rows((trial_record(t, found) for t in chosen.trials()), output)
        params, metrics = names_in(reader, found) if is_csv or all_metrics else ([], [])
        key = sort.removeprefix("-")
        metrics = [name for name in metrics if all_metrics or name == key]
        if is_csv:
            return write_csv(sys.stdout, chosen.trials(), found, params, metrics)
        own = found.metric.name if found.metric else ""
        key = "" if key in (*_SHOWN, own, *found.varying, *metrics) else key
        rows = (result_row(t, found, metrics, key) for t in chosen.trials())
        named = column_names(found, metrics)
        show_table(result_columns(found, metrics, key), rows, explain=named)
