"""Render sweeps as rows for `hpq ls`, `hpq watch --all` and `hpq`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpq.access.session import Session
from hpq.domain.status import UnreadableSweep
from hpq.domain.sweep import SweepView
from hpq.domain.trial import TrialState
from hpq.notice import Notice
from hpq.store.reader import StoreReader
from hpq_views.analysis.output_records import state_word
from hpq_views.text.style import Span, Style
from hpq_views.text.tables import Column
from hpq_views.text.text import clean, duration, measure, progress
from hpq_views.why.verdict import state_span
from hpq_views.why.waiting import explain_waits

COLUMNS = (
    Column(title="sweep", keep=100, least=24),
    Column(title="state", keep=90),
    Column(title="ended", keep=80, right=True),
    Column(title="other", keep=55, sparse=True),
    Column(title="best", keep=70, right=True),
    Column(title="metric", keep=30, least=6),
    Column(title="age", keep=60, right=True),
    Column(title="owner", keep=50, least=4),
    Column(title="queue", keep=40, least=4),
    Column(title="project", keep=25, least=4, sparse=True),
    Column(title="tags", keep=20, least=4, sparse=True),
)
_RUN_TAGS = 6  # in a row
_OTHER_ENDS = (TrialState.FAILED, TrialState.PRUNED, TrialState.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepList:
    """Sweeps, with the best objectives of those that can be read, and why they wait for workers."""

    sweeps: Sequence[SweepView | UnreadableSweep] = ()
    best: Mapping[str, float | None] = field(default_factory=dict)
    waits: Mapping[str, Notice] = field(default_factory=dict)
    at_ms: int = 0

    def rows(self) -> list[list[Span]]:
        """Return one row of COLUMNS for each sweep."""
        return [sweep_row(one, self.best, self.waits, self.at_ms) for one in self.sweeps]


def read_sweeps(reader: StoreReader, newest: int, session: Session | None) -> SweepList:
    """Read the N newest sweeps, unfinished ones first, then those that cannot be decoded."""
    found, best = reader.sweeps.best_of_each(reader.sweeps.get_each(reader.sweeps.ids(newest)))
    sweeps = [one for one in found if isinstance(one, SweepView)]
    sweeps.sort(key=lambda sweep: sweep.state.is_over)
    unreadable = [one for one in found if isinstance(one, UnreadableSweep)]
    return SweepList(
        sweeps=[*sweeps, *unreadable],
        best=best,
        waits=explain_waits(reader, sweeps, session),
        at_ms=reader.now_ms(),
    )


def read_rows(session: Session, sweeps: Sequence[SweepView]) -> list[list[Span]]:
    """Return one row of COLUMNS for each of these sweeps, in their order."""
    reader = session.reader
    read, best = reader.sweeps.best_of_each(sweeps)
    waits = explain_waits(reader, sweeps, session)
    return SweepList(sweeps=read, best=best, waits=waits, at_ms=reader.now_ms()).rows()


def read_state_word(session: Session, sweep: SweepView) -> str:
    """Return the word for a sweep's state, as `hpq ls` shows it."""
    return state_word(sweep, explain_waits(session.reader, [sweep], session).get(sweep.id))


def _metric_of(sweep: SweepView) -> str:
    """`val_acc`; `val_acc +1` for two metrics, of which `best` shows the first one's."""
    more = f" +{len(sweep.objectives) - 1}" if sweep.objectives else ""
    return f"{sweep.metric.name}{more}" if sweep.metric else ""


def _tags_of(sweep: SweepView) -> str:
    """Return the tags of a sweep, and the first ones of its runs."""
    more = ["…"] if len(sweep.run_tags) > _RUN_TAGS else []
    return " ".join(dict.fromkeys((*sweep.tags, *sweep.run_tags[:_RUN_TAGS], *more)))


def sweep_row(
    one: SweepView | UnreadableSweep,
    best: Mapping[str, float | None],
    waits: Mapping[str, Notice],
    now_ms: int,
) -> list[Span]:
    """Return the cells of COLUMNS; `waits` has the sweeps without workers."""
    if isinstance(one, UnreadableSweep):
        blanks = [Span("")] * (len(COLUMNS) - 2)
        return [Span(clean(one.id)), Span("unreadable", Style.RED), *blanks]
    leader = best[one.id]
    return [
        Span(one.id),
        state_span(one, waits.get(one.id)),
        Span(progress(one.counts)),
        Span(", ".join(f"{n:,} {state}" for state in _OTHER_ENDS if (n := one.counts.of(state)))),
        Span("" if leader is None else measure(leader)),
        Span(clean(_metric_of(one))),
        Span(duration(now_ms - one.created_ms)),
        Span(clean(one.owner)),
        Span(clean(one.queue)),
        Span(clean(one.project)),
        Span(clean(_tags_of(one))),
    ]
