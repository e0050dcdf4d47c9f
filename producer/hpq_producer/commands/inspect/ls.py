"""`hpq ls`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any

from typer import Option

from hpq.access.session import Session, open_session
from hpq.domain.budget import Budget
from hpq.domain.metric_spelling import metric_warning
from hpq.domain.status import UnreadableSweep, Worker
from hpq.domain.sweep import SweepState, SweepView
from hpq.domain.trial import flatten
from hpq.domain.usage import short
from hpq.notice import Notice, print_message
from hpq.store.reader import StoreReader
from hpq_producer.commands.common_flags import Output, WhereSweep
from hpq_views.analysis.filter import Filter
from hpq_views.analysis.output_records import OPTIONAL_FIELDS, WAITING, sweep_record
from hpq_views.command_output.sweep_table import COLUMNS, sweep_row
from hpq_views.text.console import show_table
from hpq_views.text.output import Format, show_data
from hpq_views.text.style import Span
from hpq_views.text.tables import Column
from hpq_views.text.text import clean
from hpq_views.why.verdict import explain_disks, explain_files, explain_returns
from hpq_views.why.waiting import explain_waits


def ls(
    n: Annotated[int, Option("-n", min=1, help="Number of sweeps.")] = 20,
    everything: Annotated[bool, Option("--all", "-a", help="List all sweeps.")] = False,
    tag: Annotated[
        str | None, Option(help="List only sweeps with this tag, or with a run that has it.")
    ] = None,
    where: WhereSweep = None,
    output: Output = Format.TABLE,
) -> None:
    """List sweeps, newest first.

    `ended` shows ended/all trials, without cancelled ones unless all are. A sweep is `waiting`
    while no trial of it runs or starts: no worker can run it, or trials of other sweeps run first.
    The tags of its runs (`wandb.init`) are beside its own; names of runs: hpq results SWEEP.

    Examples:
      hpq ls --where 'state in [running, waiting]'
      hpq ls --all --tag paper -o csv
    """
    only = Filter.of(where) if where is not None else None
    with open_session() as session:
        reader = session.reader
        workers = None if output.is_data else reader.workers.live()
        listed = read_list(session, None if everything else n, tag, only, workers)
        found, best, waits = listed.found, listed.best, listed.waits
        if output.is_data:
            show_data(listed.records(), output)
        elif found:
            now_ms = reader.now_ms()
            rows = [sweep_row(one, best, waits, now_ms) for one in found]
            budgets = [getattr(one, "budget", None) for one in found]
            columns = [*COLUMNS, Column(title="GPU-hours", keep=35, right=True, sparse=True)]
            rows = [[*row, Span(_hours(of))] for row, of in zip(rows, budgets, strict=True)]
            show_table(columns, rows)
            if any(budgets):
                print_message(_by_owner(listed.sweeps))
            for line in _reasons(waits):
                print_message(line)
            for sid, words in _doubts(reader, listed.sweeps, best).items():
                print_message(f"! {clean(sid)}: {clean(words)}")
            for line in _unreadable(found):
                print_message(line)
            for notice in explain_disks(workers or ()):
                print_message(f"! {notice}")
        else:
            picks = tag is not None or only is not None
            empty = "no sweep yet; `hpq run FILE` runs one here, `hpq enqueue FILE` queues one"
            print_message("no sweep matches; `hpq ls --all` lists all" if picks else empty)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Sweeps, newest first, with the best objective of each, and why no worker claims some."""

    found: Sequence[SweepView | UnreadableSweep]
    best: Mapping[str, float | None]
    waits: Mapping[str, Notice]

    @property
    def sweeps(self) -> list[SweepView]:
        """Those that can be decoded."""
        return [one for one in self.found if isinstance(one, SweepView)]

    def records(self) -> list[dict[str, Any]]:
        """Return the data of `hpq ls -o json`."""
        return [_record(one, self.best, self.waits) for one in self.found]


def read_list(
    session: Session,
    most: int | None,
    tag: str | None = None,
    only: Filter | None = None,
    workers: Sequence[Worker] | None = None,
) -> Listed:
    """Read the newest sweeps, at most `most`, that have the tag and match the expression.

    `workers` are the live ones, if they were read already.

    Raises:
        UserError: no sweep has a name of the expression.
    """
    reader = session.reader
    picks = tag is not None or only is not None
    ids = reader.sweeps.ids(None if picks else most)
    found, best = reader.sweeps.best_of_each(reader.sweeps.get_each(ids))
    sweeps = [one for one in found if isinstance(one, SweepView)]
    waits = explain_waits(reader, sweeps, session, workers)
    if not picks:
        return Listed(found=found, best=best, waits=waits)
    sweeps = _picked(sweeps, best, waits, tag, only)[:most]
    waits = {one.id: waits[one.id] for one in sweeps if one.id in waits}
    return Listed(found=sweeps, best=best, waits=waits)


def _unreadable(found: Sequence[SweepView | UnreadableSweep]) -> Iterator[str]:
    for one in found:
        if isinstance(one, UnreadableSweep):
            yield f"! {clean(one.id)}: {clean(str(one.notice))}"
        else:
            notices = [*explain_files(one), *explain_returns(one)]
            yield from (f"! {clean(one.id)}: {notice}" for notice in notices)


def _picked(
    sweeps: Sequence[SweepView],
    best: Mapping[str, float | None],
    waits: Mapping[str, Notice],
    tag: str | None,
    where: Filter | None,
) -> list[SweepView]:
    """Return the sweeps with the tag that match the expression; its names are those of -o json."""
    found = [sweep for sweep in sweeps if tag is None or tag in (*sweep.tags, *sweep.run_tags)]
    if where is None:
        return found
    records = [_record(sweep, best, waits) for sweep in found]
    fields = [{**flatten(record), **record} for record in records]
    picked = [s for s, of in zip(found, fields, strict=True) if where.matches(of.get)]
    if fields:
        known = dict.fromkeys([*chain(*fields), *OPTIONAL_FIELDS])
        where.check_names(known, "sweep", (*SweepState, WAITING))
    return picked


def _hours(budget: Budget | None) -> str:
    if budget is None:
        return ""
    return short(budget.used_hours) + (f"/{budget.gpu_hours:.6g}" if budget.budget_ms else "")


def _by_owner(sweeps: Sequence[SweepView]) -> str:
    """Return the GPU-hours that the sweeps with a budget used, by owner."""
    spent: dict[str, Budget] = {}
    for sweep in sweeps:
        if of := sweep.budget:
            sum_ = spent.get(sweep.owner, Budget())
            spent[sweep.owner] = Budget(
                spent_ms=sum_.spent_ms + of.spent_ms, useful_ms=sum_.useful_ms + of.useful_ms
            )
    return "; ".join(f"{clean(owner)}: {of.usage}" for owner, of in spent.items())


def _reasons(waits: Mapping[str, Notice]) -> Iterator[str]:
    """Yield a line for each reason, however many sweeps share it."""
    alike: dict[str, list[str]] = {}
    for sid, why in waits.items():
        text = str(why).replace(sid, "SWEEP")
        alike.setdefault(text, []).append(sid)
    for text, those in alike.items():
        if those[1:]:
            yield f"! {clean(those[0])} and {len(those) - 1} more: {text}"
        else:
            yield f"! {clean(those[0])}: {waits[those[0]]}"


def _doubts(
    reader: StoreReader, sweeps: Sequence[SweepView], best: Mapping[str, float | None]
) -> dict[str, str]:
    """Return warnings, by sweep, of a running trial that reports a near miss of the metric."""
    unsure = [s for s in sweeps if s.metric and s.counts.running and best[s.id] is None]
    eldest = reader.trials.longest_running([s.id for s in unsure])
    found = {s.id: metric_warning(s, [eldest[s.id]]) for s in unsure if s.id in eldest}
    return {sid: words for sid, words in found.items() if words}


def _record(
    one: SweepView | UnreadableSweep,
    best: Mapping[str, float | None],
    waits: Mapping[str, Notice],
) -> dict[str, Any]:
    if isinstance(one, UnreadableSweep):
        why = {"code": one.notice.code, "why": one.notice.text}
        return {"id": one.id, "sweep": one.id, "state": "unreadable", **why}
    return sweep_record(one, best[one.id], waits.get(one.id))
