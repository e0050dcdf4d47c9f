"""Shutdown requests of a process, and what wakes it."""

from __future__ import annotations

import select
import signal
from collections.abc import Iterator
from threading import Timer

import pytest

from hpq_worker.process.signals import FORWARDED, ShutdownLevel, Signals

TERM = signal.SIGTERM


@pytest.fixture
def installed() -> Iterator[Signals]:
    before = {number: signal.getsignal(number) for number in (TERM, signal.SIGINT, FORWARDED)}
    signals = Signals()
    signals.install()
    yield signals
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("numbers", "requests"),
    [([TERM, FORWARDED], 1), ([FORWARDED, TERM], 1), ([TERM, TERM], 2), ([FORWARDED] * 2, 2)],
)
def test_a_signal_that_comes_twice_by_the_supervisor_is_one_request(
    installed: Signals, numbers: list[signal.Signals], requests: int
) -> None:
    for number in numbers:
        signal.raise_signal(number)
    assert installed.requests == requests


def test_the_grace_is_over_a_second_before_its_end() -> None:
    for grace_s, is_late in ((0.0, True), (3600.0, False)):
        signals = Signals(grace_s)
        assert not signals.is_late()
        signals.request_shutdown()
        signals._requested_at -= 60.0
        assert signals.is_late() is is_late


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


def test_a_wait_for_a_shutdown_outlasts_what_else_wakes_the_worker() -> None:
    """A heartbeat wakes it, too, in the moment before a signal to a whole job arrives."""
    signals = Signals()
    signals.wake()
    later = Timer(0.05, signals.request_shutdown)
    later.start()
    assert signals.await_shutdown(60.0)
    later.join()
    assert not Signals().await_shutdown(0.0)
