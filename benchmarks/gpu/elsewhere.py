"""A check in a process of its own: what it breaks is broken there, and no other figure's."""

from __future__ import annotations

import faulthandler
import multiprocessing
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.gpu.trials import FAILED, Rows, reason

_GRACE_S = 5.0  # after its time, until which it has ended itself


def elsewhere(what: str, check: Callable[..., Rows], *given: Any, limit_s: float) -> Rows:
    """The rows of a check as it says them; a line that begins `failed: ` where it dies or hangs.

    `check` and what it is given are pickled: a function of a module, and plain values.
    """
    context = multiprocessing.get_context("spawn")  # CUDA cannot be used in a fork
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=_say, args=(send, limit_s, check, given), daemon=True)
    began = time.perf_counter()
    child.start()
    send.close()  # the child alone has that end: where it dies, there is no more to receive
    try:
        while receive.poll(max(0.0, began + limit_s + _GRACE_S - time.perf_counter())):
            yield receive.recv()
    except EOFError:
        child.join(_GRACE_S)
    finally:
        child.kill()
        child.join()
        receive.close()
    if time.perf_counter() > began + limit_s:
        yield f"{FAILED}{what}: no end within {limit_s:g} s"
    elif child.exitcode:
        yield f"{FAILED}{what}: its process ended by {_status(child.exitcode)}"


def _say(send: Connection, limit_s: float, check: Callable[..., Rows], given: Any) -> None:
    faulthandler.enable()
    faulthandler.dump_traceback_later(limit_s, exit=True)  # it shows where; also if left alone
    try:
        for row in check(*given):
            send.send(row)
    except Exception as error:
        send.send(f"{FAILED}{reason(error)}")
    send.close()


def _status(exitcode: int) -> str:
    return f"exit status {exitcode}" if exitcode > 0 else signal.Signals(-exitcode).name
