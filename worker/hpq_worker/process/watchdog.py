"""Notice what hangs: the main thread of a worker, and calls to a disk, a store or a network.

A worker that hangs loses trial and process. Its main loop stamps at each turn, and file operations
of a followed thread stamp by themselves. The heartbeat renews a lease from the last stamp on, so it
ends one lease after the main thread hung. Calls that may hang are made in a thread of their own,
which lives as long as the worker: `Thread.start` waits for ever if memory is short.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from threading import Event, Thread, get_ident
from typing import TypeVar

from hpq.error_codes import ExitCode
from hpq.errors import HpqError
from hpq.settings import LAST_WORDS_S
from hpq_worker.process import exit_reason
from hpq_worker.process.process_tree import kill_orphans

TURN_S = 0.5  # the longest wait of a main loop between two stamps
_TICK_S = 1.0
# Longer than a call to a Redis that hangs, or a wait for a ticket: those end by themselves.
_LEAST_S = 30.0
_WAIT_S = 0.05
_GIVE_UP_S = 0.5  # in which a late call may remove what it has begun
HUNG_S = 120.0  # without progress of a call
T = TypeVar("T")


class Progress:
    """The last turn of one thread."""

    def __init__(self) -> None:
        self._turns = 0
        self._at = time.monotonic()

    def stamp(self) -> None:
        """Record a turn."""
        self._turns = self._turns + 1
        self._at = time.monotonic()

    @property
    def turns(self) -> int:
        """How often the thread has stamped."""
        return self._turns

    @property
    def age_s(self) -> float:
        """Seconds since the last turn."""
        return time.monotonic() - self._at

    def follow(self) -> None:
        """Let file operations of the calling thread stamp, as those of a long `rmtree`."""
        if not _followed:
            sys.addaudithook(_audited)
        _followed[get_ident()] = self


_followed: dict[int, Progress] = {}


def _audited(_event: str, _args: object) -> None:
    if (progress := _followed.get(get_ident())) is not None:
        progress.stamp()


class Watchdog:
    """A thread that ends this process if `progress` stops, or its parent is gone for too long.

    It counts its own ticks: a process that was stopped or suspended does not count as hung.
    """

    def __init__(
        self, progress: Progress, lease_s: float, grace_s: float, exit_reason: int | None = None
    ) -> None:
        """`exit_reason` is the pipe to the supervisor."""
        self._progress = progress
        self._grace_s = grace_s
        self._exit_reason = exit_reason
        self._limit_s = max(_LEAST_S, 2 * lease_s)
        self._main = get_ident()
        self._began = Event()

    def start(self, parent: int | None = None) -> None:
        """Watch the calling thread, and the process `parent` (default: the present parent).

        Raises:
            MemoryError: no thread can be started.
        """
        self._parent = parent or os.getppid()
        self._progress.follow()
        # A thread that dies would leave its work undone, as a lease that no beat renews.
        threading.excepthook = lambda found: self._end(f"{found.exc_type.__name__} in a thread")
        start_new_thread(self._watch, ())  # Thread.start waits for ever if memory is short
        if not self._began.wait(_LEAST_S):
            raise MemoryError("cannot start a thread")

    def _watch(self) -> None:
        turns = -1
        still_s = 0.0
        orphaned_s = 0.0
        self._began.set()
        while True:
            still_s = still_s + _TICK_S if self._progress.turns == turns else 0.0
            turns = self._progress.turns
            orphaned_s += _TICK_S if os.getppid() != self._parent else 0.0
            if still_s > self._limit_s:
                self._end(f"its main thread hung for {still_s:.0f} s{self._place()}")
            if orphaned_s > self._grace_s + LAST_WORDS_S:
                self._end("the process that started it has ended")
            time.sleep(_TICK_S)

    def _place(self) -> str:
        frame = sys._current_frames().get(self._main)
        return f" at {frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""

    def _end(self, why: str) -> None:
        try:
            # Through the supervisor's pipe: a write to stderr may wait for its reader.
            error = HpqError(f"a worker ended: {why}", code="worker-fault")
            exit_reason.write(error, self._exit_reason)
            kill_orphans(())
        finally:
            os._exit(int(ExitCode.OUT_OF_REACH))


class CallThread:
    """Makes calls in order; `own` is the progress of the thread that waits for them."""

    def __init__(self, name: str, own: Progress | None = None) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._own, self._progress = own or Progress(), Progress()
        Thread(target=self._loop, name=name, daemon=True).start()

    def _loop(self) -> None:
        self._progress.follow()
        while True:
            self._calls.get()()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Make a call after those before it."""
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)

        self._calls.put(work)
        return future

    def call_until(
        self, call: Callable[[Callable[[], bool]], T], is_late: Callable[[], bool]
    ) -> T | None:
        """Return or raise what `call` does; None if `is_late` is true first, or the call hangs.

        `call` gets a function that it calls while it copies; False: it should end.
        """
        is_given_up = False

        def go_on() -> bool:
            self._progress.stamp()
            return not (is_given_up or is_late())

        self._progress.stamp()
        future = self.submit(lambda: call(go_on))
        while not wait({future}, _WAIT_S).done and not is_late():
            self._own.stamp()
            if self._progress.age_s > HUNG_S:
                break
        is_given_up = True
        return future.result() if wait({future}, _GIVE_UP_S).done else None
