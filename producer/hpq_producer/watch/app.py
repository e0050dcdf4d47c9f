"""`hpq watch`: a sweep, live. A frame on a terminal, lines elsewhere.

A frame is drawn from one bounded snapshot, so it costs the same for ten trials and for 100,000. It
is drawn anew on a lifecycle event, a key or a new size, at most four times a second, and each
second for the times and curves in it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from typing import TextIO

from redis.exceptions import RedisError

from hpq.connection.client import TRANSIENT, connect, short_reason
from hpq.domain.snapshot import Snapshot
from hpq.domain.sweep import SweepState
from hpq.errors import HpqError
from hpq.store.reader import StoreReader
from hpq_producer.cluster.pods import PodWatcher
from hpq_producer.diagnosis.waiting import explain_waiting
from hpq_producer.query.follow import BLOCK_MS, is_settled
from hpq_producer.reports.trial_rows import MAX_CURVE_WIDTH
from hpq_producer.session import Session
from hpq_producer.terminal.console import Screen, terminal_info
from hpq_producer.terminal.style import TerminalInfo
from hpq_producer.terminal.text import clean, duration
from hpq_producer.watch.event_log import Leave, print_lines, say_verdict
from hpq_producer.watch.frame import Scene, frame

TICK_S, LEAST_GAP_S = 1.0, 0.25


_STEPS = {"up": -1, "down": 1, "page up": -10, "page down": 10, "home": -(10**9), "end": 10**9}


def watch_sweep(
    session: Session,
    sid: str,
    *,
    until_done: bool = False,
    leave: Leave = lambda: None,
    stream: TextIO | None = None,
    on_quit: str = "q quits",
) -> SweepState:
    """Show a sweep until the user has seen enough, or with `until_done` until it is over or held.

    `leave` is asked about once a second; anything but None ends the watching. `on_quit` is what the
    frame says of the key.

    Off a terminal it prints a line an event, and always ends when the sweep is over or held. The
    verdict stays on the normal screen.

    Raises:
        NotFound: the sweep is not there, or was removed meanwhile.
        KeyboardInterrupt: Ctrl-C.
    """
    stream = stream or sys.stdout
    if not stream.isatty():
        return print_lines(session, sid, stream, leave)
    # A client that does not try again by itself: the frame says when Redis is away, and keys work.
    reader = StoreReader(
        connect(session.url, retries=0, timeout_s=3.0), session.keys, session.settings.lease_ms
    )
    with closing(PodWatcher(session)) as pods:
        return _Watch(reader, sid, stream, leave, on_quit, pods, session.trouble).run(until_done)


def read_scene(
    reader: StoreReader,
    sid: str,
    terminal: TerminalInfo,
    skip: int = 0,
    *,
    pods: PodWatcher | None = None,
    is_live: bool = True,
) -> Scene:
    """Everything that a frame of this size shows; only one that is not live waits for pods."""
    some = max(3, min(20, terminal.rows // 3))
    shot = reader.snapshot(sid, terminal.rows, top=some, recent=some, skip=skip)
    curves = {}
    if shot.sweep.metric:
        ids = list({t.id.number: t.id for t in (*shot.running, *shot.recent, *shot.best)}.values())
        found = reader.trials.recent_values(ids, shot.sweep.metric.name, last=4 * MAX_CURVE_WIDTH)
        curves = {
            tid.number: [p.value for p in points] for tid, points in zip(ids, found, strict=True)
        }
    cluster = pods.snapshot(shot.workers, wait=not is_live) if pods else None
    why = explain_waiting(shot, cluster, pods)
    return Scene(
        snapshot=shot, curves=curves, not_taken=why, skip=skip, cluster=cluster, is_live=is_live
    )


class _Watch:
    """The loop on a terminal."""

    def __init__(
        self,
        reader: StoreReader,
        sid: str,
        stream: TextIO,
        leave: Leave,
        on_quit: str,
        pods: PodWatcher,
        trouble: Callable[[], str],
    ) -> None:
        self._reader, self._sid, self._stream, self._leave = reader, sid, stream, leave
        self._on_quit, self._pods, self._trouble = on_quit, pods, trouble
        self._skip, self._quit = 0, False
        self._scene: Scene | None = None
        self._away_since = self._seen_at = 0.0

    def run(self, until_done: bool) -> SweepState:
        """Draw until done, `q`, or an exception; leave the verdict on the normal screen."""
        stop = threading.Event()
        try:
            with Screen(self._stream) as screen:
                self._draw(screen)
                threading.Thread(target=self._listen, args=(screen.wake, stop), daemon=True).start()
                while not (self._quit or (until_done and self._stands()) or self._told_to_leave()):
                    self._pause(screen)
                    self._draw(screen)
        except SystemExit:
            raise  # told to go; perhaps nobody is there to read
        except BaseException:
            self._say()
            raise
        finally:
            stop.set()
        self._say()
        assert self._scene is not None
        return self._scene.snapshot.sweep.state

    def _say(self) -> None:
        if self._scene:
            say_verdict(self._scene.snapshot, self._stream, self._scene.not_taken)

    def _told_to_leave(self) -> bool:
        with suppress(*TRANSIENT):  # the frame says so
            return self._leave() is not None
        return False

    def _stands(self) -> bool:
        return self._scene is not None and is_settled(self._scene.snapshot)

    def _pause(self, screen: Screen) -> None:
        """Until a key, an event, a new size or the next tick; all but keys 4 times a second."""
        begun = time.monotonic()
        keys = screen.wait(TICK_S)
        while not keys and (left := begun + LEAST_GAP_S - time.monotonic()) > 0:
            keys = screen.wait(left)
        for key in keys:
            if key == "quit":
                self._quit = True
            elif key == "interrupt":
                raise KeyboardInterrupt
            self._scroll(_STEPS.get(key, 0))

    def _scroll(self, by: int) -> None:
        running = self._scene.snapshot.sweep.counts.running if self._scene else 0
        self._skip = max(0, min(self._skip + by, running - 1))

    def _draw(self, screen: Screen) -> None:
        terminal = terminal_info(self._stream, os.environ)
        try:
            scene = read_scene(self._reader, self._sid, terminal, self._skip, pods=self._pods)
            self._scene = replace(scene, on_quit=self._on_quit)
            self._away_since, self._seen_at = 0.0, time.monotonic()
        except TRANSIENT as error:
            if self._scene is None:
                raise
            self._away_since = self._away_since or time.monotonic()
            since = duration(1000 * (time.monotonic() - self._away_since))
            why = self._trouble() or short_reason(error)
            stale = f"{clean(why)}: Redis has not answered for {since}"
            self._scene = replace(self._scene, stale=stale, snapshot=self._aged())
        self._scroll(0)
        screen.draw(frame(self._scene, terminal.columns, terminal.rows), terminal)

    def _aged(self) -> Snapshot:
        """What was seen last, as old as it is now."""
        assert self._scene is not None
        now, shot = time.monotonic(), self._scene.snapshot
        passed_ms = int(1000 * (now - self._seen_at))
        self._seen_at += passed_ms / 1000
        return replace(shot, at_ms=shot.at_ms + passed_ms, is_stale=True)

    def _listen(self, wake: Callable[[], None], stop: threading.Event) -> None:
        assert self._scene is not None
        after = self._scene.snapshot.last_event
        while not stop.is_set():
            try:
                events = self._reader.events.read(self._sid, after, block_ms=BLOCK_MS, count=1000)
            except (RedisError, HpqError):  # drawing meets the same, and tells
                stop.wait(TICK_S)
                continue
            if events:
                after = events[-1].id
                wake()
                stop.wait(LEAST_GAP_S)
