"""Calls that may hang: the caller goes on, and the thread with the next call."""

from __future__ import annotations

import subprocess
import sys
from threading import Event

import pytest

from hpq.error_codes import ExitCode
from hpq_worker.process.watchdog import CallThread, Progress
from tests.support.constants import DEADLINE_S

DIES = """
import threading
from hpq_worker.process.watchdog import Progress, Watchdog
Watchdog(Progress(), 30.0, 12.0).start()
threading.Thread(target=lambda: 1 / 0, daemon=True).start()
threading.Event().wait()
"""


def test_a_call_that_makes_no_progress_is_given_up_and_ends_when_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hpq_worker.process.watchdog.HUNG_S", 0.1)
    hung, own, told = Event(), Progress(), list[bool]()
    thread = CallThread("files", own)
    before = own.turns

    def call(go_on) -> str:
        hung.wait(DEADLINE_S)
        told.append(go_on())
        return "late"

    assert thread.call_until(call, lambda: False) is None
    assert own.turns > before, "the waiting thread does not hang"
    hung.set()
    assert thread.submit(lambda: "next").result(DEADLINE_S) == "next"
    assert told == [False]


def test_a_process_one_of_whose_threads_died_ends() -> None:
    done = subprocess.run([sys.executable, "-c", DIES], timeout=DEADLINE_S, check=False)
    assert done.returncode == ExitCode.OUT_OF_REACH
