"""Shutdown requests of a process, and what wakes it."""

from __future__ import annotations

import select

from hpq_worker.process.signals import ShutdownLevel, Signals


def test_every_request_counts_and_the_second_ends_at_once() -> None:
    signals = Signals()
    levels = []
    for _ in range(3):
        signals.request_shutdown()
        levels.append(signals.level)
    assert levels == [ShutdownLevel.GRACEFUL, ShutdownLevel.IMMEDIATE, ShutdownLevel.IMMEDIATE]
    assert signals.requests == 3  # a supervisor forwards each, since two that meet become one


def test_a_pause_ends_at_a_wake_that_the_next_pause_does_not_see() -> None:
    signals = Signals()
    signals.wake()
    signals.pause(300.0)
    assert select.select([signals.wake_fd], [], [], 0)[0] == []
