"""Read from Redis what one frame of `hpq watch` shows: as much as fits the screen, never more.

Rows and curves of ended trials are kept until an event names the trial, so that a frame reads what
moves only.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hpq.access.session import Session
from hpq.domain.status import SweepStatus
from hpq.domain.sweep import SweepView
from hpq.domain.trial import Point, TrialId, TrialView
from hpq.errors import NotFound
from hpq.notice import Notice
from hpq.redis.round_trips import Question, together
from hpq.search.replicates import first_of_set
from hpq.store.reader import StoreReader
from hpq_views.analysis.history import Attempt, attempts_of
from hpq_views.analysis.pareto_front import Front, averaged
from hpq_views.analysis.rank_results import read_standings
from hpq_views.analysis.trial_row import TrialRow
from hpq_views.analysis.winner_evidence import Winner, judge_winner
from hpq_views.command_output.logs import LINES, last_lines
from hpq_views.command_output.show import trial_lines
from hpq_views.command_output.sweep_table import SweepList, read_sweeps
from hpq_views.stored_files import holder_of
from hpq_views.text.style import Line, TerminalInfo
from hpq_views.watch.keys import View
from hpq_views.why.waiting import explain_waiting

_KEPT = 400  # trials whose rows and curves are kept
_RUNNING = 64  # running trials that the ETA counts one by one
_SWEEPS = 100

Curve = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """One trial in full."""

    trial: TrialView
    curves: Mapping[str, Sequence[Point]]
    attempts: Sequence[Attempt]
    log: str
    holder: TrialView | None = None  # has its files; None: itself

    def lines(self, row: TrialRow, columns: int) -> Iterator[Line]:
        """Yield what `hpq show` prints of the trial, with the end of the log."""
        return trial_lines(
            row,
            self.curves,
            {},
            self.log,
            attempts=self.attempts,
            holder=self.holder,
            columns=columns,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a frame shows of one sweep; `first` is the place of the first of `rows` in the list."""

    status: SweepStatus | None = None  # None: the list of sweeps is shown
    rows: Sequence[TrialView] = ()
    first: int = 0
    total: int = 0
    curves: Mapping[int, Curve] = field(default_factory=dict)
    winner: Winner | None = None
    front: Front | None = None  # of several metrics; None: not read yet
    not_taken: Notice | None = None
    stale: str = ""  # why the status is not of now
    on_quit: str = "quit"  # what the key q does
    is_live: bool = True  # False: printed once, without keys, as short as it may be
    is_searching: bool = False  # the filter reads the trials
    detail: Detail | None = None
    importance: Sequence[Line] = ()
    sweeps: SweepList | None = None

    @property
    def sweep_status(self) -> SweepStatus:
        """The status, which a scene of one sweep has."""
        assert self.status is not None
        return self.status


@dataclass(slots=True)
class _KeptCurve:
    """What was read of a trial's curve: the last entry's id, and steps and values in turn."""

    last: str = ""
    flat: array[float] = field(default_factory=lambda: array("d"))
    is_whole: bool = False  # nothing follows, since the trial has ended

    @property
    def points(self) -> Curve:
        return list(zip(self.flat[::2], self.flat[1::2], strict=True))


class SceneReader:
    """Reads scenes of one sweep, and of the list of sweeps."""

    def __init__(self, reader: StoreReader, session: Session | None = None) -> None:
        self._reader = reader
        self._session = session
        self.found: list[int] | None = None  # what the filter picks; None: not known yet
        self.front: Front | None = None
        self._rows: dict[int, TrialView] = {}
        self._curves: dict[int, _KeptCurve] = {}
        self._winner: tuple[object, Winner | None] = (None, None)
        self._sid = ""

    def forget(self, numbers: Collection[int]) -> None:
        """Read these trials anew: events named them."""
        for number in numbers:
            self._rows.pop(number, None)
            self._curves.pop(number, None)

    def sweeps(self) -> SweepList:
        """The newest sweeps."""
        return read_sweeps(self._reader, _SWEEPS, self._session)

    def read(self, view: View, terminal: TerminalInfo, *, is_live: bool = True) -> Scene:
        """Everything that a frame of this size shows."""
        if view.sweep != self._sid:
            self._rows = {}
            self._curves = {}
            self._sid = view.sweep
        status, (numbers, total) = self._reader.status_and(
            view.sweep,
            _RUNNING,
            lambda sweep: self._numbers(view, sweep, terminal.rows),
            top=1,
            recent=3,
        )
        if not is_live and status.sweep.objectives:
            self.front = read_standings(self._reader, status.sweep).front
            ((numbers, total),) = self._reader.ask(self._numbers(view, status.sweep, terminal.rows))
        first = view.top
        if first and not numbers:  # the list has become shorter than where the cursor was
            first = max(0, total - terminal.rows)
            shown = View(sweep=view.sweep, order=view.order, filter=view.filter, top=first)
            question = self._numbers(shown, status.sweep, terminal.rows)
            ((numbers, total),) = self._reader.ask(question)
        rows = self._rows_of(status.sweep, view.order, numbers)
        return Scene(
            status=status,
            rows=rows,
            first=first,
            total=total,
            curves=self._points(status.sweep, rows),
            winner=self._judged(status),
            front=self.front,
            not_taken=explain_waiting(status, self._session),
            is_live=is_live,
            is_searching=bool(view.filter) and self.found is None,
            detail=self._detail(status.sweep, view.trial) if view.trial else None,
        )

    def _numbers(self, view: View, sweep: SweepView, rows: int) -> Question[tuple[list[int], int]]:
        """Ask for the numbers of the trials that fit the screen, and how many there are."""
        if view.filter:
            found = self.found or []
            return found[view.top : view.top + rows], len(found)
        ranking, front = self._reader.ranking, []
        if view.order == "best" and self.front is not None:
            front = [_first(trial) for trial in self.front.trials]
        first, end = (0 if front else view.top), view.top + rows
        page, total = yield from together(
            ranking.page_question(sweep, view.order, first, end + len(front) - first),
            ranking.rows_question(sweep, view.order),
        )
        if not front:
            return page, total
        members = set(front)
        rest = [n for n in page if n not in members]
        return [*front, *rest][view.top : end], total

    def _rows_of(self, sweep: SweepView, order: str, numbers: Sequence[int]) -> Sequence[TrialView]:
        """Return a row for each number; replicates with results, best first, are their mean."""
        found = self._trials(sweep.id, numbers)
        if order == "best" and sweep.replicates > 1:
            firsts = [n for n in found if n == first_of_set(sweep, n)]
            found |= self._settings(sweep, firsts, found)
        return list(found.values())

    def _settings(
        self, sweep: SweepView, firsts: Sequence[int], found: Mapping[int, TrialView]
    ) -> dict[int, TrialView]:
        if not sweep.objectives:
            groups = self._reader.ranking.groups(sweep, firsts)
            return {
                group.first: replace(found[group.first], objective=group.mean, group=group)
                for group in groups
            }
        last = sweep.counts.total
        runs = [n for first in firsts for n in range(first, first + sweep.replicates) if n <= last]
        return {_first(t): t for t in averaged(sweep, self._trials(sweep.id, runs).values())}

    def _trials(self, sid: str, numbers: Sequence[int]) -> dict[int, TrialView]:
        missing = [n for n in numbers if n not in self._rows]
        found = {t.id.number: t for t in self._reader.trials.get_many(sid, missing)}
        found |= {n: self._rows[n] for n in numbers if n in self._rows}
        if len(self._rows) > _KEPT:
            self._rows = {}
        self._rows |= {n: t for n, t in found.items() if t.state.is_terminal}
        return {n: found[n] for n in numbers}

    def _points(self, sweep: SweepView, rows: Sequence[TrialView]) -> dict[int, Curve]:
        if sweep.metric is None:
            return {}
        if len(self._curves) > _KEPT:
            self._curves = {}
        wanted = [t for t in rows if t.step or t.claimed_ms]
        asked = [t for t in wanted if not self._curve(t).is_whole]
        after = [(t.trained, self._curve(t).last) for t in asked]
        new = self._reader.trials.new_points(after, sweep.metric.name) if after else []
        for trial, (points, last) in zip(asked, new, strict=True):
            kept = self._curve(trial)
            kept.flat.extend(v for p in points for v in (p.step, p.value))
            kept.last, kept.is_whole = last, trial.state.is_terminal
        return {t.id.number: self._curve(t).points for t in wanted}

    def _curve(self, trial: TrialView) -> _KeptCurve:
        return self._curves.setdefault(trial.id.number, _KeptCurve())

    def _judged(self, status: SweepStatus) -> Winner | None:
        """Return the verdict of `best` and `summary`; before the end, the lead changes hands."""
        if not status.sweep.state.is_over:
            return None
        key = [status.last_event, *((t.id, t.objective) for t in status.best)]
        if self._winner[0] != key:
            self._winner = (key, judge_winner(self._reader, status.sweep))
        return self._winner[1]

    def _detail(self, sweep: SweepView, number: int) -> Detail | None:
        found = TrialId(sweep=sweep.id, number=number)
        try:
            trial = self._reader.trials.get(found)
        except NotFound:
            return None
        curves, events, (log, _) = self._reader.ask(
            self._reader.trials.histories_question(trial.trained, [*trial.metrics]),
            self._reader.events.of_trials_question([found]),
            self._reader.trials.log_question(trial.trained),
        )
        return Detail(
            trial=trial,
            holder=holder_of(self._reader, trial),
            curves=curves,
            attempts=attempts_of(events, trial),
            log=last_lines(log, LINES).decode("utf-8", "replace"),
        )


def _first(trial: TrialView) -> int:
    """Return the number of the first of a trial's replicates, if it stands for them."""
    return trial.group.first if trial.group else trial.id.number
