"""What a worker's reaper logs of the trials that it takes from lost workers."""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Event

import pytest
from redis import Redis

from hpq.domain.attempt import IdleReply, Outcome, ReportBatch, WorkerPresence
from hpq.domain.trial import Claim, FailureKind, TrialState
from hpq.settings import read
from hpq.store.control import SweepControl
from hpq.store.trials import TrialStore
from hpq.store.worker_reader import server_ms
from hpq_worker.health.health import StateWriter
from hpq_worker.lease.heartbeat import Heartbeat
from hpq_worker.lease.outage_log import OutageLog
from hpq_worker.lease.reaper import Reaper
from hpq_worker.lease.report_buffer import ReportBuffer
from hpq_worker.process.watchdog import Progress
from tests.support.constants import DEADLINE_S
from tests.support.server import calls
from tests.support.store_calls import end

LEASE = 30_000


def test_the_reaper_tells_what_is_queued_again_from_what_is_over(
    store: TrialStore,
    sweep_of,
    take,
    who: WorkerPresence,
    redis: Redis,
    keys,
    caplog: pytest.LogCaptureFixture,
    control: SweepControl,
) -> None:
    sid = sweep_of(3).id
    store.reap("default", lease_ms=LEASE, lost_max=2)
    busy = replace(who, fields={"state": "busy", "fault": ""})
    settings = read({"HPQ_REDIS_URL": "redis://x", "HPQ_LOST_MAX": "2"})

    def said() -> list[str]:
        caplog.clear()
        redis.zadd(keys.leases, {name: 0 for name in redis.zrange(keys.leases, 0, -1)})
        reaper = Reaper(settings, store, lambda: (busy, False), StateWriter(None), OutageLog())
        reaper.start()
        reaper.stop()
        return caplog.messages

    take()
    (line,) = said()
    assert line.startswith("1 trial ")
    told, *_ = take(), take(), take()
    control.cancel(sid, [told.trial.number + 1])
    again, over = said()
    assert again.startswith("1 trial ") and over.startswith("2 trials ") and "poison" in over


def test_a_reaper_that_cannot_read_what_redis_holds_goes_on(
    store: TrialStore, who: WorkerPresence, caplog: pytest.LogCaptureFixture
) -> None:
    calls, has_gone_on = itertools.count(), Event()
    busy = replace(who, fields={"state": "busy", "fault": ""})

    def describe() -> tuple[WorkerPresence, bool]:
        number = next(calls)
        if number in (1, 2):
            raise ValueError("no record")
        if number > 3:
            has_gone_on.set()
        return busy, False

    settings = read({"HPQ_REDIS_URL": "redis://x", "HPQ_REAP_S": "0.01"})
    reaper = Reaper(settings, store, describe, StateWriter(None), OutageLog())
    reaper.start()
    assert has_gone_on.wait(DEADLINE_S)
    reaper.stop()
    assert len(caplog.messages) == 1


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The machine's monotonic clock, as the one number of a list."""
    now = [1_000.0]
    monkeypatch.setattr(time, "clock_gettime", lambda clock: now[clock == time.CLOCK_MONOTONIC])
    return now


@pytest.fixture
def reaper_of(store: TrialStore, sweep_of, who: WorkerPresence) -> Callable[..., Reaper]:
    """Return a function that builds the reaper of a busy worker, beside a sweep of one trial."""
    sweep_of(1)
    store.reap("default", lease_ms=LEASE, lost_max=2)
    busy = replace(who, fields={"state": "busy", "fault": ""})
    settings = read({"HPQ_REDIS_URL": "redis://x", "HPQ_REAP_S": "0.01"})
    return partial(Reaper, settings, store, lambda: (busy, False), StateWriter(None))


def test_a_machine_that_was_suspended_requeues_no_trial_at_once(
    now: list[float], reaper_of: Callable[..., Reaper], take, redis: Redis, keys, reader
) -> None:
    """The server's clock ran on meanwhile, so all leases of the machine's workers have expired."""
    reaper, claim = reaper_of(OutageLog()), take()
    redis.zadd(keys.leases, {name: 0 for name in redis.zrange(keys.leases, 0, -1)})
    state = lambda: reader.trials.get(claim.trial).state  # noqa: E731
    for passed_s in (3_600, 14, 14):  # a longer pause would be another sleep
        now[0] += passed_s
        reaper.run_once()
        assert state() is TrialState.RUNNING
    now[0] += 14
    reaper.run_once()
    assert state() is TrialState.QUEUED


def test_a_trial_whose_process_is_known_to_be_dead_is_lost_before_its_lease_ends(
    store: TrialStore, sweep_of, take, reader
) -> None:
    sweep_of(2)
    store.reap("default", lease_ms=LEASE, lost_max=2)
    first, other = take(), take()

    def reap(claim: Claim) -> None:
        dead = [(claim.trial, claim.token)]
        store.reap("default", lease_ms=LEASE, lost_max=2, dead=dead)

    reap(first)
    assert reader.trials.get(first.trial).state is TrialState.QUEUED
    second = take()
    assert (second.trial, second.attempt) == (first.trial, 2)
    reap(first)
    reap(replace(second, nonce="of another server"))
    reap(replace(second, trial=replace(second.trial, sweep="unknown")))
    assert reader.trials.get(second.trial).state is TrialState.RUNNING
    reap(second)
    failure = reader.trials.get(second.trial).failure
    assert failure is not None and failure.kind is FailureKind.POISON
    assert reader.trials.get(other.trial).state is TrialState.RUNNING


def test_a_reaper_names_a_dead_attempt_until_the_server_has_settled(
    reaper_of: Callable[..., Reaper], take, redis: Redis, keys, reader
) -> None:
    claim = take()
    dead = deque([(claim.trial, claim.token)])
    reaper = reaper_of(OutageLog(), dead=dead)
    redis.hset(keys.server, "since", 1000 * redis.time()[0])  # the server has just started
    reaper.run_once()
    assert dead and reader.trials.get(claim.trial).state is TrialState.RUNNING
    redis.hset(keys.server, "since", 0)
    reaper.run_once()
    assert not dead and reader.trials.get(claim.trial).state is TrialState.QUEUED


@pytest.mark.parametrize(("age_s", "is_renewed"), [(10.0, True), (31.0, False)])
def test_a_beat_renews_from_the_last_turn_of_the_main_loop(
    store: TrialStore, sweep_of, take, who: WorkerPresence, redis: Redis, keys, age_s, is_renewed
) -> None:
    sweep_of(1)
    claim, progress = take(), Progress()
    progress._at -= age_s
    outage, reports = OutageLog(), ReportBuffer(None)
    heartbeat = Heartbeat(store, who, LEASE, lambda: None, outage, progress)
    heartbeat._send(claim, reports)
    (_, lease), now = redis.zrange(keys.leases, 0, -1, withscores=True)[0], redis.time()
    now_ms = 1000 * now[0] + now[1] / 1000
    assert (lease > now_ms) is True
    assert heartbeat._send(claim, reports) is is_renewed
    if is_renewed:
        assert lease <= now_ms + LEASE - 1000 * age_s


def test_a_worker_whose_record_went_while_it_was_silent_sends_it_again(
    now: list[float],
    store: TrialStore,
    sweep_of,
    who: WorkerPresence,
    redis: Redis,
    keys,
    control: SweepControl,
) -> None:
    """A worker is stopped for longer than it counts as live, and the last sweep is removed."""
    settings = read({"HPQ_REDIS_URL": "redis://x", "HPQ_REAP_S": "0.05"})
    it = replace(who, fields={"state": "idle", "fault": "", "ran_on": "d1"})
    sent: list[str] = []

    def send() -> None:
        sent.append("d1")
        store.keep_provenance("d1", '{"host":"h"}')

    def alive() -> bool:
        return bool(redis.exists(keys.worker(it.name)))

    old = sweep_of(1).id
    store.keep_provenance("d1", '{"host":"h"}')
    reaper = Reaper(settings, store, lambda: (it, True), StateWriter(None), OutageLog(), send)
    reaper.run_once()
    assert not sent and alive()
    claim = store.claim(it, nonce="n", lease_ms=LEASE, provenance="d1")
    assert isinstance(claim, Claim)
    store.commit(claim, Outcome(state=TrialState.FINISHED))
    redis.delete(keys.worker(it.name))  # as it expires
    redis.zrem(keys.workers, it.name)
    control.remove(old)
    assert not redis.hexists(keys.provenance, "d1")
    now[0] += 100
    reaper.run_once()
    assert sent == ["d1"] and redis.hexists(keys.provenance, "d1")
    reaper.run_once()
    assert sent == ["d1"]


@pytest.fixture
def server_clock(store: TrialStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server's clock go as the machine's, for idle workers."""
    still_idle = store.still_idle

    def at_its_time(who: WorkerPresence, at_ms: int) -> IdleReply | None:
        reply = still_idle(who, at_ms)
        return reply and replace(reply, now_ms=at_ms)

    monkeypatch.setattr(store, "still_idle", at_its_time)


@pytest.fixture
def idle(now: list[float], server_clock: None, store: TrialStore, who: WorkerPresence) -> Reaper:
    """The reaper of an idle worker that has reported."""
    it = replace(who, name="idle-1", fields={"state": "idle", "fault": "", "gpu_util": "0"})
    settings = read({"HPQ_REDIS_URL": "redis://x"})
    reaper = Reaper(settings, store, lambda: (it, True), StateWriter(None), OutageLog())
    for _ in range(4):
        reaper.run_once()
        now[0] += 5
    return reaper


@pytest.mark.parametrize("has_limits", [False, True])
def test_an_idle_worker_sends_few_commands_and_counts_as_live(
    now: list[float], idle: Reaper, control: SweepControl, redis: Redis, keys, has_limits: bool
) -> None:
    """It is the only one, so it corrects the counts."""
    if has_limits:
        control.limit_owner("me", {"running": 1})
    redis.hdel(keys.queues, "booked:default")  # a minute has passed
    redis.config_resetstat()
    seen = []
    for _ in range(12):
        now[0] += 5
        idle.run_once()
        seen.append(redis.zscore(keys.workers, "idle-1"))
    sent = calls(redis) | {"info": redis.info("commandstats")["cmdstat_info"]["calls"] - 1}
    assert all(seen_ms != later_ms for seen_ms, later_ms in zip(seen, seen[2:], strict=False))
    assert sum(sent.values()) - sent["zscore"] <= 65, sent


def test_the_record_of_an_idle_worker_lives_until_its_next_report(
    now: list[float], server_clock, store: TrialStore, who: WorkerPresence, redis: Redis, keys
) -> None:
    it = replace(who, fields={"state": "idle", "fault": ""})
    settings = read({"HPQ_REDIS_URL": "redis://x", "HPQ_LEASE_S": "30", "HPQ_REAP_S": "59"})
    reaper = Reaper(settings, store, lambda: (it, True), StateWriter(None), OutageLog())
    ends_at = math.inf
    for _ in range(6):
        assert now[0] < ends_at
        redis.persist(keys.worker(it.name))
        reaper.run_once()
        if (left_ms := redis.pttl(keys.worker(it.name))) > 0:
            ends_at = now[0] + left_ms / 1_000
        now[0] += 59


def test_an_idle_worker_requeues_a_lost_trial_at_its_next_look(
    now: list[float], idle: Reaper, sweep_of, take, redis: Redis, keys, reader
) -> None:
    sweep_of(1)
    claim = take()
    redis.zadd(keys.leases, {str(claim.trial): server_ms(redis) + 7_000})
    now[0] += 5
    idle.run_once()
    assert reader.trials.get(claim.trial).state is TrialState.RUNNING
    redis.zadd(keys.leases, {str(claim.trial): 1})  # those seconds have passed
    now[0] += 5
    idle.run_once()
    assert reader.trials.get(claim.trial).state is TrialState.QUEUED


def test_an_idle_worker_requeues_a_lost_trial_of_a_full_server(
    now: list[float], idle: Reaper, sweep_of, take, redis: Redis, keys, reader
) -> None:
    sweep_of(1)
    claim = take()
    redis.config_set("maxmemory", 1)
    try:
        for _ in range(12):  # longer than an outage after which it would wait
            now[0] += 5
            idle.run_once()
        assert reader.trials.get(claim.trial).state is TrialState.RUNNING
        redis.config_set("maxmemory", 0)
        redis.zadd(keys.leases, {str(claim.trial): 1})  # those seconds have passed
        redis.config_set("maxmemory", 1)
        now[0] += 5
        idle.run_once()
        assert reader.trials.get(claim.trial).state is TrialState.QUEUED
    finally:
        redis.config_set("maxmemory", 0)


def test_an_idle_worker_makes_room_on_a_server_short_of_memory_at_its_next_sign_of_life(
    now: list[float], idle: Reaper, sweep_of, take, store, who, redis: Redis, keys, reader
) -> None:
    sweep_of(1)
    claim = take()
    store.beat(claim, who, ReportBatch(seq=1, step=1, log=b"x" * 8_000), lease_ms=LEASE)
    end(store, claim, 1.0)
    now[0] += 10
    idle.run_once()
    assert reader.trials.log(claim.trial)[0]
    redis.config_set("maxmemory", int(redis.info("memory")["used_memory"] / 0.95))
    try:
        now[0] += 10
        idle.run_once()
        assert not reader.trials.log(claim.trial)[0]
    finally:
        redis.config_set("maxmemory", 0)


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_an_idle_worker_follows_a_jump_of_the_servers_clock_at_its_next_sign_of_life(
    now: list[float], idle: Reaper, store: TrialStore, redis: Redis, keys, monkeypatch, jump_ms: int
) -> None:
    still_idle = store.still_idle

    def jumped(who: WorkerPresence, at_ms: int) -> IdleReply | None:
        reply = still_idle(who, at_ms)
        return reply and replace(reply, now_ms=reply.now_ms + jump_ms)

    monkeypatch.setattr(store, "still_idle", jumped)
    redis.delete(keys.worker("idle-1"))
    now[0] += 10
    idle.run_once()
    assert redis.exists(keys.worker("idle-1"))  # it reported, and got the new time


def test_an_idle_worker_mints_tickets_that_a_crash_left_out(
    now: list[float], idle: Reaper, sweep_of, redis: Redis, keys
) -> None:
    sweep_of(2)
    redis.delete("rq:queue:hpq:hpq:default")
    redis.hdel(keys.queues, "booked:default")  # those seconds have passed
    now[0] += 5
    idle.run_once()
    assert redis.llen("rq:queue:hpq:hpq:default") == 2


def test_an_idle_worker_counts_what_an_owners_room_lets_start_in_a_queue_without_workers(
    now: list[float], idle: Reaper, sweep_of, take, store, control, redis: Redis, keys
) -> None:
    sweep_of(1)
    claim = take()
    control.limit_owner("me", {"running": 1})
    sweep_of(1, sid="b-00000", queue="big")
    assert redis.llen(keys.demand("big")) == 0
    end(store, claim, 1.0)
    idle._reported = {"state": "busy"}  # it ran that trial
    redis.hset(keys.queues, "booked:default", server_ms(redis))  # another worker has just counted
    now[0] += 5
    idle.run_once()
    redis.hdel(keys.queues, "booked:default", "booked:big")  # a minute has passed
    assert redis.llen(keys.demand("big")) == 0
    now[0] += 5
    idle.run_once()
    assert redis.llen(keys.demand("big")) == 1


def test_an_idle_worker_records_a_restart_of_the_server_at_its_next_sign_of_life(
    now: list[float], idle: Reaper, store: TrialStore, redis: Redis, keys, monkeypatch
) -> None:
    redis.hset(keys.server, "run_id", "of the server before")
    now[0] += 10
    idle.run_once()
    assert redis.hget(keys.server, "run_id") == b"of the server before"
    still_idle = store.still_idle

    def of_another(who: WorkerPresence, at_ms: int) -> IdleReply | None:
        reply = still_idle(who, at_ms)
        return reply and replace(reply, run_id="of another server")

    monkeypatch.setattr(store, "still_idle", of_another)
    now[0] += 10
    idle.run_once()
    assert redis.hget(keys.server, "run_id") != b"of the server before"


def test_an_idle_worker_that_the_server_has_forgotten_reports_again(
    now: list[float], idle: Reaper, redis: Redis, keys
) -> None:
    redis.delete(keys.workers, keys.worker("idle-1"))
    now[0] += 10
    idle.run_once()
    assert redis.exists(keys.workers, keys.worker("idle-1")) == 2
