"""Makes calls that may hang, on a disk, a store or a network, in a thread of its own.

The thread lives as long as the worker: `Thread.start` waits for ever if memory is short.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

from hpq_worker.process.watchdog import Progress

_TICK_S = 0.05
_GIVE_UP_S = 0.5  # in which a late call may remove what it has begun
HUNG_S = 120.0  # without progress of a call
T = TypeVar("T")


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
        while not wait({future}, _TICK_S).done and not is_late():
            self._own.stamp()
            if self._progress.age_s > HUNG_S:
                break
        is_given_up = True
        return future.result() if wait({future}, _GIVE_UP_S).done else None
