"""A check in a process of its own: its rows come, and its death or hang is one of them."""

from __future__ import annotations

import os
import signal
import threading
import time
from multiprocessing import active_children

import pytest

pytest.importorskip("torch")

from benchmarks.figures import Figure
from benchmarks.gpu.elsewhere import elsewhere
from benchmarks.gpu.trials import OutOfTime, Rows

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]
FIRST = Figure(what="first", unit="%", values=[1.0])


def says(own: int) -> Rows:
    yield FIRST
    yield "failed: a check" if os.getpid() == own else "of another process"


def raises() -> Rows:
    yield FIRST
    raise OutOfTime("of\n two lines")


def dies() -> Rows:
    yield FIRST
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()


def hangs() -> Rows:
    yield FIRST
    threading.Event().wait()


def test_its_rows_come_from_another_process() -> None:
    rows = list(elsewhere("a check", says, os.getpid(), limit_s=200))
    assert rows == [FIRST, "of another process"]
    assert not active_children()


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (raises, "failed: OutOfTime: of two lines"),
        (dies, "failed: a check: its process ended by SIGKILL"),
    ],
)
def test_what_ends_it_is_said_after_the_rows_that_came(check: object, said: str) -> None:
    assert callable(check)
    assert list(elsewhere("a check", check, limit_s=200)) == [FIRST, said]


def test_a_hang_is_said_where_its_time_ends(capfd: pytest.CaptureFixture[str]) -> None:
    *rows, said = elsewhere("a check", hangs, limit_s=1)
    assert said == "failed: a check: no end within 1 s"
    assert rows in ([], [FIRST])  # its imports are of that time
    assert not active_children()


def test_nobody_hears_the_rest_and_the_process_ends() -> None:
    rows = elsewhere("a check", hangs, limit_s=200)
    began = time.perf_counter()
    assert next(rows) == FIRST
    rows.close()
    assert not active_children() and time.perf_counter() - began < 200
