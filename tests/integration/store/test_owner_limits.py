"""Operators' limits of owners: what a claim allows, and how running trials and GPU time count."""

from __future__ import annotations

import secrets

import pytest
from redis import Redis

from hpq.domain.attempt import HeartbeatReply, Nothing, Outcome, Reason, WorkerPresence
from hpq.domain.budget import Budget
from hpq.domain.trial import Claim, TrialState
from hpq.store.control import SweepControl
from hpq.store.keys import Keys
from tests.support.store_calls import beat, end

LEASE = 30_000
HOUR = 3_600_000
OWNERS = {"a": "ann", "b": "bob", "c": "cyd"}  # by the first letter of their sweeps


@pytest.fixture
def limit(control: SweepControl):
    return control.limit_owner


@pytest.fixture
def claim(store, who: WorkerPresence):
    """Claim a trial with a nonce of its own; None if none may start."""

    def claim(gpus: float = 1, worker: WorkerPresence = who) -> Claim | None:
        found = store.claim(worker, nonce=secrets.token_hex(8), lease_ms=LEASE, gpus=gpus)
        return found if isinstance(found, Claim) else None

    return claim


@pytest.fixture
def lose(store, redis: Redis, keys: Keys):
    """End the lease of a trial."""

    def lose(claim: Claim) -> None:
        store.reap("default", lease_ms=LEASE, lost_max=3)  # the first one only notes the server
        redis.zadd(keys.leases, {str(claim.trial): 0})
        store.reap("default", lease_ms=LEASE, lost_max=3)

    return lose


def owners_of(*claims: Claim | None) -> list[str]:
    return [OWNERS[claim.trial.sweep[0]] if claim else "" for claim in claims]


def grow_old(redis: Redis, keys: Keys, claim: Claim, ms: int) -> None:
    """Let time pass since an attempt last sent a heartbeat."""
    for field in ("charged_ms", "beat_ms"):
        if redis.hexists(keys.trial(claim.trial), field):
            redis.hincrby(keys.trial(claim.trial), field, -ms)


def test_an_owner_runs_as_many_trials_as_its_limit_lets(sweep_of, claim, limit, store) -> None:
    sweep_of(9, "a-00000", owner="ann")
    sweep_of(9, "b-00000", owner="bob", priority=1)
    limit("bob", {"running": 2})
    held = [claim() for _ in range(5)]
    assert owners_of(*held) == ["bob", "bob", "ann", "ann", "ann"]
    end(store, held[0], 1.0)
    assert owners_of(claim(), claim()) == ["bob", "ann"]
    store.release(held[1], Reason.STOPPING)
    assert owners_of(claim(), claim()) == ["bob", "ann"]
    limit("bob", {"running": 0})
    limit("*", {"running": 6})
    assert owners_of(claim(), claim()) == ["ann", ""]  # six of hers run; two of his run on


def test_everybodys_limit_counts_for_each_owner_and_an_own_one_comes_first(
    sweep_of, claim, limit
) -> None:
    for name in ("ann", "bob", "cyd"):
        sweep_of(9, f"{name[0]}-00000", owner=name)
    limit("*", {"running": 1})
    limit("cyd", {"running": 2})
    found = owners_of(*(claim() for _ in range(5)))
    assert sorted(found) == ["", "ann", "bob", "cyd", "cyd"]
    limit("*", {"running": None})
    assert claim() is not None


def test_trials_of_all_queues_count(sweep_of, claim, limit, reader) -> None:
    sweep_of(9, "a-00000", owner="ann")
    sweep_of(9, "a-00001", owner="ann", queue="large")
    limit("ann", {"running": 3})
    far = WorkerPresence(name="w9", host="h9", queue="large")
    assert owners_of(claim(), claim(worker=far), claim()) == ["ann", "ann", "ann"]
    assert claim() is None and claim(worker=far) is None
    assert reader.owners.of(["ann"])["ann"].running == 3


def test_one_who_asks_for_priority_1000_shares_with_the_others(
    sweep_of, claim, limit, control: SweepControl
) -> None:
    """bob had 6 of 6 trials, and ann 0 of 8, before there was a limit."""
    limit("*", {"priority": 10})
    sweep_of(6, "b-00000", owner="bob", priority=1000)
    sweep_of(8, "a-00000", owner="ann", priority=10)
    assert owners_of(*(claim() for _ in range(4))) == ["ann"] * 4
    control.set("b-00000", {"priority": "10"})
    assert owners_of(*(claim() for _ in range(8))).count("bob") == 6  # until they are even
    assert owners_of(*(claim() for _ in range(3))) == ["ann", "ann", ""]


def test_gpu_time_is_charged_as_it_passes_and_bounds_what_starts(
    sweep_of, claim, limit, redis, keys, store, who, reader
) -> None:
    limit("ann", {"gpu_ms": 8 * HOUR})
    sweep_of(9, "a-00000", owner="ann")
    one = claim(gpus=4.0)
    grow_old(redis, keys, one, HOUR)
    assert beat(store, who, one, 1, 1) is HeartbeatReply.OK
    (ann,) = reader.owners.all()
    assert ann.running == 1 and ann.gpu_hours == pytest.approx(4, abs=0.01)
    two = claim(gpus=4.0)
    for held in (one, two):
        grow_old(redis, keys, held, HOUR)
    beat(store, who, two, 1, 1)
    assert claim() is None  # what runs counts, too
    end(store, one, 1.0)
    store.release(two, Reason.STOPPING)
    (ann,) = reader.owners.all()
    assert ann.running == 0 and ann.gpu_hours == pytest.approx(12, abs=0.01)
    limit("ann", {"gpu_ms": 13 * HOUR})
    assert claim() is not None


def test_a_lost_attempt_counts_until_its_lease_ends_and_costs_the_time_to_its_last_beat(
    sweep_of, claim, limit, redis, keys, reader, lose
) -> None:
    limit("*", {"running": 1})
    sweep_of(9, "a-00000", owner="ann")
    lost = claim(gpus=2.0)
    redis.hincrby(keys.trial(lost.trial), "charged_ms", -HOUR)  # its last beat is of now
    assert claim() is None
    lose(lost)
    assert claim().trial == lost.trial
    ann = reader.owners.of(["ann"])["ann"]
    assert ann.running == 1 and ann.gpu_hours == pytest.approx(2, abs=0.01)


@pytest.mark.parametrize("ends", [False, True], ids=["beat", "commit"])
def test_a_worker_that_was_cut_off_is_charged_what_it_trained_meanwhile(
    sweep_of, claim, limit, redis, keys, store, who, reader, lose, ends: bool
) -> None:
    limit("*", {"running": 3})
    sweep_of(9, "a-00000", owner="ann")
    away = claim(gpus=2.0)
    lose(away)
    grow_old(redis, keys, away, HOUR)
    assert reader.owners.of(["ann"])["ann"].running == 0
    if ends:
        store.commit(away, Outcome(state=TrialState.FINISHED, objective=1.0))
    else:
        beat(store, who, away, 1, 1)
    ann = reader.owners.of(["ann"])["ann"]
    assert ann.running == (0 if ends else 1) and ann.gpu_hours == pytest.approx(2, abs=0.01)


def test_an_attempt_of_which_no_limit_was_set_is_not_charged(
    sweep_of, claim, limit, redis, keys, store, who, reader
) -> None:
    sweep_of(9, "a-00000", owner="ann")
    before = claim()
    limit("ann", {"running": 2, "gpu_ms": HOUR})
    beat(store, who, before, 1, 1)
    end(store, before, 1.0)
    assert not redis.exists(keys.spent)
    assert claim() is not None and reader.owners.of(["ann"])["ann"].running == 1


def test_the_demand_counts_no_trial_that_limits_forbid(
    sweep_of, claim, limit, redis, keys, store, control: SweepControl
) -> None:
    """Else an autoscaler would start GPU pods that no trial uses."""
    demand = lambda: redis.llen(keys.demand("default"))  # noqa: E731
    reap = lambda: store.reap("default", lease_ms=LEASE, lost_max=3)  # noqa: E731
    reap()
    limit("ann", {"running": 3})
    sweep_of(9, "a-00000", owner="ann")
    assert demand() == 3  # at once: no worker may run that would correct it
    sweep_of(9, "c-00000", owner="ann")
    sweep_of(2, "b-00000", owner="bob")
    reap()
    assert demand() == 5
    held = [claim() for _ in range(5)]
    assert owners_of(*held).count("ann") == 3 and demand() == 5
    for one in held:
        end(store, one, 1.0)
    assert demand() == 3
    limit("ann", {"gpu_ms": 0, "running": None})
    assert demand() == 0 and claim() is None
    limit("ann", {"gpu_ms": None})
    assert demand() == 15 and claim() is not None
    limit("ann", {"priority": -1})
    control.pause("a-00000")
    reap()
    assert demand() == 1  # the trial that runs on


def test_a_server_without_limits_pays_one_command_a_claim(
    sweep_of, claim, redis, store, who
) -> None:
    sweep_of(9, "a-00000", owner="ann")
    redis.config_resetstat()
    held = claim()
    beat(store, who, held, 1, 1)
    end(store, held, 1.0)
    stats = redis.info("commandstats")
    assert stats["cmdstat_hgetall"]["calls"] == 1  # in all of them


def test_claims_with_one_nonce_count_once(sweep_of, limit, store, who, reader) -> None:
    limit("*", {"running": 1})
    sweep_of(9, "a-00000", owner="ann")
    first, again = (store.claim(who, nonce="a", lease_ms=LEASE) for _ in range(2))
    assert first == again and reader.owners.of(["ann"])["ann"].running == 1
    assert store.claim(who, nonce="b", lease_ms=LEASE) == Nothing()


def test_room_of_an_owner_reaches_a_queue_that_has_no_worker(
    sweep_of, claim, limit, redis, keys, store
) -> None:
    """Its workers are scaled to none until the demand asks for one."""
    store.reap("default", lease_ms=LEASE, lost_max=3)
    limit("ann", {"running": 2})
    sweep_of(2, "a-00000", owner="ann")
    held = [claim(), claim()]
    sweep_of(2, "a-00001", owner="ann", queue="large")
    assert redis.llen(keys.demand("large")) == 0
    for one in held:
        end(store, one, 1.0)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    assert redis.llen(keys.demand("large")) == 2


def test_a_sweep_that_opens_again_has_the_room_of_that_moment(
    sweep_of, claim, limit, redis, keys, store, control: SweepControl
) -> None:
    limit("ann", {"running": 1})
    sweep_of(3, "a-00000", owner="ann")
    one = claim()
    control.stop("a-00000")
    end(store, one, 1.0)
    limit("ann", {"running": None})
    assert control.retry("a-00000", [2, 3]) == 2
    assert redis.llen(keys.demand("default")) == 2


def test_an_outage_after_the_training_costs_its_owner_nothing(
    sweep_of, claim, limit, redis, keys, store, reader
) -> None:
    limit("ann", {"gpu_ms": 9 * HOUR})
    sweep_of(3, "a-00000", owner="ann", budget=Budget.of_hours(99, 0))
    one = claim(gpus=2.0)
    for field in ("claimed_ms", "charged_ms", "beat_ms"):
        redis.hincrby(keys.trial(one.trial), field, -4 * HOUR)
    store.commit(one, Outcome(state=TrialState.FINISHED, objective=1.0, ran_ms=HOUR))
    assert reader.owners.of(["ann"])["ann"].gpu_hours == pytest.approx(2, abs=0.01)
    assert int(redis.hget(keys.sweep("a-00000"), "spent_ms")) == 2 * HOUR


def test_a_sweep_that_resumes_has_the_room_of_that_moment(
    sweep_of, claim, limit, redis, keys, store, control: SweepControl
) -> None:
    limit("ann", {"running": 1})
    sweep_of(1, "a-00000", owner="ann")
    one = claim()
    sweep_of(3, "a-00001", owner="ann")
    control.pause("a-00001")
    end(store, one, 1.0)
    control.resume("a-00001")
    assert redis.llen(keys.demand("default")) == 1
