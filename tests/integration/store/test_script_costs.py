"""What a call costs the server where there are many workers, sweeps or trials that wait."""

from __future__ import annotations

import secrets
from dataclasses import replace

import pytest
from redis import Redis

from hpq.code.signing import home_id, sign
from hpq.domain.attempt import Capped, CommitReply, Nothing, Outcome, Reason, WorkerPresence
from hpq.domain.budget import Budget
from hpq.domain.sweep import Launch, SweepView
from hpq.domain.trial import Claim, Failure, FailureKind, TrialState
from hpq.settings import read
from hpq_ops.audit.sweep_audit import audit_sweep
from tests.support.worker_parts import records_of

LEASE = 30_000
KEY = "0123456789abcdef0123456789abcdef"


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
    redis.hset(keys.queues, "booked:default", 1 << 60)  # the clock of the server was put back
    redis.rpush(keys.demand("default"), "1")
    reap(600_000)
    assert redis.llen(keys.demand("default")) == 60


def test_a_claim_asks_about_each_worker_once_however_many_trials_wait(
    store, sweep_of, redis
) -> None:
    sweep_of(40)
    workers = [WorkerPresence(name=f"w{i}", host="h", queue="default") for i in range(30)]
    for it in workers:
        store.present(it, idle=False, lifetime_ms=3 * LEASE)
    failure = Failure(kind=FailureKind.OUT_OF_MEMORY, message="m")
    claims = [store.claim(workers[0], nonce=f"n{i}", lease_ms=LEASE) for i in range(40)]
    for i, claim in enumerate(claims):
        lost = replace(failure, fingerprint=f"f{i}")
        outcome = Outcome(state=TrialState.FAILED, failure=lost)
        assert store.commit(claim, outcome) is CommitReply.REQUEUED
    far = WorkerPresence(name="far", host="h2", queue="default")
    store.present(far, idle=False, lifetime_ms=3 * LEASE)
    redis.config_resetstat()
    assert store.claim(workers[1], nonce="x", lease_ms=LEASE) == Nothing()
    assert commands(redis) < 200


def test_a_claim_after_a_requeue_asks_few_workers_of_many(store, sweep_of, redis) -> None:
    sweep_of(1)
    workers = [WorkerPresence(name=f"w{i}", host=f"h{i // 4}", queue="default") for i in range(90)]
    for it in workers:
        store.present(it, idle=False, lifetime_ms=3 * LEASE)
    failure = Failure(kind=FailureKind.OUT_OF_MEMORY, message="m", fingerprint="f")
    claim = store.claim(workers[0], nonce="a", lease_ms=LEASE)
    outcome = Outcome(state=TrialState.FAILED, failure=failure)
    assert store.commit(claim, outcome) is CommitReply.REQUEUED
    redis.config_resetstat()
    assert store.claim(workers[1], nonce="b", lease_ms=LEASE) == Nothing()  # of the same host
    assert commands(redis) <= 30


@pytest.mark.parametrize("block", ["paused", "full", "held", "all running"])
def test_sweeps_of_which_no_trial_may_start_cost_a_claim_and_the_reaper_nothing(
    store, sweep_of, who, redis, keys, control, block
) -> None:
    for i in range(60):
        sid = f"a-{i:05d}"
        budget = Budget.of_hours(1, 0) if block == "held" else None
        most = 1 if block == "full" else None
        sweep_of(1 if block == "all running" else 2, sid=sid, budget=budget, max_parallel=most)
        if block == "paused":
            control.pause(sid)
        elif block == "held":
            redis.hset(keys.sweep(sid), "spent_ms", 3_600_000)
        else:
            assert isinstance(store.claim(who, nonce=sid, lease_ms=LEASE, only=sid), Claim)
    sweep_of(9, sid="b-00000")
    store.reap("default", lease_ms=LEASE, lost_max=3)
    redis.config_resetstat()
    assert store.claim(who, nonce="a", lease_ms=LEASE).trial.sweep == "b-00000"
    assert commands(redis) <= 30
    redis.hdel(keys.queues, "booked:default")
    redis.config_resetstat()
    store.reap("default", lease_ms=LEASE, lost_max=3, every_ms=600_000)
    assert commands(redis) <= 40
    assert redis.llen(keys.demand("default")) == 9 + (60 if block in ("full", "all running") else 0)


def test_the_reaper_lists_a_sweep_that_lost_its_place_and_the_audit_misses_it(
    store, sweep_of, take, redis, keys, reader
) -> None:
    sid = sweep_of(2).id
    redis.delete(keys.queue("default", "pending"))
    assert take() == Nothing()
    (found,) = audit_sweep(reader, sid).violations
    assert found.what == "trials wait, but no claim looks at the sweep"
    store.reap("default", lease_ms=LEASE, lost_max=3)
    assert not audit_sweep(reader, sid).violations
    assert take().trial.sweep == sid


def test_a_further_trial_of_a_sweep_reads_nothing_but_its_claim(
    store, sweep_of, who, redis, tmp_path
) -> None:
    home = {"HPQ_HOME": str(tmp_path / "home"), "HPQ_REDIS_URL": "unix:///x", "USER": "me"}
    launches = records_of(read({**home, "HPQ_CODE_KEY": KEY}), store)
    here = home_id(tmp_path / "home", make=True)
    launch = Launch(trainer="train:run", code="c", code_dir=str(tmp_path), home=here)
    signature = sign(
        KEY.encode(), "hpq", SweepView(id="demo-00000", name="", digest="", launch=launch)
    )
    sid = sweep_of(9, launch=launch, signature=signature).id

    def admit() -> dict[str, int]:
        claim = store.claim(who, nonce=secrets.token_hex(4), lease_ms=LEASE)
        redis.config_resetstat()
        assert launches.admit(sid, claim)[1] is None
        stats = redis.info("commandstats")
        return {name: row["calls"] for name, row in stats.items() if "config" not in name}

    assert admit() == {"cmdstat_hgetall": 1}
    assert admit() == {}


def test_a_cancel_of_many_trials_that_wait_moves_none_of_them_one_by_one(
    control, sweep_of, redis, keys, reader
) -> None:
    sid = sweep_of(3).id
    waiting = keys.sweep(sid, "waiting")
    control.cancel(sid, [2])
    redis.zadd(waiting, {str(n): n for n in range(4, 100_004)})
    redis.config_resetstat()
    assert control.cancel(sid) == 100_002
    stats = redis.info("commandstats")
    assert "cmdstat_zunionstore" not in stats and commands(redis) < 60
    dropped = redis.zrange(keys.sweep(sid, "dropped"), 0, -1)
    assert len(dropped) == 100_003 and not redis.exists(waiting)
    assert reader.sweeps.get(sid).counts.queued == 0


def test_a_cap_on_many_trials_that_wait_moves_them_in_calls_that_may_stop_halfway(
    writer, control, sweep_of, redis, keys, reader
) -> None:
    sid = sweep_of(3).id
    control.cancel(sid, [2])
    members = {str(n): n for n in range(4, 25_004)}
    redis.zadd(keys.sweep(sid, "waiting"), members)
    redis.hset(keys.sweep(sid, "params"), mapping=dict.fromkeys(members, "{}"))
    waiting, dropped = (keys.sweep(sid, part) for part in ("waiting", "dropped"))
    halfway = writer.set_run_cap(sid, 15_002)
    assert halfway == Capped(dropped=10_000, back=0, trials=15_002)
    assert writer.set_run_cap(sid, 2) == Capped(dropped=15_000, back=0, trials=2)
    assert redis.zrange(waiting, 0, -1) == [b"1", b"3"]
    assert writer.set_run_cap(sid, 0) == Capped(dropped=0, back=25_000, trials=25_002)
    assert redis.zrange(dropped, 0, -1) == [b"2"] and redis.zcard(waiting) == 25_002
    told = [e.fields["touched"] for e in reader.events.read(sid) if e.what == "set"]
    assert told == [*["5000"] * 5, "4999", *["5000"] * 4, "1"]


def test_a_cancel_of_few_after_many_keeps_all_of_them(control, sweep_of, redis, keys) -> None:
    sid = sweep_of(5).id
    control.cancel(sid, [1, 3, 4])
    assert control.cancel(sid) == 2
    assert redis.zrange(keys.sweep(sid, "dropped"), 0, -1) == [b"1", b"2", b"3", b"4", b"5"]


def test_a_summary_reads_no_trial_that_was_never_claimed(
    store, control, sweep_of, who, redis, reader
) -> None:
    sid = sweep_of(600).id
    claims = [store.claim(who, nonce=f"n{i}", lease_ms=LEASE) for i in range(4)]
    for claim in claims[:2]:
        assert store.commit(claim, Outcome(state=TrialState.FINISHED, objective=1.0)) == "done"
    assert store.release(claims[2], Reason.STOPPING) == "released"
    assert control.retry(sid, [1]) == 1
    control.cancel(sid, [9])
    redis.config_resetstat()
    assert [trial.id.number for trial in reader.trials.begun(sid)] == [1, 2, 3, 4]
    assert redis.info("commandstats")["cmdstat_hgetall"]["calls"] == 4


def test_the_code_of_the_oldest_sweep_that_is_over_makes_room_for_new_code(
    writer, control, sweep_of, redis, keys, reader
) -> None:
    def enqueue(n: int) -> str:
        writer.keep_bundle(f"code{n}", b"bundle")
        sweep = replace(sweep_of(0, sid=f"base-{n:05d}"), id=f"demo-{n:05d}", bundle=f"code{n}")
        writer.add_rows(sweep.id, 1, [("{}", bytes(16))])
        assert writer.create(replace(sweep, digest=f"d{n}"), manifest="{}") is None
        return sweep.id

    _running, over, later = (enqueue(n) for n in range(3))
    control.cancel(over)
    control.cancel(later)
    redis.hset(keys.code, mapping={f"older{n}": "{}" for n in range(197)})
    enqueue(3)
    assert reader.sweeps.bundle("code0") and reader.sweeps.bundle("code2")
    assert reader.sweeps.bundle("code1") is None and not reader.sweeps.get(over).bundle
    assert redis.hlen(keys.code) == 200


def test_trials_that_ended_are_read_in_parts_whatever_ends_or_is_retried_meanwhile(
    store, control, sweep_of, who, redis, keys, reader, monkeypatch
) -> None:
    monkeypatch.setattr("hpq.store.trial_reader._MEMBERS_PER_READ", 3)
    sid, total = sweep_of(20).id, 16
    for i in range(total):
        claim = store.claim(who, nonce=f"n{i}", lease_ms=LEASE)
        assert store.commit(claim, Outcome(state=TrialState.FINISHED, objective=1.0)) == "done"
    ended = keys.sweep(sid, "ended")
    redis.zadd(ended, {str(n): 5 if n < 11 else n for n in range(1, total + 1)})  # ten at once
    parts = iter(reader.trials._members(ended, "+inf"))  # of 3 numbers each
    first = [next(parts) for _ in range(12)]
    control.retry(sid, [int(n) for n in redis.zrangebyscore(ended, 11, 11)])
    assert {*first, *parts} == set(range(1, total + 1)) - {11} | {*first}
    assert [t.id.number for t in reader.trials.begun(sid)] == list(range(1, total + 1))
