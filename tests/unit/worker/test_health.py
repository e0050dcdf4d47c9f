"""What /livez and /readyz say, by the fleet's own clock."""

from __future__ import annotations

import os

import pytest

from hpq_worker.health.health import HANG_S, LOST_S, SILENT_S, Health, WorkerHealth
from hpq_worker.health.telemetry import Telemetry, TelemetryMessage, read
from tests.support.ids import ids


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    one = Health({0: WorkerHealth(), 1: WorkerHealth()}, clock)
    one.worker_started(0)
    one.worker_started(1)
    return one


def test_a_fleet_that_stands_still_is_not_alive(health: Health, clock: Clock) -> None:
    health.loop()
    clock.now += HANG_S
    assert health.not_alive() == ""
    clock.now += 1
    assert ids(health.not_alive()) == ["supervisor-hung"] and "61 s" in health.not_alive()


def test_a_worker_that_falls_silent_is_not_alive_but_one_that_ended_is_started_again(
    health: Health, clock: Clock
) -> None:
    clock.now += SILENT_S + 1
    health.loop()
    health.receive(0, TelemetryMessage(kind="error"))
    why = health.not_alive()
    assert ids(why) == ["worker-silent"] and "worker 1 " in why and "121 s" in why
    health.worker_ended(1)
    assert health.not_alive() == ""


def test_ready_is_a_pod_of_which_one_worker_reached_redis_lately_and_can_work(
    health: Health, clock: Clock
) -> None:
    assert ids(health.not_ready()) == ["redis-away"] * 2
    health.receive(0, TelemetryMessage(kind="redis"))
    assert health.not_ready() == ""
    health.receive(0, TelemetryMessage(kind="state", status="idle", reason="no data"))
    first, second = health.not_ready().splitlines()
    assert first == "worker 0: no data" and "worker 1 " in second and ids(second) == ["redis-away"]
    health.receive(1, TelemetryMessage(kind="redis"))
    health.receive(1, TelemetryMessage(kind="state", status="stopping"))
    first, second = health.not_ready().splitlines()
    assert first == "worker 0: no data" and ids(second) == ["worker-stopping"]
    health.receive(0, TelemetryMessage(kind="state", status="busy"))
    assert health.not_ready() == ""
    clock.now += SILENT_S / 2 + 1
    assert ids(health.not_ready())[0] == "redis-away"


def test_workers_that_speak_seldom_by_their_settings_are_waited_for(clock: Clock) -> None:
    one = Health({0: WorkerHealth()}, clock, interval_s=600.0)
    one.worker_started(0)
    one.receive(0, TelemetryMessage(kind="redis"))
    clock.now += 600 + SILENT_S / 2
    one.loop()
    assert one.not_alive() == one.not_ready() == ""
    clock.now += SILENT_S
    assert ids(one.not_alive()) == ["supervisor-hung"]


def test_not_ready_is_a_pod_whose_last_looks_failed_before_it_would_count_as_silent(
    health: Health, clock: Clock
) -> None:
    health.receive(0, TelemetryMessage(kind="redis"))
    clock.now += LOST_S + 1
    health.receive(0, TelemetryMessage(kind="error"))
    assert health.not_ready() == ""  # one may be a blip
    health.receive(0, TelemetryMessage(kind="error"))
    assert ids(health.not_ready())[0] == "redis-away"
    assert health.not_alive() == ""
    health.receive(0, TelemetryMessage(kind="redis"))
    assert health.not_ready() == ""
    health.receive(0, TelemetryMessage(kind="error"))
    health.receive(0, TelemetryMessage(kind="error"))
    assert health.not_ready() == ""  # for a moment


def test_a_worker_whose_fleet_hears_nothing_goes_on() -> None:
    ours, theirs = os.pipe()
    telemetry = Telemetry(theirs)
    for _ in range(10_000):  # far more than a pipe holds
        telemetry.worker_state("busy", "x" * 500)
    os.close(ours)
    telemetry.redis_failed()
    os.close(theirs)


def test_a_line_that_is_none_of_ours_is_left_out() -> None:
    assert read(b"[1]") is None and read(b"\xff") is None and read(b'{"kind": "x", "y": 1}') is None
    assert read(b'{"kind": "error"}') == TelemetryMessage(kind="error")
