"""Whose trial comes next: by priority, then by how many of its owner run, then by age."""

from __future__ import annotations

from hpq.domain.attempt import Outcome, Reason
from hpq.domain.trial import TrialState
from hpq.store.control import SweepControl

LEASE = 30_000


def names(*claims) -> str:
    return " ".join(claim.trial.sweep[0] for claim in claims)


def test_owners_are_served_in_turn(sweep_of, take) -> None:
    sweep_of(9, "a-00000", owner="ann")
    sweep_of(9, "b-00000", owner="ann")
    sweep_of(2, "c-00000", owner="bob")
    sweep_of(9, "d-00000", owner="cyd")
    assert names(*(take() for _ in range(10))) == "a c d a c d a d a d"


def test_priority_comes_before_the_turn_and_the_turn_before_age(
    sweep_of, take, store, control: SweepControl
) -> None:
    sweep_of(9, "a-00000", owner="ann")
    sweep_of(9, "b-00000", owner="bob", priority=1)
    sweep_of(9, "c-00000", owner="ann", priority=1)
    sweep_of(9, "d-00000", owner="cyd", priority=-1)
    assert names(*(take() for _ in range(4))) == "b c b c"
    control.set("b-00000", {"priority": "0"})
    control.pause("c-00000")
    assert names(*(take() for _ in range(2))) == "a b"  # each has two: the older one; then bob


def test_what_ends_goes_back_or_is_lost_no_longer_counts(
    sweep_of, take, store, redis, keys, who, control: SweepControl
) -> None:
    store.reap("default", lease_ms=LEASE, lost_max=3)
    sweep_of(9, "a-00000", owner="ann")
    sweep_of(9, "b-00000", owner="bob")
    mine = [take() for _ in range(6)]
    assert names(*mine) == "a b a b a b"
    store.commit(mine[1], Outcome(state=TrialState.FINISHED, objective=1.0))
    store.release(mine[3], Reason.STOPPING)
    redis.zadd(keys.leases, {str(mine[5].trial): 0})
    store.reap("default", lease_ms=LEASE, lost_max=3)
    assert redis.hgetall("hpq:q:default:busy") == {b"ann": b"3", b"bob": b"0"}
    assert names(*(take() for _ in range(4))) == "b b b a"
    control.remove("a-00000")
    assert redis.hgetall("hpq:q:default:busy") == {b"ann": b"0", b"bob": b"3"}
    assert list(redis.hgetall("hpq:q:default:owners")) == [b"b-00000"]


def test_the_reaper_puts_the_count_of_running_trials_right(sweep_of, take, store, redis) -> None:
    sweep_of(9, "a-00000", owner="ann")
    sweep_of(9, "b-00000", owner="bob")
    assert names(take()) == "a"
    redis.delete("hpq:q:default:busy", "hpq:q:default:owners")  # another client damaged it
    store.reap("default", lease_ms=LEASE, lost_max=3)
    assert redis.hgetall("hpq:q:default:busy") == {b"ann": b"1", b"bob": b"0"}
    assert names(take()) == "b"
