"""What a worker's log says of a Redis that is away, however often its threads try."""

from __future__ import annotations

import logging
import re

import pytest
from redis.exceptions import BusyLoadingError, ConnectionError, OutOfMemoryError, RedisError

from hpq_worker.lease.outage_log import OutageLog

GONE: RedisError = ConnectionError("Connection refused")


class Clock:
    """Seconds that a test moves on."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def outage(clock: Clock) -> OutageLog:
    return OutageLog(clock)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return said


def test_a_full_server_is_no_outage_in_which_training_goes_on(outage, clock, caplog) -> None:
    outage.failed("claims", OutOfMemoryError("the server is at its maxmemory"))
    (line,) = lines(caplog)
    assert "[redis-memory]" in line
    outage.answered("claims")
    (line,) = lines(caplog)
    assert "0 s" in line


def test_the_reason_is_what_the_system_says_and_no_more(outage, caplog) -> None:
    outage.failed("beats", ConnectionError("Error 111 connecting to a.b:6379. Connection refused."))
    (line,) = lines(caplog)
    assert line.startswith("Redis: Connection refused;") and "a.b" not in line


def test_an_outage_is_a_line_at_its_start_and_one_at_its_end(outage, clock, caplog) -> None:
    caplog.set_level(logging.INFO)
    for clock.now in range(100):
        outage.failed("beats", GONE)
        outage.failed("reaper", GONE)
    outage.spooled()
    (line,) = lines(caplog)
    assert "Connection refused" in line
    outage.answered("reaper")
    outage.answered("tickets")
    assert lines(caplog) == []  # the beats are still without contact
    outage.answered("beats")
    (line,) = lines(caplog)
    assert "99 s" in line and re.search(r": 1 \[redis-back\]$", line)  # one result waited
    outage.failed("beats", GONE)
    outage.answered("beats")
    began, ended = lines(caplog)
    assert "Connection refused" in began and "0 s" in ended


def test_a_long_outage_is_recalled_every_five_minutes(outage, clock, caplog) -> None:
    for clock.now in range(3_600):
        outage.failed("beats", GONE)
    said = lines(caplog)
    assert len(said) == 12
    assert "55 min" in said[-1] and "Connection refused" in said[-1]


def test_another_kind_of_error_is_news_once(outage, caplog) -> None:
    for error in (GONE, BusyLoadingError("loading"), GONE, BusyLoadingError("loading")):
        outage.failed("beats", error)
    (line,) = lines(caplog)[1:]
    assert "loading" in line


def test_nobody_waits_for_the_beats_of_a_trial_that_is_over(outage, caplog) -> None:
    outage.failed("beats", GONE)
    outage.idle("beats")
    assert len(lines(caplog)) == 1
    outage.answered("claims")
    (line,) = lines(caplog)
    assert "0 s" in line
