"""What a call costs the server where there are many workers, sweeps or trials that wait."""

from __future__ import annotations

from dataclasses import replace

from redis import Redis

from hpq.domain.attempt import CommitReply, Outcome, WorkerPresence
from hpq.domain.trial import Failure, FailureKind, TrialState

LEASE = 30_000


def commands(redis: Redis) -> int:
    """How many commands the server has run since the last look, those of scripts included."""
    stats = redis.info("commandstats")
    redis.config_resetstat()
    return sum(row["calls"] for row in stats.values())


def test_one_worker_of_many_puts_the_counts_right_and_all_of_them_take_what_is_lost(
    store, sweep_of, who, redis, keys
) -> None:
    for i in range(30):
        sweep_of(2, sid=f"demo-{i:05d}")
    claim = store.claim(who, nonce="a", lease_ms=LEASE)
    store.reap("default", lease_ms=LEASE, lost_max=3)

    def reap(every_ms: int) -> int:
        redis.config_resetstat()
        store.reap("default", lease_ms=LEASE, lost_max=3, every_ms=every_ms)
        return commands(redis)

    redis.rpush(keys.demand("default"), "1")  # an autoscaler would start one too many
    assert reap(600_000) < 20 and redis.llen(keys.demand("default")) == 61
    redis.zadd(keys.leases, {str(claim.trial): 0})
    reap(600_000)
    assert redis.zcard(keys.leases) == 0
    assert reap(0) > 100 and redis.llen(keys.demand("default")) == 60
    redis.hset(keys.settle, "booked:default", 1 << 60)  # the clock of the server was put back
    redis.rpush(keys.demand("default"), "1")
    reap(600_000)
    assert redis.llen(keys.demand("default")) == 60


def test_a_claim_asks_about_each_worker_once_however_many_trials_wait(
    store, sweep_of, redis
) -> None:
    sweep_of(40)
    workers = [WorkerPresence(name=f"w{i}", host="h", worker_class="default") for i in range(30)]
    for it in workers:
        store.present(it, idle=False, lifetime_ms=3 * LEASE)
    failure = Failure(kind=FailureKind.OUT_OF_MEMORY, message="m")
    claims = [store.claim(workers[0], nonce=f"n{i}", lease_ms=LEASE) for i in range(40)]
    for i, claim in enumerate(claims):
        lost = replace(failure, fingerprint=f"f{i}")
        outcome = Outcome(state=TrialState.FAILED, failure=lost)
        assert store.commit(claim, outcome) is CommitReply.REQUEUED
    far = WorkerPresence(name="far", host="h2", worker_class="default")
    store.present(far, idle=False, lifetime_ms=3 * LEASE)
    redis.config_resetstat()
    assert store.claim(workers[1], nonce="x", lease_ms=LEASE) is None
    assert commands(redis) < 200
