"""Work on a disk or a store that may hang: done beside, so that nobody has to wait for its end."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from typing import TypeVar

_TICK_S = 0.05
_GIVE_UP_S = 0.5  # for what was told to give up to clear away what it has begun
T = TypeVar("T")


def in_time(act: Callable[[], T], is_late: Callable[[], bool]) -> T | None:
    """What `act` answers, or raises; None where it is late before that.

    Then `act` may still run, in a thread that does not keep the process from ending.
    """
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(act())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=work, name="aside", daemon=True).start()
    while not wait({future}, _TICK_S).done and not is_late():
        pass
    return future.result() if wait({future}, _GIVE_UP_S).done else None
