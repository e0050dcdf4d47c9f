"""What /livez and /readyz say, by the fleet's own clock."""

from __future__ import annotations

import os

import pytest

from hpq_worker.health.health import LOST_S, SILENT_S, STILL_S, Health, Slot
from hpq_worker.health.telemetry import Telemetry, Vital, read


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    one = Health({0: Slot(), 1: Slot()}, clock)
    one.born(0)
    one.born(1)
    return one


def test_a_fleet_that_stands_still_is_not_alive(health: Health, clock: Clock) -> None:
    health.turn()
    clock.now += STILL_S
    assert health.not_alive() == ""
    clock.now += 1
    assert health.not_alive() == "the fleet has stood still for 61 s"


def test_a_worker_that_falls_silent_is_not_alive_but_one_that_ended_is_started_again(
    health: Health, clock: Clock
) -> None:
    clock.now += SILENT_S + 1
    health.turn()
    health.hear(0, Vital(kind="error"))
    assert health.not_alive() == "worker 1 has said nothing for 121 s"
    health.died(1)
    assert health.not_alive() == ""


def test_ready_is_a_pod_of_which_one_worker_reached_redis_lately_and_can_work(
    health: Health, clock: Clock
) -> None:
    assert "does not reach Redis" in health.not_ready()
    health.hear(0, Vital(kind="tick"))
    assert health.not_ready() == ""
    health.hear(0, Vital(kind="state", word="idle", why="no data"))
    assert health.not_ready() == "worker 0: no data; worker 1 does not reach Redis"
    health.hear(1, Vital(kind="tick"))
    health.hear(1, Vital(kind="state", word="stopping"))
    assert "worker 1 is stopping" in health.not_ready()
    health.hear(0, Vital(kind="state", word="busy"))
    assert health.not_ready() == ""
    clock.now += SILENT_S / 2 + 1
    assert "worker 0 does not reach Redis" in health.not_ready()


def test_workers_that_speak_seldom_by_their_settings_are_waited_for(clock: Clock) -> None:
    one = Health({0: Slot()}, clock, every_s=600.0)
    one.born(0)
    one.hear(0, Vital(kind="tick"))
    clock.now += 600 + SILENT_S / 2
    one.turn()
    assert one.not_alive() == one.not_ready() == ""
    clock.now += SILENT_S
    assert "has said nothing" in one.not_alive() or "stood still" in one.not_alive()


def test_what_redis_counted_long_ago_is_not_told_as_of_now(health: Health, clock: Clock) -> None:
    health.hear(0, Vital(kind="tick", server={"demand": 7.0}))
    clock.now += SILENT_S
    health.hear(0, Vital(kind="tick"))
    assert health.figures() == {"demand": 7.0}
    clock.now += 1
    assert health.figures() == {}


def test_not_ready_is_a_pod_whose_last_looks_failed_before_it_would_count_as_silent(
    health: Health, clock: Clock
) -> None:
    health.hear(0, Vital(kind="tick"))
    clock.now += LOST_S + 1
    health.hear(0, Vital(kind="error"))
    assert health.not_ready() == ""  # one may be a blip
    health.hear(0, Vital(kind="error"))
    assert "worker 0 does not reach Redis" in health.not_ready()
    assert health.not_alive() == ""
    health.hear(0, Vital(kind="tick"))
    assert health.not_ready() == ""
    health.hear(0, Vital(kind="error"))
    health.hear(0, Vital(kind="error"))
    assert health.not_ready() == ""  # for a moment


def test_a_worker_whose_fleet_hears_nothing_goes_on() -> None:
    ours, theirs = os.pipe()
    vitals = Telemetry(theirs)
    for _ in range(10_000):  # far more than a pipe holds
        vitals.state("busy", "x" * 500)
    os.close(ours)
    vitals.error()
    os.close(theirs)


def test_a_line_that_is_none_of_ours_is_left_out() -> None:
    assert read(b"[1]") is None and read(b"\xff") is None and read(b'{"kind": "x", "y": 1}') is None
    assert read(b'{"kind": "error"}') == Vital(kind="error")
