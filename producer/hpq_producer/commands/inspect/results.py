"""`hpq results`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hpq.domain.trial import TrialState
from hpq_producer.analysis.records import trial_record
from hpq_producer.commands.common_flags import AsJson, WhereExpr
from hpq_producer.query.filter import Filter
from hpq_producer.query.selection import Selection, names_in
from hpq_producer.reports.export import write_csv
from hpq_producer.reports.ranking import result_columns, result_row
from hpq_producer.reports.trial_rows import column_names
from hpq_producer.session import open_session
from hpq_producer.targets import SweepRef
from hpq_producer.terminal.console import show_json_rows, show_table


def results(
    sweep: SweepRef = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="As CSV, all parameters.")] = False,
    as_json: AsJson = False,
    sort: Annotated[
        str, typer.Option(help="objective, duration, a metric or parameter; -NAME turns it.")
    ] = "",
    top: Annotated[int | None, typer.Option(min=1, help="Only the first few.")] = None,
    state: Annotated[TrialState | None, typer.Option(help="Only of this state.")] = None,
    where: WhereExpr = None,
    all_metrics: Annotated[bool, typer.Option(help="Every metric, not only the sweep's.")] = False,
) -> None:
    """All trials as a table, CSV or JSON."""
    only = Filter.of(where) if where is not None else None
    with open_session() as session:
        reader = session.reader
        found = session.sweep(sweep)
        chosen = Selection(reader=reader, sweep=found, state=state, sort=sort, top=top, where=only)
        if as_json:
            return show_json_rows(trial_record(t, found) for t in chosen.trials())
        params, metrics = names_in(reader, found) if as_csv or all_metrics else ([], [])
        metrics = metrics if all_metrics else []
        if as_csv:
            return write_csv(sys.stdout, chosen.trials(), found, params, metrics)
        rows = (result_row(t, found, metrics) for t in chosen.trials())
        named = column_names(found, metrics)
        show_table(result_columns(found, metrics), rows, explain=named)
