"""What /livez and /readyz say, by the fleet's own clock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from hpq_worker.health.health import HANG_S, LOST_S, SILENT_S, Health, StateFile, StateWriter
from tests.support.ids import ids

Worker = Callable[[int], StateWriter]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Iterator[Health]:
    health = Health(2, 0.0, clock)
    yield health
    for slot in (0, 1):
        health.worker_ended(slot)


@pytest.fixture
def worker(health: Health, clock: Clock) -> Worker:
    """Return a function that starts the worker of a slot, and returns what that writes with."""
    return lambda slot: StateWriter(health.worker_started(slot), clock)


@pytest.fixture
def file() -> Iterator[StateFile]:
    file = StateFile()
    yield file
    file.close()


def test_a_fleet_that_stands_still_is_not_alive(health: Health, clock: Clock) -> None:
    health.loop()
    clock.now += HANG_S
    assert health.not_alive() == ""
    clock.now += 1
    assert ids(health.not_alive()) == ["supervisor-hung"] and "61 s" in health.not_alive()


def test_a_worker_that_falls_silent_is_not_alive_but_one_that_ended_is_started_again(
    health: Health, worker: Worker, clock: Clock
) -> None:
    first, _ = worker(0), worker(1)
    assert health.not_alive() == ""  # they have just been started
    clock.now += SILENT_S + 1
    health.loop()
    first.redis_failed()
    why = health.not_alive()
    assert ids(why) == ["worker-silent"] and "worker 1 " in why and "121 s" in why
    health.worker_ended(1)
    assert health.not_alive() == ""


def test_ready_is_a_pod_of_which_one_worker_reached_redis_lately_and_can_work(
    health: Health, worker: Worker, clock: Clock
) -> None:
    assert ids(health.not_ready()) == ["worker-down"] * 2
    first, second = worker(0), worker(1)
    assert ids(health.not_ready()) == ["redis-away"] * 2
    first.redis_answered()
    assert health.not_ready() == ""
    first.worker_state("idle", "no data")
    why, other = health.not_ready().splitlines()
    assert why == "worker 0: no data" and "worker 1 " in other and ids(other) == ["redis-away"]
    second.redis_answered()
    second.worker_state("stopping")
    why, other = health.not_ready().splitlines()
    assert why == "worker 0: no data" and ids(other) == ["worker-stopping"]
    first.worker_state("busy")
    assert health.not_ready() == ""
    clock.now += SILENT_S / 2 + 1
    assert ids(health.not_ready())[0] == "redis-away"


def test_a_worker_that_was_started_again_has_not_reached_redis_yet(
    health: Health, worker: Worker
) -> None:
    worker(0).redis_answered()
    assert health.not_ready() == ""
    health.worker_ended(0)
    assert ids(health.not_ready()) == ["worker-down"] * 2
    again = worker(0)
    assert ids(health.not_ready()) == ["redis-away", "worker-down"]
    again.redis_answered()
    assert health.not_ready() == ""


def test_workers_that_speak_seldom_by_their_settings_are_waited_for(clock: Clock) -> None:
    one = Health(1, 600.0, clock)
    StateWriter(one.worker_started(0), clock).redis_answered()
    clock.now += 600 + SILENT_S / 2
    one.loop()
    assert one.not_alive() == one.not_ready() == ""
    clock.now += SILENT_S
    assert ids(one.not_alive()) == ["supervisor-hung"]
    one.worker_ended(0)


def test_not_ready_is_a_pod_whose_last_looks_failed_before_it_would_count_as_silent(
    health: Health, worker: Worker, clock: Clock
) -> None:
    one = worker(0)
    one.redis_answered()
    clock.now += LOST_S + 1
    one.redis_failed()
    assert health.not_ready() == ""  # one may be a blip
    one.redis_failed()
    assert ids(health.not_ready())[0] == "redis-away"
    assert health.not_alive() == ""
    one.redis_answered()
    assert health.not_ready() == ""
    one.redis_failed()
    one.redis_failed()
    assert health.not_ready() == ""  # for a moment
    one.redis_answered()
    clock.now += LOST_S + 1
    one.redis_failed()
    assert health.not_ready() == ""  # the answer has ended the row of failures


@pytest.mark.parametrize("reason", ["x" * 500, "\N{PARTY POPPER}" * 500, "\x00" * 500, "\ud800"])
def test_a_reason_of_any_length_and_script_is_read_back(file: StateFile, reason: str) -> None:
    writer = StateWriter(file.fd)
    writer.worker_state("idle", reason)
    assert file.read().reason == reason[:200]
    writer.worker_state("busy")
    assert (file.read().status, file.read().reason) == ("busy", "")


def test_a_worker_without_a_supervisor_that_reads_goes_on(file: StateFile) -> None:
    StateWriter(None).worker_state("busy")
    writer = StateWriter(file.fd)
    file.close()
    writer.redis_failed()
    assert file.read().status == "starting"


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"\xff", b'{"status": "x", "y": 1}'])
def test_a_state_that_is_not_whole_leaves_the_one_before(file: StateFile, text: bytes) -> None:
    StateWriter(file.fd).worker_state("busy")
    before = file.read()
    os.pwrite(file.fd, text.ljust(4096), 0)
    assert file.read() == before
