"""What a worker's log says of a Redis that is away, however often its threads try."""

from __future__ import annotations

import logging

import pytest
from redis.exceptions import BusyLoadingError, ConnectionError, OutOfMemoryError, RedisError

from hpq_worker.lease.redis_outage import Outage

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
def outage(clock: Clock) -> Outage:
    return Outage(clock)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return said


def test_a_full_server_is_no_outage_in_which_training_goes_on(outage, clock, caplog) -> None:
    outage.failed("claims", OutOfMemoryError("the server is at its maxmemory"))
    (line,) = lines(caplog)
    assert line == "the server is full: no trial starts until there is room; what runs trains on"
    outage.answered("claims")
    assert lines(caplog) == ["the server has room again after 0 s"]


def test_the_reason_is_what_the_system_says_and_no_more(outage, caplog) -> None:
    outage.failed("beats", ConnectionError("Error 111 connecting to a.b:6379. Connection refused."))
    assert lines(caplog) == ["Redis: Connection refused; trying again, training goes on"]


def test_an_outage_is_a_line_at_its_start_and_one_at_its_end(outage, clock, caplog) -> None:
    caplog.set_level(logging.INFO)
    for clock.now in range(100):
        outage.failed("beats", GONE)
        outage.failed("reaper", GONE)
    outage.spooled()
    assert lines(caplog) == ["Redis: Connection refused; trying again, training goes on"]
    outage.answered("reaper")
    outage.answered("tickets")
    assert lines(caplog) == []  # the beats are still without contact
    outage.answered("beats")
    assert lines(caplog) == ["Redis answers again after 99 s; results that waited: 1"]
    outage.failed("beats", GONE)
    outage.answered("beats")
    assert [line[:13] for line in lines(caplog)] == ["Redis: Connec", "Redis answers"]


def test_a_long_outage_is_recalled_every_five_minutes(outage, clock, caplog) -> None:
    for clock.now in range(3_600):
        outage.failed("beats", GONE)
    said = lines(caplog)
    assert len(said) == 12
    assert said[-1] == "Redis does not answer for 55 min: Connection refused"


def test_another_kind_of_error_is_news_once(outage, caplog) -> None:
    for error in (GONE, BusyLoadingError("loading"), GONE, BusyLoadingError("loading")):
        outage.failed("beats", error)
    assert lines(caplog)[1:] == ["Redis: loading"]


def test_nobody_waits_for_the_beats_of_a_trial_that_is_over(outage, caplog) -> None:
    outage.failed("beats", GONE)
    outage.idle("beats")
    assert len(lines(caplog)) == 1
    outage.answered("claims")
    assert lines(caplog) == ["Redis answers again after 0 s"]
