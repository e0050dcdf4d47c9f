"""Operators' limits of owners: what a claim allows, and the ledger of running attempts."""

from __future__ import annotations

import secrets

import pytest
from redis import Redis

from hpq.domain.attempt import HeartbeatReply, Nothing, Outcome, Reason, WorkerPresence
from hpq.domain.trial import Claim, TrialState
from hpq.store.control import SweepControl
from hpq.store.keys import Keys
from hpq.store.worker_reader import server_ms
from tests.support.store_calls import beat, end

LEASE = 30_000
HOUR = 3_600_000


@pytest.fixture
def limit(control: SweepControl):
    return control.limit_owner


@pytest.fixture
def claim(store, who: WorkerPresence):
    """Claim a trial with a nonce of its own; None if none may start."""

    def claim(gpus: float = 1, lease_ms: int = LEASE) -> Claim | None:
        found = store.claim(who, nonce=secrets.token_hex(8), lease_ms=lease_ms, gpus=gpus)
        return found if isinstance(found, Claim) else None

    return claim


def owners_of(*claims: Claim | None) -> list[str]:
    return [claim.owner if claim else "" for claim in claims]


def grow_old(redis: Redis, keys: Keys, owner: str, ms: int, *, beats: bool = False) -> None:
    """Let time pass for what an owner runs, without beats by default."""
    for field, text in redis.hgetall(keys.running(owner)).items():
        gpus, charged, until = text.split()
        until = until if beats else b"%d" % (int(until) - ms)
        old = b"%s %d %s" % (gpus, int(charged) - ms, until)
        redis.hset(keys.running(owner), field, old)


def test_an_owner_runs_as_many_trials_as_its_limit_lets(sweep_of, claim, limit, store) -> None:
    sweep_of(9, "a-00000", owner="ann")
    sweep_of(9, "b-00000", owner="bob", priority=1)
    limit("bob", {"running": 2})
    held = [claim() for _ in range(5)]
    assert owners_of(*held) == ["bob", "bob", "ann", "ann", "ann"]
    assert all(one.limited for one in held)
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
    limit("*", {}, ["running"])
    assert claim() is not None


def test_one_who_asks_for_priority_1000_shares_with_the_others(
    sweep_of, claim, limit, control: SweepControl
) -> None:
    """bob had 6 of 6 trials, and alice 0 of 8, before there was a limit."""
    limit("*", {"priority": 10})
    sweep_of(6, "b-00000", owner="bob", priority=1000)
    sweep_of(8, "a-00000", owner="alice", priority=10)
    assert owners_of(*(claim() for _ in range(4))) == ["alice"] * 4
    control.set("b-00000", {"priority": "10"})
    assert owners_of(*(claim() for _ in range(8))).count("bob") == 6  # until they are even
    assert owners_of(*(claim() for _ in range(3))) == ["alice", "alice", ""]


def test_gpu_time_is_charged_as_it_passes_and_bounds_what_starts(
    sweep_of, claim, limit, redis, keys, store, who, reader
) -> None:
    limit("ann", {"gpu_ms": 8 * HOUR})
    sweep_of(9, "a-00000", owner="ann")
    one = claim(gpus=4.0)
    grow_old(redis, keys, "ann", HOUR, beats=True)
    redis.hset(keys.trial(one.trial), "claimed_ms", "9999999999999")  # which a producer may write
    assert beat(store, who, one, 1, 1) is HeartbeatReply.OK
    (ann,) = reader.owners.all()
    assert ann.running == 1 and ann.gpu_hours == pytest.approx(4, abs=0.01)
    two = claim(gpus=4.0)
    grow_old(redis, keys, "ann", HOUR, beats=True)
    assert claim() is None  # what runs counts, too
    end(store, one, 1.0)
    store.release(two, Reason.STOPPING)
    (ann,) = reader.owners.all()
    assert ann.running == 0 and ann.gpu_hours == pytest.approx(12, abs=0.01)
    limit("ann", {"gpu_ms": 13 * HOUR})
    assert claim() is not None


def test_an_attempt_whose_worker_died_counts_until_its_lease_ends(
    sweep_of, claim, limit, redis, keys, store, who, reader
) -> None:
    limit("*", {"running": 1})
    sweep_of(9, "a-00000", owner="ann")
    lost = claim()
    beat(store, who, lost, 1, 1)
    redis.zadd(keys.leases, {str(lost.trial): 0})  # a producer may write that
    store.reap("default", lease_ms=LEASE, lost_max=3)
    assert claim() is None
    grow_old(redis, keys, "ann", LEASE)
    again = claim()
    assert again.trial == lost.trial and redis.hlen(keys.running("ann")) == 1
    assert reader.owners.of(["ann"])["ann"].spent_ms < LEASE  # to the last beat


def test_an_attempt_whose_process_is_known_to_be_dead_counts_no_longer(
    sweep_of, claim, limit, redis, keys, store
) -> None:
    limit("*", {"running": 1})
    sweep_of(9, "a-00000", owner="ann")
    lost = claim()
    dead = [(lost.trial, lost.token)]
    store.reap("default", lease_ms=LEASE, lost_max=3)
    assert store.reap("default", lease_ms=LEASE, lost_max=3, dead=dead)
    assert not redis.exists(keys.running("ann")) and claim().trial == lost.trial


def test_a_client_that_resets_the_attempts_of_its_trials_runs_no_more(
    sweep_of, claim, limit, redis, keys, store, who
) -> None:
    limit("*", {"running": 2})
    sweep_of(9, "a-00000", owner="ann")
    held = [claim(), claim()]
    trial = keys.trial(held[0].trial)
    for values in ({"attempt": "0"}, {"state": "queued", "attempt": "0", "nonce": ""}):
        redis.hset(trial, mapping=values)
        redis.zrem(keys.sweep("a-00000", "running"), "1")
        redis.zadd(keys.sweep("a-00000", "waiting"), {"1": 1})
        redis.delete(keys.leases, keys.queue("default", "busy"))
        assert claim() is None
    end(store, held[1], 1.0)
    second = claim()
    assert second.attempt == held[0].attempt and second.trial == held[0].trial
    assert claim() is None and redis.hlen(keys.running("ann")) == 2


def test_a_beat_counts_whatever_a_client_made_of_the_trial(
    sweep_of, claim, limit, redis, keys, store, who
) -> None:
    """Its worker takes the error for an outage, and trains on."""
    limit("*", {"running": 1})
    sweep_of(9, "a-00000", owner="ann")
    held = claim()
    redis.delete(keys.trial(held.trial))
    redis.set(keys.trial(held.trial), "not a hash")
    grow_old(redis, keys, "ann", LEASE - 1)
    with pytest.raises(Exception, match="WRONGTYPE"):
        beat(store, who, held, 1, 1)
    until_ms = int(redis.hvals(keys.running("ann"))[0].split()[2])
    assert until_ms > server_ms(redis) + LEASE / 2


def test_a_claim_that_the_worker_refuses_charges_nobody(
    sweep_of, claim, limit, redis, keys, store, reader
) -> None:
    limit("*", {"running": 1})
    sweep_of(9, "a-00000", owner="ann")
    redis.hset(keys.sweep("a-00000"), "owner", "bob")  # forged
    found = claim()
    assert found.owner == "bob"
    redis.hset(keys.sweep("a-00000"), "owner", "ann")
    grow_old(redis, keys, "bob", 1000)
    store.release(found, Reason.REFUSED)
    assert not redis.exists(keys.running("bob"), keys.running("ann"), keys.spent)


def test_a_worker_that_was_cut_off_counts_again_once_it_is_back(
    sweep_of, claim, limit, redis, keys, store, who
) -> None:
    limit("*", {"running": 3})
    sweep_of(9, "a-00000", owner="ann")
    away = claim()
    grow_old(redis, keys, "ann", LEASE)
    claim()
    assert redis.hlen(keys.running("ann")) == 1
    beat(store, who, away, 1, 1)
    assert redis.hlen(keys.running("ann")) == 2
    store.commit(away, Outcome(state=TrialState.FINISHED, objective=1.0))
    assert redis.hlen(keys.running("ann")) == 1


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
    limit("ann", {"gpu_ms": 0}, ["running"])
    assert demand() == 0 and claim() is None
    limit("ann", {}, ["gpu_ms"])
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


def test_claims_with_one_nonce_enter_the_ledger_once(
    sweep_of, limit, redis, keys, store, who
) -> None:
    limit("*", {"running": 1})
    sweep_of(9, "a-00000", owner="ann")
    first, again = (store.claim(who, nonce="a", lease_ms=LEASE) for _ in range(2))
    assert first == again and first.limited and redis.hlen(keys.running("ann")) == 1
    assert store.claim(who, nonce="b", lease_ms=LEASE) == Nothing()
