"""A sweep as plain lines: what watch prints off a terminal, and the verdict that it leaves.

A lifecycle event as one plain line: what watch prints where there is no terminal. Pure.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import replace
from typing import TextIO

from hpq.codes import Notice
from hpq.domain.snapshot import Event, Snapshot
from hpq.domain.sweep import Sweep, SweepState
from hpq.domain.trainer_specs import SHIPPED
from hpq.domain.trial import Trial, TrialState
from hpq.store.reader import View
from hpq_producer.analysis.early_termination import told_words
from hpq_producer.analysis.scores import pairs
from hpq_producer.cluster.pods import Crew, Pods
from hpq_producer.diagnosis import pods
from hpq_producer.diagnosis.verdict import doubtful, needs_you, note, verdict
from hpq_producer.diagnosis.waiting import OF_A_CLUSTER, gist, why_behind, why_full, why_not_taken
from hpq_producer.query.follow import Change, follow, stands
from hpq_producer.session import Session
from hpq_producer.sweep_limits import in_words
from hpq_producer.terminal.console import look_of
from hpq_producer.terminal.style import flow, paint, plain
from hpq_producer.terminal.text import clean, duration, number

_ENDS = frozenset(s.value for s in TrialState if s.is_terminal)
_SWEEP = {
    "pause": "paused",
    "resume": "resumed",
    "stop": "stopping: waiting trials cancelled: {n}",
    "cancel": "trials cancelled: {n}",
}


def event_line(event: Event, trial: Trial | None, sweep: Sweep) -> str:
    """What happened, in one line; `trial` is the trial as it is now, if the event is of one."""
    if event.what == "created":
        count = clean(event.fields.get("count", "?"))
        if count == "0":
            return f"{sweep.id}: sets are made as workers ask for them"
        return f"{sweep.id}: {count} trial{'s' * (count != '1')} queued"
    if event.what == "added":
        return f"{sweep.id}: {clean(event.fields.get('count', '?'))} more trials queued"
    if event.what == "held":
        return f"held: {clean(event.fields.get('why', ''))}"
    if trial is None:
        if event.what == "set":
            told = in_words({k: v for k, v in event.fields.items() if k != "touched"})
            return clean(f"limits changed: {told}" if told else "limits changed")
        if event.what not in _SWEEP:  # a newer version's
            return clean(event.what)
        return _SWEEP[event.what].format(n=clean(event.fields.get("touched", "0")))
    words = [f"#{event.trial}", *_trial_words(event, trial, sweep)]
    return f"{' '.join(words)}  {pairs(trial.params, sweep.varying)}".rstrip()


def running_line(trial: Trial, sweep: Sweep, at_ms: int) -> str:
    """A trial that had started before anyone looked, as a line like that of its event."""
    again = f", attempt {trial.attempt}" if trial.attempt > 1 else ""
    ago = duration(at_ms - trial.claimed_ms)
    line = f"#{trial.id.number} started on {clean(trial.worker)} {ago} ago{again}"
    return f"{line}  {pairs(trial.params, sweep.varying)}".rstrip()


def _trial_words(event: Event, trial: Trial, sweep: Sweep) -> list[str]:
    fields = {name: clean(text) for name, text in event.fields.items()}
    if event.what == "claimed":
        again = f", attempt {event.attempt}" if event.attempt > 1 else ""
        return [f"started on {fields.get('worker', '?')}{again}"]
    if event.what == "requeued":
        return [f"back in the queue: {fields.get('reason', '')}"]
    if event.what == "prune":
        return [told_words(event, sweep)]
    if event.what == "target":
        cancelled = fields.get("touched", "0")
        return [f"has reached the target; waiting trials cancelled: {cancelled}"]
    if event.what == "restarted":
        return [f"starts again: {fields.get('why', '')}"]
    if event.what in _ENDS:
        return [event.what, *_end_words(event, fields, trial, sweep)]
    if event.what == "suggested" and fields.get("by"):
        return [f"suggested by {fields['by']}"]
    if event.what == "reused":
        return [f"finished: the result of {fields.get('from', '?')}", *_objective(fields, sweep)]
    return [{"resumed": "goes on", "retried": "queued again"}.get(event.what, clean(event.what))]


def _objective(fields: dict[str, str], sweep: Sweep) -> list[str]:
    if not sweep.metric or not fields.get("objective"):
        return []
    return [f"{clean(sweep.metric.name)}={number(float(fields['objective']))}"]


def _end_words(event: Event, fields: dict[str, str], trial: Trial, sweep: Sweep) -> list[str]:
    out = _objective(fields, sweep)
    if fields.get("kind"):
        out.append(f"({fields['kind']}: {fields.get('error', '')})")
    if trial.attempt == event.attempt and trial.claimed_ms:
        out.append(f"in {duration(trial.duration_ms)}")
    return out


_RUNNING = 16  # running trials that the lines begin with, and whose phases they tell
_WIDE = 10_000  # columns of a line that is not to be broken

Leave = Callable[[], object | None]


def say_verdict(shot: Snapshot, stream: TextIO, why: Notice | None) -> None:
    """The verdict and what needs the user, as lines; `why` is what `not_taken` said."""
    look = look_of(stream, os.environ)
    if not look.tty:  # whoever reads a pipe has no columns, and greps for whole lines
        look = replace(look, columns=_WIDE)
    lines = verdict(shot, look.columns)
    for notice in needs_you(shot, why):
        lines += note(notice.text if look.tty else str(notice), look.columns)
    for line in lines:
        print(paint(line, look), file=stream)
    stream.flush()


def print_lines(
    session: Session, sid: str, stream: TextIO, leave: Leave = lambda: None
) -> SweepState:
    """A line an event until the sweep is over or held, or `leave` gives a reason; then the verdict.

    Raises:
        NotFound: the sweep is not there, or was removed meanwhile.
    """
    with closing(Pods(session)) as seen:
        return _print_lines(session.view, sid, stream, leave, seen)


def _print_lines(view: View, sid: str, stream: TextIO, leave: Leave, seen: Pods) -> SweepState:
    changes = follow(view, sid, rows=_RUNNING)
    shot = next(changes).snapshot
    print(plain(flow(verdict(shot, _WIDE)[:1], _WIDE)[0]), file=stream)
    for trial in shot.running:
        print(running_line(trial, shot.sweep, shot.at_ms), file=stream)
    if (more := shot.sweep.counts.running - len(shot.running)) > 0:
        print(f"… and {more} more are running", file=stream)
    told: set[str] = set()
    begun = {t.id.number for t in shot.running}  # whose start the lines have told or passed over
    while True:
        stuck = why_waits(shot, seen)
        for text in _notes(shot, begun, stuck):
            if gist(text) not in told:
                print(text, file=stream)
            told.add(gist(text))
        stream.flush()
        if stands(shot) or leave() is not None:
            break
        change = next(changes)
        shot = change.snapshot
        for text in _event_lines(view, change):
            print(text, file=stream)
        begun |= {event.trial for event in change.events}
    say_verdict(shot, stream, stuck)
    return shot.sweep.state


def _event_lines(view: View, change: Change) -> list[str]:
    numbers = sorted({e.trial for e in change.events if e.trial})
    sweep = change.snapshot.sweep
    trials = {t.id.number: t for t in view.trials(sweep.id, numbers)}
    return [event_line(event, trials.get(event.trial), sweep) for event in change.events]


def _notes(shot: Snapshot, begun: Collection[int], stuck: Notice | None) -> list[str]:
    """What is told once: phases of trials before their first step, and what keeps the sweep."""
    # Only of trials that have begun in the lines: the snapshot may be ahead of the events.
    early = [t for t in shot.running if t.phase and not t.step and t.id.number in begun]
    out = [f"#{t.id.number} {clean(t.phase)}" for t in early]
    unmet = doubtful(shot)
    return [*out, *(f"! {notice}" for notice in (stuck, unmet) if notice)]


def why_waits(shot: Snapshot, seen: Pods) -> Notice | None:
    """As `not_taken`, of a sweep that waits; where no worker is there, by a look at the pods."""
    if not shot.sweep.counts.waits:
        return None
    crew = None if shot.workers else seen.crew(shot.workers, wait=True)
    return not_taken(shot, crew, seen)


def not_taken(shot: Snapshot, crew: Crew | None = None, seen: Pods | None = None) -> Notice | None:
    """Why no trial of the sweep starts, with the remedy: no room, no worker, others before it.

    `seen` knows whether Redis is reached by `hpq connect`, whether pods are seen or not.
    """
    if full := why_full(shot.memory):
        return full
    waits = shot.sweep.counts.waits and not shot.workers
    if crew and waits and (nobody := pods.why_nobody(crew, shot.sweep.worker_class)):
        return nobody
    in_cluster = crew is not None or (seen is not None and seen.in_cluster)
    nobody = why_not_taken(shot.sweep, shot.workers, SHIPPED, in_cluster=in_cluster)
    if nobody and not shot.workers and seen and seen.is_perhaps_elsewhere:
        return replace(nobody, text=nobody.text + OF_A_CLUSTER)
    return nobody or why_behind(shot.sweep, shot.ahead, shot.workers, SHIPPED)
