"""Print trials: the table and the CSV of `hpq results`, and a ranking with bars."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from tempfile import TemporaryFile

from hpq.domain.sweep import SweepView
from hpq.domain.trial import ALTERED, Json, TrialView
from hpq_views.analysis.output_records import column_order, flat_record
from hpq_views.analysis.pareto_front import metrics_of
from hpq_views.analysis.rank_results import Standings
from hpq_views.analysis.selection import field_of
from hpq_views.analysis.trial_row import TrialRow
from hpq_views.text.charts import Scale, bar, ends_of
from hpq_views.text.console import show_legend, show_lines, stdout_info
from hpq_views.text.output import write_csv
from hpq_views.text.style import Line, Span, Style
from hpq_views.text.tables import Column, lay
from hpq_views.text.text import clean, first_of, value

_DIGEST = 64  # characters
_BARS = (30, 24, 18, 12, 8)  # columns: the widest bar that leaves the titles uncut


# What scripts give their runs; left out if no trial has it.
_RUN_COLUMNS = (
    Column(title="name", keep=38, least=8, sparse=True),
    Column(title="tags", keep=30, least=6, sparse=True),
)


def _run_cells(row: TrialRow) -> list[Span]:
    run = row.run
    return [Span(run.get(column.title, "")) for column in _RUN_COLUMNS]


def column_names(sweep: SweepView) -> set[str]:
    """Return the titles that are parameters or metrics."""
    found = {metric.name for metric in metrics_of(sweep)}
    return {clean(name) for name in (*found, *sweep.varying)}


def result_columns(sweep: SweepView, sorted_by: str = "") -> list[Column]:
    """Return the columns of `result_row`; `sorted_by` is the sort key if no other column has it."""
    name = clean(sweep.metric.name) if sweep.metric else "objective"
    return [
        Column(title="#", keep=100, right=True),
        *_RUN_COLUMNS,
        Column(title="state", keep=90),
        *(Column(title=clean(p), keep=70 - i, least=6) for i, p in enumerate(sweep.varying)),
        *([Column(title="seed", keep=65, right=True)] if sweep.replicates > 1 else []),
        Column(title=name, keep=95, right=True),
        *(Column(title=clean(m.name), keep=60, right=True) for m in sweep.objectives[1:]),
        Column(title="rank", keep=66, right=True, sparse=True),
        *([Column(title=clean(sorted_by), keep=93, right=True)] if sorted_by else []),
        Column(title="step", keep=50, right=True),
        Column(title="time", keep=80, right=True),
        Column(title="why", keep=40, least=10),
    ]


def result_row(trial: TrialView, sweep: SweepView, sorted_by: str = "") -> list[Span]:
    """Return the cells of `result_columns` for a trial."""
    row = TrialRow(trial=trial, sweep=sweep)
    return [
        Span(str(trial.id.number)),
        *_run_cells(row),
        row.state,
        *(Span(row.param(p)) for p in sweep.varying),
        *([Span(row.seed)] if sweep.replicates > 1 else []),
        Span(row.objective, Style.BOLD),
        *(Span(row.metric(m.name)) for m in sweep.objectives[1:]),
        Span(row.rank),
        *([Span(_shown(field_of(sweep, trial, sorted_by)))] if sorted_by else []),
        Span(row.step),
        Span(row.time),
        Span(row.why),
    ]


def _shown(found: Json) -> str:
    return "" if found is None else value(found)


def write_trials(sweeps: Sequence[SweepView], trials: Iterable[TrialView]) -> None:
    """Write trials to stdout as CSV.

    A temporary file keeps the rows until all columns are known: a million do not fit in memory.
    """
    by_id = {sweep.id: sweep for sweep in sweeps}
    names = dict[str, None]()
    with TemporaryFile("w+", encoding="ascii") as kept:
        for trial in trials:
            row = flat_record(trial, by_id[trial.id.sweep])
            names |= dict.fromkeys(row)
            kept.write(json.dumps([row.get(name) for name in names]) + "\n")
        kept.seek(0)
        # The first rows lack the last names.
        rows = (dict(zip(names, json.loads(line), strict=False)) for line in kept)
        write_csv(sys.stdout, column_order(names), rows)


def codes_apart(sweeps: Sequence[SweepView]) -> dict[str, str]:
    """Return the name of each sweep's code by its id; {} if all have the same code."""
    firsts: list[SweepView] = []
    names: dict[str, str] = {}
    for sweep in sweeps:
        same = next((one for one in firsts if one.launch.has_code_of(sweep.launch)), None)
        if same is None:
            firsts.append(sweep)
        names[sweep.id] = code_name((same or sweep).launch.code)
    return names if firsts[1:] else {}


def code_name(code: str) -> str:
    """Return the beginning of a digest, or the distributions of a trainer."""
    return code[:8] if len(code) == _DIGEST else clean(code)


def show_ranking(
    sweeps: Sequence[SweepView], trials: Sequence[TrialView], scale: Scale | None = None
) -> None:
    """Print ranked trials, best first; with a scale, a bar for each.

    Of several sweeps, a column has each trial's sweep and, if it differs, another one the code.
    Several metrics have a column each.
    """
    first = sweeps[0]
    by_id = {sweep.id: sweep for sweep in sweeps}
    codes = codes_apart(sweeps)
    metrics = [clean(metric.name) for metric in metrics_of(first)] or ["objective"]
    ranks = not metrics[1:]  # a front has no order
    rows = [TrialRow(trial=trial, sweep=by_id[trial.id.sweep]) for trial in trials]
    varying = list(dict.fromkeys(p for sweep in sweeps for p in sweep.varying))
    has_starts = any(row.start for row in rows)
    columns = [
        *([Column(title="rank", keep=50, right=True)] if ranks else []),
        *([Column(title="sweep", keep=99, least=12)] if sweeps[1:] else []),
        *([Column(title="code", keep=85)] if codes else []),
        Column(title="#", keep=100, right=True),
        *_RUN_COLUMNS,
        *(
            Column(title=clean(p), keep=80 - i, least=None if _are_numbers(rows, p) else 6)
            for i, p in enumerate(varying)
        ),
        *([Column(title="begins at", keep=45)] if has_starts else []),
        Column(title="time", keep=40, right=True),
        *(Column(title=name, keep=95, right=True) for name in metrics),
        *([Column(title="", keep=30, least=_BARS[-1])] if scale else []),
    ]
    cells = [
        [
            *([Span(_rank_of(row.trial, rank, is_one=not sweeps[1:]))] if ranks else []),
            *([Span(row.sweep.id)] if sweeps[1:] else []),
            *([Span(codes[row.sweep.id])] if codes else []),
            Span(str(row.trial.id.number)),
            *_run_cells(row),
            *(Span(row.param(p)) for p in varying),
            *([Span(row.start)] if has_starts else []),
            Span(row.reused or row.time),
            *(
                Span(row.failed, Style.RED) if row.failure is ALTERED else Span(text, Style.BOLD)
                for text in row.results
            ),
        ]
        for rank, row in enumerate(rows, start=1)
    ]
    names = set().union(*map(column_names, sweeps))
    total = stdout_info().columns
    for room in _BARS if scale else (0,):
        # Bars shrink before titles do; a cut bar would show a wrong length.
        shown = [
            [*row, Span(_bar_of(trial, scale, room), Style.GREEN)] if scale else row
            for row, trial in zip(cells, trials, strict=True)
        ]
        layout = lay(columns, shown, total)
        if not layout.legend(names):
            break
    show_lines([layout.header(), *(layout.row(row) for row in shown)])
    if scale and layout.widths[-1] is not None and (words := ends_of(scale)):
        show_lines([[Span(f"({words})", Style.DIM)]])
    show_legend(layout, names)


def standing_lines(standings: Standings, shown: int) -> Iterator[Line]:
    """Yield how many trials of a front are not shown, and how many others are not in it."""
    sweep, front = standings.sweep, standings.front
    members = front.trials if front else ()
    if (rest := len(members) - shown) > 0:
        yield [Span(f"… and {rest:,} more on the front; -n {len(members)} shows all", Style.DIM)]
    words = list[str]()
    if front and members:
        words += [f"front of {len(members):,}", f"{front.dominated:,} dominated"]
    if infeasible := front.infeasible if front else len(standings.infeasible):
        limits = ", ".join(map(str, sweep.constraints))
        words.append(f"{infeasible:,} infeasible ({clean(limits)})")
    if front and front.unmeasured:
        words.append(f"{front.unmeasured:,} without a finite value of every metric")
    if words:
        yield [Span(", ".join(words), Style.DIM)]
    if any(trial.group for trial in members):
        text = "values are means of seeds; no line judges whether a lead is larger than the noise"
        yield [Span(text, Style.DIM)]
    if standings.missing:
        yield [Span(f"no finished trial reported {first_of(standings.missing)}", Style.YELLOW)]


def _are_numbers(rows: Sequence[TrialRow], name: str) -> bool:
    """Return True if a parameter has only numbers, which must not be cut."""
    return all(re.fullmatch(r"[-+.0-9e]*", row.param(name)) for row in rows)


def _rank_of(trial: TrialView, place: int, *, is_one: bool) -> str:
    """Return the rank in the sweep, or among several sweeps."""
    return str(trial.standing.rank if is_one and trial.standing else place)


def _bar_of(trial: TrialView, scale: Scale, columns: int) -> str:
    return "" if trial.objective is None else bar(trial.objective, scale, columns)
