"""A sweep as plain lines: what `hpq watch` prints off a terminal, a line an event."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TextIO

from hpq.access.session import Session
from hpq.domain.status import Event, SweepStatus
from hpq.domain.sweep import SweepState, SweepView
from hpq.domain.trial import FailureKind, TrialState, TrialView
from hpq.notice import Notice, plural
from hpq.redis.client import TRANSIENT
from hpq.store.reader import StoreReader
from hpq_views.analysis.early_termination import describe_prune_event
from hpq_views.analysis.limits import in_words
from hpq_views.analysis.rank_results import read_standings
from hpq_views.analysis.trial_row import TrialRow
from hpq_views.follow import SweepUpdate, follow, is_over_or_held
from hpq_views.text.console import terminal_info
from hpq_views.text.style import Line, flow, paint, plain
from hpq_views.text.text import clean, duration, failure_words, measure
from hpq_views.why.turn import without_counts
from hpq_views.why.verdict import (
    explain_unreported_metric,
    front_items,
    needed_actions,
    note_lines,
    status_lines,
)
from hpq_views.why.waiting import explain_waiting

_ENDS = frozenset(s.value for s in TrialState if s.is_terminal)
_SWEEP = {
    "pause": "paused",
    "resume": "resumed",
    "stop": "stopping: waiting trials cancelled: {n}",
    "cancel": "trials cancelled: {n}",
}


def _count(event: Event, field: str = "count", default: str = "?") -> str:
    """Return a count of an event with separators, or as another client wrote it."""
    text = clean(event.fields.get(field, default))
    return f"{int(text):,}" if text.isdecimal() else text


def _noun(count: str, noun: str) -> str:
    """Return a noun as it follows the count of an event."""
    return plural(1 if count == "1" else 2, noun)


def event_line(event: Event, trial: TrialView | None, sweep: SweepView) -> str:
    """Return an event as one line; `trial` is its trial as it is now, if it has one."""
    if event.what == "created":
        count = _count(event)
        if count == "0":
            return f"{sweep.id}: hpq chooses the trials while the sweep runs"
        return f"{sweep.id}: {count} {_noun(count, 'trial')} queued"
    if event.what == "added":
        count = _count(event)
        return f"{sweep.id}: {count} more {_noun(count, 'trial')} queued"
    if event.what == "held":
        cause, why = clean(event.fields.get("id", "")), clean(event.fields.get("why", ""))
        return f"held: {why or f'no waiting trial fits {cause}'}"
    if event.what == "budget":
        return "80 % of budget.gpu_hours are used"
    if trial is None:
        if event.what == "set":
            changes = in_words({k: v for k, v in event.fields.items() if k != "touched"})
            return clean(f"limits changed: {changes}" if changes else "limits changed")
        if event.what not in _SWEEP:  # another client wrote it
            return clean(event.what)
        return _SWEEP[event.what].format(n=_count(event, "touched", "0"))
    words = [f"#{event.trial}", *_trial_words(event, trial, sweep)]
    return f"{' '.join(words)}  {TrialRow(trial=trial, sweep=sweep).pairs(sweep.varying)}".rstrip()


def running_line(trial: TrialView, sweep: SweepView, at_ms: int) -> str:
    """Return the line of a trial that started before the first line."""
    again = f", attempt {trial.attempt}" if trial.attempt > 1 else ""
    taken = duration(at_ms - trial.claimed_ms)
    line = f"#{trial.id.number} running on {clean(trial.worker)} for {taken}{again}"
    return f"{line}  {TrialRow(trial=trial, sweep=sweep).pairs(sweep.varying)}".rstrip()


def _trial_words(event: Event, trial: TrialView, sweep: SweepView) -> list[str]:
    fields = {name: clean(text) for name, text in event.fields.items()}
    if event.what == "claimed":
        again = f", attempt {event.attempt}" if event.attempt > 1 else ""
        return [f"started on {fields.get('worker', '?')}{again}"]
    if event.what == "requeued":
        return [f"requeued: {fields.get('reason', '')}"]
    if event.what == "prune":
        return [describe_prune_event(event, sweep)]
    if event.what == "target":
        cancelled = _count(event, "touched", "0")
        return [f"reached the target; waiting trials cancelled: {cancelled}"]
    if event.what == "restarted":
        return [f"restarted: {fields.get('why', '')}"]
    if event.what in _ENDS:
        return [event.what, *_end_words(event, fields, trial, sweep)]
    if event.what == "suggested" and fields.get("by"):
        return [f"suggested by {fields['by']}"]
    if event.what == "reused":
        return [f"finished: the result of {fields.get('from', '?')}", *_objective(fields, sweep)]
    return [{"retried": "queued again"}.get(event.what, clean(event.what))]


def _objective(fields: dict[str, str], sweep: SweepView) -> list[str]:
    if not sweep.metric or not fields.get("objective"):
        return []
    return [f"{clean(sweep.metric.name)}={measure(float(fields['objective']))}"]


def _end_words(
    event: Event, fields: dict[str, str], trial: TrialView, sweep: SweepView
) -> list[str]:
    out = _objective(fields, sweep)
    if fields.get("kind"):
        why = f": {fields.get('error', '')}"  # a notice says it once of an unreported metric
        why = "" if fields["kind"] == FailureKind.UNREPORTED else why
        out.append(f"({failure_words(fields['kind'])}{why})")
    if trial.attempt == event.attempt and trial.claimed_ms:
        out.append(f"in {duration(trial.duration_ms)}")
    return out


_RUNNING = 16  # running trials that are printed first, with their phases
_WIDE = 10_000  # columns of a line that is not to be broken

Leave = Callable[[], object | None]


def say_verdict(
    reader: StoreReader,
    status: SweepStatus,
    stream: TextIO,
    why: Notice | None,
    *,
    printed: Collection[str] = (),
) -> None:
    """Print the verdict and what needs the user, but no notice whose id is in `printed`.

    `why` is why no worker claims the trials.
    """
    terminal = terminal_info(stream, os.environ)
    if not terminal.tty:  # a pipe has no width, and its reader greps for whole lines
        terminal = replace(terminal, columns=_WIDE)
    front: Sequence[Line] = ()
    with suppress(*TRANSIENT):  # the verdict stands without
        front = _front_of(reader, status.sweep)
    lines = status_lines(status, terminal.columns, why, front=front)
    for notice in needed_actions(status, why):
        if notice.code in printed:
            continue
        lines += note_lines(notice.text if terminal.tty else str(notice), terminal.columns)
    for line in lines:
        print(paint(line, terminal), file=stream)
    stream.flush()


def _front_of(reader: StoreReader, sweep: SweepView) -> Sequence[Line]:
    front = read_standings(reader, sweep).front if sweep.objectives else None
    return front_items(front) if front else ()


def print_lines(
    session: Session, sid: str, stream: TextIO, leave: Leave = lambda: None
) -> SweepState:
    """Print events until the sweep is over or held, or `leave` gives a reason; then the verdict.

    Raises:
        NotFound: the sweep is not there, or was removed meanwhile.
    """
    reader = session.reader
    changes = follow(reader, sid, rows=_RUNNING, with_trials=True)
    status = next(changes).status
    stuck = explain_waiting(status, session)
    print(plain(flow(status_lines(status, _WIDE, stuck)[:1], _WIDE)[0]), file=stream)
    for trial in status.running:
        print(running_line(trial, status.sweep, status.at_ms), file=stream)
    if (more := status.sweep.counts.running - len(status.running)) > 0:
        print(f"… and {more} more are running", file=stream)
    printed: set[str] = set()
    begun = {t.id.number for t in status.running}  # their start has been printed
    reasons: set[str] = set()  # why the preferred sampler did not suggest
    while True:
        stuck = explain_waiting(status, session)
        for key, text in _notes(status, begun, stuck):
            if key not in printed:
                print(text, file=stream)
            printed.add(key)
        stream.flush()
        if is_over_or_held(status) or leave() is not None:
            break
        change = next(changes)
        status = change.status
        for text in event_lines(change, reasons):
            print(text, file=stream)
        begun |= {event.trial for event in change.events}
    say_verdict(reader, status, stream, stuck, printed=printed)
    return status.sweep.state


def lines_since(
    reader: StoreReader, sweep: SweepView, after: str, most: int
) -> list[tuple[str, str]]:
    """Return (id, line) of at most `most` events after an id, oldest first."""
    events = reader.events.read(sweep.id, after, count=most)
    numbers = sorted({event.trial for event in events if event.trial})
    trials = {trial.id.number: trial for trial in reader.trials.get_many(sweep.id, numbers)}
    return [(event.id, event_line(event, trials.get(event.trial), sweep)) for event in events]


def event_lines(change: SweepUpdate, reasons: set[str]) -> list[str]:
    """Return a line for each event; a reason of a sampler in `reasons` was printed before."""
    return [
        event_line(_shortened(event, reasons), change.trials.get(event.trial), change.status.sweep)
        for event in change.events
    ]


def _shortened(event: Event, reasons: set[str]) -> Event:
    """Return an event without the reason of its sampler if that is one of `reasons`; else add it.

    `suggested by tpe as torch is missing` would be in the line of every trial.
    """
    by, _, reason = event.fields.get("by", "").partition(" as ")
    if event.what == "suggested" and reason in reasons:
        return replace(event, fields={**event.fields, "by": by})
    reasons.add(reason)
    return event


def _notes(
    status: SweepStatus, begun: Collection[int], stuck: Notice | None
) -> Iterator[tuple[str, str]]:
    """Yield phases before the first step, and what needs the user; a key is printed once."""
    # Only of trials that have begun in the lines: the status may be ahead of the events.
    for trial in status.running:
        if trial.phase and not trial.step and trial.id.number in begun:
            text = f"#{trial.id.number} {clean(trial.phase)}"
            yield text, text
    if stuck:
        yield without_counts(str(stuck)), f"! {stuck}"
    if unmet := explain_unreported_metric(status):
        yield unmet.code, f"! {unmet}"  # of the first trial alone
