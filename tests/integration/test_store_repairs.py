"""What broke once in the scripts and the store, each so small that it needs no process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import hpq
from hpq.outcome import Batch, Outcome, Presence, Reason
from hpq.sweep import SweepState
from hpq.trial import FailureKind, TrialState

LEASE = 30_000


def test_the_log_of_a_finished_trial_keeps_its_tail_to_the_byte(store, view, sweep_of, who) -> None:
    sweep_of(1)
    claim = store.claim(who, nonce="a", lease_ms=LEASE)
    for seq, data in enumerate((b"a" * 60_000, b"b" * 60_000, b"end"), start=1):
        store.beat(claim, who, Batch(seq=seq, log=data), lease_ms=LEASE)
    before = view.log(claim.trial)[1]
    store.commit(claim, Outcome(state=TrialState.FINISHED), 0)
    log, last = view.log(claim.trial)
    assert log == b"b" * 16_381 + b"end"
    assert last == before  # who follows the log reads nothing twice


def test_a_trial_of_a_stopped_sweep_that_is_given_back_is_cancelled(
    store, view, sweep_of, who
) -> None:
    sweep = sweep_of(2)
    claim = store.claim(who, nonce="a", lease_ms=LEASE)
    store.control(sweep.id, "stop")
    assert store.release(claim, Reason.STOPPING) == "released"
    assert view.sweep(sweep.id).state is SweepState.FINISHED
    assert view.trial(claim.trial).state is TrialState.CANCELLED


def test_poison_asks_for_the_hosts_of_the_trials_own_class(
    store, view, sweep_of, who, redis, keys
) -> None:
    """A reaper of another class, which has many hosts, says nothing about this one's."""
    sweep_of(1)
    for host in ("h7", "h8"):
        other = Presence(name=host, host=host, worker_class="small")
        store.present(other, idle=True, lifetime_ms=LEASE)
    store.present(who, idle=False, lifetime_ms=LEASE)
    store.reap("small", lease_ms=LEASE, lost_max=2)
    for nonce in ("a", "b"):
        claim = store.claim(who, nonce=nonce, lease_ms=LEASE)
        redis.zadd(keys.leases, {str(claim.trial): 0})
        assert store.reap("small", lease_ms=LEASE, lost_max=2) == 1
    failure = view.trial(claim.trial).failure
    assert failure is not None and failure.kind is FailureKind.POISON


def test_a_reap_that_was_held_up_takes_no_lease_that_ended_meanwhile(
    store, sweep_of, who, redis, keys
) -> None:
    """F13: Redis hung between a worker's look at the clock and its reap, and all beats with it."""
    sweep_of(2)
    looked = store.present(who, idle=True, lifetime_ms=LEASE)
    store.reap("default", lease_ms=1, lost_max=3, as_of_ms=looked)
    late, early = (store.claim(who, nonce=nonce, lease_ms=LEASE) for nonce in "ab")
    redis.zadd(keys.leases, {str(early.trial): looked - 1, str(late.trial): looked + 1})
    while redis.time() <= ((looked + 1) // 1000, (looked + 1) % 1000 * 1000 + 999):
        pass  # the server's next millisecond but one
    assert store.reap("default", lease_ms=1, lost_max=3, as_of_ms=looked) == 1
    assert store.reap("default", lease_ms=1, lost_max=3) == 1


def test_many_reapers_at_once_give_a_trial_back_once(
    store, view, sweep_of, who, redis, keys
) -> None:
    """F19, R5: eight reapers and four readers at the moment when leases end."""
    sweep = sweep_of(20)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    for nonce in range(20):
        store.claim(who, nonce=str(nonce), lease_ms=LEASE)
    for name in redis.zrange(keys.leases, 0, -1):
        redis.zadd(keys.leases, {name: 0})
    with ThreadPoolExecutor(12) as pool:
        reaps = [pool.submit(store.reap, "default", lease_ms=LEASE, lost_max=3) for _ in range(8)]
        looks = [pool.submit(lambda: list(view.all_trials(sweep.id))) for _ in range(4)]
    assert sum(done.result() or 0 for done in reaps) == 20 and all(done.result() for done in looks)
    assert sorted(e.trial for e in view.events(sweep.id) if e.what == "requeued") == [*range(1, 21)]


def test_a_lease_that_is_none_keeps_no_reaper_from_the_others(
    store, view, sweep_of, who, redis, keys
) -> None:
    """R24, R4: rubbish among the leases, and the lease of a sweep that is gone."""
    sweep_of(1)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    claim = store.claim(who, nonce="a", lease_ms=LEASE)
    redis.hset("hpq:t:gone-00000/1", "attempt", 1)
    redis.zadd(keys.leases, {"rubbish": 0, "gone-00000/1": 1, str(claim.trial): 2})
    assert store.reap("default", lease_ms=LEASE, lost_max=3) == 1
    assert view.trial(claim.trial).state is TrialState.QUEUED
    assert not redis.exists(keys.leases)


def test_discard_leaves_a_sweep_that_was_sealed(store, view, sweep_of) -> None:
    sweep = sweep_of(2)
    store.discard(sweep.id)  # as after a seal whose answer was lost
    assert len(list(view.all_trials(sweep.id))) == 2


@pytest.mark.parametrize("step", [float("nan"), 0.5, "7", 2**60, [1]])
def test_a_step_is_a_whole_number(step) -> None:
    with pytest.raises(ValueError, match="is not a whole number"):
        hpq.report({"loss": 1.0}, step=step)
