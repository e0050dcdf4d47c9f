"""`hpq watch`: a sweep, live. A table on a terminal, lines elsewhere.

A frame is drawn from one bounded scene, so it costs the same for ten trials and for 100,000. It is
drawn anew on a key, a lifecycle event or a new size, at most four times a second, and each second
for the times and curves in it. What each key does is in keys.py.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TextIO, TypeVar

from redis.exceptions import RedisError

from hpq.access.session import Session, reader_of
from hpq.domain.sweep import SweepState, SweepView
from hpq.errors import DecodeError, HpqError, NotFound, UserError
from hpq.redis.client import TRANSIENT, connect, short_reason
from hpq.search.replicates import first_of_set
from hpq.store.reader import StoreReader
from hpq_views.analysis.filter import Filter
from hpq_views.analysis.pareto_front import Front
from hpq_views.analysis.rank_results import feasible_result, read_standings
from hpq_views.analysis.selection import Selection
from hpq_views.analysis.summary import SweepSummary
from hpq_views.command_output.summary_page import importance_lines
from hpq_views.follow import BLOCK_MS, is_over_or_held
from hpq_views.text.console import terminal_info
from hpq_views.text.screen import LiveScreen
from hpq_views.text.style import Line, Span, Style, TerminalInfo
from hpq_views.text.text import clean, duration
from hpq_views.watch.event_log import Leave, print_lines, say_verdict
from hpq_views.watch.frame import render
from hpq_views.watch.keys import Act, Mode, View, reduce
from hpq_views.watch.scene import Scene, SceneReader

Q = TypeVar("Q")
T = TypeVar("T")
Change = Callable[[SweepView, str, Sequence[str]], str]  # verb, numbers of trials → what was done
TICK_S, LEAST_GAP_S = 1.0, 0.25


def watch_sweep(
    session: Session,
    sid: str,
    change: Change,
    *,
    until_done: bool = False,
    leave: Leave = lambda: None,
    on_quit: str = "quit",
    several: bool = False,
) -> SweepState | None:
    """Show a sweep until the user has seen enough, or with `until_done` until it is over or held.

    `change` does what a key asks for, once the user has confirmed it.

    `leave` is asked about once a second; anything but None ends the watching. `on_quit` is what the
    frame says of the key. `several` begins with the list of sweeps, and answers None.

    Off a terminal, and on a dumb one, it prints a line an event, and always ends when the sweep is
    over or held. The verdict stays on the normal screen.

    Raises:
        NotFound: the sweep is not there, or was removed meanwhile.
        KeyboardInterrupt: Ctrl-C.
    """
    stream = sys.stdout
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return print_lines(session, sid, stream, leave)
    view = View(sweep="" if several else sid, mode=Mode.SWEEPS if several else Mode.LIST)
    return _Watch(session, view, change, stream, leave, on_quit).run(until_done)


def _important(reader: StoreReader, sweep: SweepView, columns: int) -> list[Line]:
    summary = SweepSummary(sweep).add(reader.trials.begun(sweep.id))
    return list(importance_lines(summary.importance, columns))


def _front(reader: StoreReader, sweep: SweepView, _: str) -> Front | None:
    return read_standings(reader, sweep).front


@dataclass(frozen=True, slots=True)
class Search:
    """The order of the list of trials, and the filter that the user typed."""

    order: str
    text: str


def matching(reader: StoreReader, sweep: SweepView, search: Search) -> list[int]:
    """Return the trials that a filter picks, in an order; a word alone is a state: `failed`."""
    is_state = search.text.isalpha()
    where = Filter.of(f"state == {search.text}" if is_state else search.text)
    picked = set[int]()
    for trial in Selection(reader=reader, sweep=sweep, where=where).trials():
        number = trial.id.number
        is_ranked = feasible_result(sweep, trial) is not None
        picked.add(first_of_set(sweep, number) if search.order == "best" and is_ranked else number)
    ordered = reader.ranking.page(sweep, search.order, 0, sweep.counts.total)
    return [n for n in dict.fromkeys(ordered) if n in picked]


class Background(Generic[Q, T]):
    """What takes all trials of a sweep: computed beside the loop, again when some have ended."""

    def __init__(
        self, reader: StoreReader, compute: Callable[[StoreReader, SweepView, Q], T]
    ) -> None:
        self._reader = reader
        self._compute = compute
        self._sid = ""
        self._asked: Q | None = None
        self._ended = -1  # trials that had ended when the result was computed
        self._result: T | None = None
        self._thread: threading.Thread | None = None
        self.why_none = ""

    def result(self, sid: str, asked: Q | None, screen: LiveScreen) -> T | None:
        """The newest result; None if nothing is asked, or the first one is not there yet."""
        if sid != self._sid or asked != self._asked:
            self._sid = sid
            self._asked = asked
            self._result = None
            self._ended = -1
        is_computing = self._thread is not None and self._thread.is_alive()
        if asked is not None and not is_computing:
            self._thread = threading.Thread(
                target=self._run, args=(sid, asked, screen), daemon=True
            )
            self._thread.start()
        return self._result

    def _run(self, sid: str, asked: Q, screen: LiveScreen) -> None:
        try:
            sweep = self._reader.sweeps.get(sid)
            if sweep.counts.ended == self._ended:
                return
            found = self._compute(self._reader, sweep, asked)
            if sid == self._sid and asked == self._asked:
                self._result = found
                self._ended = sweep.counts.ended
        except UserError as error:
            self.why_none = error.notice.text
        except (RedisError, HpqError):
            return  # drawing meets the same, and says so
        screen.wake()


class _Watch:
    """The loop on a terminal."""

    def __init__(
        self,
        session: Session,
        view: View,
        change: Change,
        stream: TextIO,
        leave: Leave,
        on_quit: str,
    ) -> None:
        # A client that does not retry by itself: the frame says when Redis is away, and keys work.
        quick = connect(session.url, retries=0, timeout_s=3.0)
        self._reader = reader_of(quick, session.settings)
        self._scenes = SceneReader(self._reader, session)
        self._session = session
        self._stream = stream
        self._leave = leave
        self._on_quit = on_quit
        self._change = change
        self._view, self._scene = view, Scene(on_quit=on_quit)
        self._away_since = self._seen_at = 0.0
        self._changed: set[int] = set()  # trials that events named since the last frame
        self._importance = Background(session.reader, _important)
        self._filter = Background(session.reader, matching)
        self._front = Background(session.reader, _front)

    def run(self, until_done: bool) -> SweepState | None:
        """Draw until done, `q`, or an exception; leave the verdict on the normal screen."""
        stop = threading.Event()
        try:
            with LiveScreen(self._stream) as screen:
                self._draw(screen)
                threading.Thread(target=self._listen, args=(screen.wake, stop), daemon=True).start()
                while not (
                    self._view.is_over
                    or (until_done and self._stands())
                    or self._leave() is not None
                ):
                    self._pause(screen)
                    if self._view.do:
                        note = self._carry_out(self._view.do)
                        self._view = replace(self._view, do=None, note=note)
                    self._draw(screen)
        except SystemExit:
            raise  # told to go; perhaps nobody is there to read
        except BaseException:
            self._say()
            raise
        finally:
            stop.set()
        self._say()
        return self._scene.status.sweep.state if self._scene.status else None

    def _say(self) -> None:
        if self._scene.status and self._view.sweep:
            say_verdict(self._reader, self._scene.status, self._stream, self._scene.not_taken)

    def _stands(self) -> bool:
        return self._scene.status is not None and is_over_or_held(self._scene.status)

    def _pause(self, screen: LiveScreen) -> None:
        """Until a key, an event, a new size or the next tick."""
        begun = time.monotonic()
        keys = screen.wait(TICK_S)
        while (left := begun + LEAST_GAP_S - time.monotonic()) > 0:
            keys += screen.wait(left)
        for key in keys:
            if key == "interrupt":
                raise KeyboardInterrupt
            self._view = reduce(self._view, key)

    def _draw(self, screen: LiveScreen) -> None:
        terminal = terminal_info(self._stream, os.environ)
        changed = {self._changed.pop() for _ in range(len(self._changed))}
        self._scenes.forget(changed)
        try:
            self._scene = self._read(terminal, screen)
            self._away_since, self._seen_at = 0.0, time.monotonic()
        except TRANSIENT as error:
            self._scenes.forget(changed)
            if not (self._scene.status or self._scene.sweeps):
                raise
            self._away_since = self._away_since or time.monotonic()
            since = duration(1000 * (time.monotonic() - self._away_since))
            why = self._session.trouble() or short_reason(error)
            stale = f"{clean(why)}: Redis has not answered for {since}"
            self._scene = replace(self._aged(), stale=stale)
        except (NotFound, DecodeError) as error:
            if not self._view.has_sweeps:
                raise
            self._view = View(mode=Mode.SWEEPS, note=error.notice.text)
            self._scene = self._read(terminal, screen)
        drawn, self._view = render(self._view, self._scene, terminal)
        screen.draw(drawn, terminal)

    def _read(self, terminal: TerminalInfo, screen: LiveScreen) -> Scene:
        view = self._view
        if view.mode is Mode.SWEEPS:
            return Scene(sweeps=self._scenes.sweeps(), on_quit=self._on_quit)
        search = Search(view.order, view.filter) if view.filter else None
        self._scenes.found = self._filter.result(view.sweep, search, screen)
        sweep = self._scene.status.sweep if self._scene.status else None
        asked = "all" if sweep and sweep.objectives else None
        self._scenes.front = self._front.result(view.sweep, asked, screen)
        scene = replace(self._scenes.read(view, terminal), on_quit=self._on_quit)
        if why := self._filter.why_none:
            self._view = replace(view, filter="", note=why.replace("--where", "filter"))
            self._filter.why_none = ""
        if view.mode is not Mode.IMPORTANCE:
            return scene
        wait: list[Line] = [[Span("reading the trials …", Style.DIM)]]
        found = self._importance.result(view.sweep, terminal.columns, screen)
        return replace(scene, importance=wait if found is None else found)

    def _aged(self) -> Scene:
        """What was seen last, as old as it is now."""
        now, status = time.monotonic(), self._scene.status
        if status is None:
            return self._scene
        passed_ms = int(1000 * (now - self._seen_at))
        self._seen_at += passed_ms / 1000
        aged = replace(status, at_ms=status.at_ms + passed_ms, is_stale=True)
        return replace(self._scene, status=aged)

    def _carry_out(self, act: Act) -> str:
        """Change the sweep as the user confirmed; answer what was done, or why it was not."""
        session, sid = self._session, self._view.sweep
        try:
            sweep = session.reader.sweeps.get(sid)
            if sweep.owner != session.settings.user:
                return f"{sid} is {sweep.owner}'s: hpq {act.verb} --force {sid}"
            return self._change(sweep, act.verb, [str(act.trial)] if act.trial else [])
        except (HpqError, RedisError) as error:
            return str(error)

    def _listen(self, wake: Callable[[], None], stop: threading.Event) -> None:
        sid, after = "", "0"
        while not stop.is_set():
            try:
                if sid != self._view.sweep:
                    sid = self._view.sweep
                    after = self._reader.events.last_id(sid) if sid else "0"
                if not sid:
                    stop.wait(TICK_S)
                    continue
                events = self._reader.events.read(sid, after, block_ms=BLOCK_MS, count=1000)
            except (RedisError, HpqError):  # drawing meets the same, and says so
                stop.wait(TICK_S)
                continue
            if events:
                after = events[-1].id
                self._changed.update(event.trial for event in events)
                wake()
                stop.wait(LEAST_GAP_S)
