"""A sweep as plain lines: what watch prints off a terminal, and the verdict that it leaves."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import replace
from typing import TextIO

from hpq.codes import Notice
from hpq.hyperparams import SHIPPED
from hpq.snapshot import Snapshot
from hpq.sweep import SweepState
from hpq.view import View
from producer.cluster.pods import Crew
from producer.cluster.seen import Pods
from producer.look import pods
from producer.look.event_lines import event_line, running_line
from producer.look.follow import Change, follow, stands
from producer.look.style import flow, paint, plain
from producer.look.takers import OF_A_CLUSTER, why_full, why_not_taken
from producer.look.terminal import look_of
from producer.look.text import clean
from producer.look.turns import gist, why_behind
from producer.look.verdict import doubtful, needs_you, note, verdict
from producer.session import Session

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
    if full := why_full(shot.room):
        return full
    waits = shot.sweep.counts.waits and not shot.workers
    if crew and waits and (nobody := pods.why_nobody(crew, shot.sweep.worker_class)):
        return nobody
    in_cluster = crew is not None or (seen is not None and seen.in_cluster)
    nobody = why_not_taken(shot.sweep, shot.workers, SHIPPED, in_cluster=in_cluster)
    if nobody and not shot.workers and seen and seen.is_perhaps_elsewhere:
        return replace(nobody, text=nobody.text + OF_A_CLUSTER)
    return nobody or why_behind(shot.sweep, shot.ahead, shot.workers, SHIPPED)
