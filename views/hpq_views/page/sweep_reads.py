"""Read what the page shows of a sweep: counts, trials and curves of one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hpq.domain.status import Event
from hpq.search.replicates import first_of_set
from hpq.settings import Settings
from hpq.store.reader import StoreReader
from hpq_views.analysis.importance import Importance
from hpq_views.analysis.rank_results import feasible_result, read_standings
from hpq_views.analysis.summary import SweepSummary
from hpq_views.analysis.winner_evidence import MOST_JUDGED, judge_winner
from hpq_views.page.curve_reads import read_first, readings_of
from hpq_views.page.curves import POINTS, Curve, points_of, thinned
from hpq_views.page.sweep_data import SweepData

_MOST_TRIALS = 10_000  # of a page: the first by rank
_RUNNING = 64  # running trials that the ETA counts one by one
_EVENTS = 1_000  # of one read; if there are more, all trials are read again
_READS = 5  # at most, of a sweep that changes during each


def read_sweep(
    reader: StoreReader, sid: str, settings: Settings, most_points: int = 0
) -> SweepData:
    """Read a sweep with its trials and the curves of its metric.

    A curve has 50 points, or more if all have at most `most_points`.

    Raises:
        NotFound: the sweep does not exist, or was removed meanwhile.
    """
    data = _read(reader, sid, settings, most_points=most_points)
    return _reread(reader, settings, data, most_points)


def read_changes(
    reader: StoreReader,
    settings: Settings,
    before: SweepData,
    known: Mapping[str, Importance] | None = None,
) -> SweepData:
    """Read only the trials of a sweep that changed or run; return `before` if nothing changed.

    Raises:
        NotFound: the sweep was removed meanwhile.
    """
    events = reader.events.read(before.sweep.id, before.status.last_event, count=_EVENTS)
    if not events and not before.status.running:
        return before
    before = replace(before, known=known)
    return _reread(reader, settings, _update(reader, settings, before, events))


def _reread(
    reader: StoreReader, settings: Settings, data: SweepData, most_points: int = 0
) -> SweepData:
    """Read again what changed during a read: counts and trials are then of one moment.

    Trials that end faster than they are read leave a difference after a few reads.
    """
    for _ in range(_READS):
        events = reader.events.read(data.sweep.id, data.status.last_event, count=_EVENTS)
        if not events:
            break
        data = _update(reader, settings, data, events, most_points)
    return data


def _update(
    reader: StoreReader,
    settings: Settings,
    before: SweepData,
    events: Sequence[Event],
    most_points: int = 0,
) -> SweepData:
    sid, known = before.sweep.id, before.known
    if len(events) == _EVENTS:
        return _read(reader, sid, settings, known=known, most_points=most_points)
    return _read(reader, sid, settings, before, events, known, most_points)


def _read(
    reader: StoreReader,
    sid: str,
    settings: Settings,
    before: SweepData | None = None,
    events: Sequence[Event] = (),
    known: Mapping[str, Importance] | None = None,
    most_points: int = 0,
) -> SweepData:
    """Read a sweep; with an earlier moment of it and the events since, what changed or runs."""
    status = reader.status(sid, _RUNNING, top=2, recent=3)
    of_all = before.of_all if before else None
    standings = before.standings_of_all if before else None
    unshown = dict(before.unshown) if before else {}
    if before is not None:
        # An event during this read is read next: its trial may not be among these.
        seen = events[-1].id if events else before.status.last_event
        status = replace(status, last_event=seen)
        changed = {event.trial for event in events if event.trial}
        wanted = {*changed, *(t.id.number for t in status.running)}
        fresh = reader.trials.get_many(sid, sorted(wanted))
    elif status.sweep.counts.total <= _MOST_TRIALS:
        fresh = list(reader.trials.begun(sid))
    else:
        seeds = status.sweep.replicates
        page = reader.ranking.page(status.sweep, "best", 0, _MOST_TRIALS // seeds)
        firsts = {first_of_set(status.sweep, number) for number in page}
        shown = {number for first in firsts for number in range(first, first + seeds)}
        of_all, fresh = SweepSummary(status.sweep, settings.cache), []
        for trial in reader.trials.begun(sid):
            of_all.add([trial])
            if trial.id.number in shown:
                fresh.append(trial)
                continue
            if (result := feasible_result(status.sweep, trial)) is not None:
                unshown[trial.id.number] = result
        if status.sweep.objectives:
            standings = read_standings(reader, status.sweep)
            fresh += reader.trials.get_many(sid, sorted(standings.members - shown))
    old = before.trials if before else ()
    # The first trial of a setting stands for it, also while it waits behind its replicates.
    firsts = {first_of_set(status.sweep, trial.id.number) for trial in fresh}
    missing = firsts - {trial.id.number for trial in (*old, *fresh)}
    fresh += reader.trials.get_many(sid, sorted(missing))
    trials = {t.id.number: t for t in (*old, *fresh)}
    points = max(POINTS, points_of(len(trials), most_points))
    longest = before.longest if before else 0
    curves = dict[int, Curve]()
    for number, curve in read_first(reader, status.sweep, fresh):
        longest = max(longest, len(curve))
        curves[number] = thinned(curve, points)
    readings = before.readings if before else frozenset[str]()
    if not readings and not any(trial.usage for trial in trials.values()):
        readings = readings_of(reader, status.running[:1])
    news = [*(t.objective for t in fresh), *(v for curve in curves.values() for _, v in curve)]
    every = [trials[n] for n in sorted(trials)]
    data = SweepData(
        status=status,
        trials=every,
        curves={**(before.curves if before else {}), **curves},
        winner=None,
        unshown=unshown,
        readings=readings,
        known=known,
        cache=settings.cache,
        of_all=of_all,
        standings_of_all=standings,
        points=points,
        longest=longest,
        was_log=None
        if before is None
        else before.is_log and not any(v is not None and v <= 0 for v in news),
    )
    best = data.standings.best(trials, MOST_JUDGED)  # of this moment, as all else on the page
    winner = judge_winner(reader, status.sweep, best, None if of_all else every)
    lead = data.front.trials if data.front else best
    return replace(data, status=replace(status, best=tuple(lead[:2])), winner=winner)
