"""`hpq results`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Annotated

from typer import Option

from hpq.domain.trial import Curve
from hpq_producer.analysis.records import trial_record
from hpq_producer.commands.common_flags import Output, WhereExpr
from hpq_producer.query.filter import Filter
from hpq_producer.query.history import HISTORY_COLUMNS, history_records, read_curves
from hpq_producer.query.selection import Selection, names_in
from hpq_producer.reports.ranking import column_names, result_columns, result_row, write_trials
from hpq_producer.session import open_session
from hpq_producer.targets import SweepRef
from hpq_producer.terminal.console import print_message, show_table
from hpq_producer.terminal.output import Format, show_rows, write_csv
from hpq_producer.terminal.style import Span
from hpq_producer.terminal.tables import Column
from hpq_producer.terminal.text import clean, trials_of

_NUMBERS = ("trial", "attempt", "step", "value")

# In every table.
_SHOWN = ("", *"objective trial number state step duration duration_s".split())


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
    top: Annotated[
        int | None, Option(min=1, help="Print only the first N trials, after --sort.")
    ] = None,
    where: WhereExpr = None,
    all_metrics: Annotated[
        bool, Option(help="Show every metric in the table, not only the objective.")
    ] = False,
    history: Annotated[
        bool, Option(help="Print every value of every metric of these trials, one per row.")
    ] = False,
) -> None:
    """Print the trials of a sweep that began, or their curves; the table shows what varies.

    CSV, JSON and YAML have all parameters (param.NAME), the last value of each metric (last.NAME)
    and the best value of the sweep's metric (best.NAME).

    Examples:
      hpq results -o csv > results.csv
      hpq results digits-3f2a1 --where 'state == failed' --sort=-duration
      hpq results --where 'state == queued'
      hpq results --history -o jsonl > curves.jsonl
    """
    only = Filter.of(where) if where is not None else None
    with open_session() as session:
        reader = session.reader
        found = session.verifiable(sweep)
        begun = only is None or "state" not in only.names
        chosen = Selection(reader=reader, sweep=found, sort=sort, top=top, where=only, begun=begun)
        if begun and (rest := found.counts.queued):
            queued = trials_of(rest, "queued trial")
            print_message(f"{queued}: hpq results {found.id} --where 'state == queued'")
        if history:
            return _show_history(read_curves(reader, chosen.trials()), output)
        if output is Format.CSV:
            return write_trials(found, chosen.trials)
        if output.is_data:
            return show_rows((trial_record(t, found) for t in chosen.trials()), output)
        metrics = names_in(reader, found)[1] if all_metrics else []
        key = re.sub(r"^-?(param\.|last\.)?", "", sort)
        own = found.metric.name if found.metric else ""
        key = "" if key in (*_SHOWN, own, *found.varying, *metrics) else key
        cells = (result_row(t, found, metrics, key) for t in chosen.trials())
        named = column_names(found, metrics)
        show_table(result_columns(found, metrics, key), cells, explain=named)


def _show_history(curves: Iterable[Curve], output: Format) -> None:
    records = history_records(curves)
    if output is Format.CSV:
        return write_csv(sys.stdout, HISTORY_COLUMNS, records)
    if output.is_data:
        return show_rows(records, output)
    columns = [Column(title=name, right=name in _NUMBERS) for name in HISTORY_COLUMNS]
    rows = ([Span(clean(str(record[name]))) for name in HISTORY_COLUMNS] for record in records)
    show_table(columns, rows)
