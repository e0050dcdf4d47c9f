"""The last batch of reports, which travels with the result of its attempt."""

from __future__ import annotations

import pytest
from redis import Redis

from hpq.domain.attempt import CommitReply, HeartbeatReply, Outcome, ReportBatch
from hpq.domain.sweep import EarlyTerminate, Goal, Metric, SweepState, TerminationRule
from hpq.domain.trial import Claim, Failure, FailureKind, TrialState
from hpq.store.keys import Keys
from hpq.store.scripts import StoreContext
from hpq.store.trials import TrialStore
from tests.support.store_calls import LEASE, beat, points, take

DONE = Outcome(state=TrialState.FINISHED, objective=2.0, best=2.0, step=2, ran_ms=5)
KILLED = Outcome(state=TrialState.FAILED, failure=Failure(kind=FailureKind.KILLED, message="m"))


def batch(seq: int, *steps: int, log: bytes = b"hello\n") -> ReportBatch:
    return ReportBatch(
        seq=seq, step=max(steps), objective=float(max(steps)), points=points(*steps), log=log
    )


def steps_of(reader, claim: Claim) -> list[int]:
    return [point.step for point in reader.trials.metric_history(claim.trial, "acc")]


@pytest.mark.parametrize("beaten", [(), (1, 2)])
def test_a_commit_records_the_reports_that_no_beat_sent(
    store, reader, sweep_of, who, beaten
) -> None:
    sweep_of(1)
    claim = take(store, who, "a")
    if beaten:
        beat(store, who, claim, 1, *beaten)
    assert store.commit(claim, DONE, batch(2, 3, 4)) is CommitReply.DONE
    trial = reader.trials.get(claim.trial)
    assert steps_of(reader, claim) == [*beaten, 3, 4] and trial.metrics == {"acc": 4.0}
    assert reader.trials.log(claim.trial)[0] == b"hello\n" and trial.objective == 2.0


def test_a_batch_that_a_beat_has_sent_is_not_recorded_again(store, reader, sweep_of, who) -> None:
    sweep_of(1)
    claim = take(store, who, "a")
    last = batch(1, 1, 2)
    store.beat(claim, who, last, lease_ms=LEASE)
    assert store.commit(claim, DONE, last) is CommitReply.DONE
    assert store.commit(claim, DONE, last) is CommitReply.ALREADY
    assert steps_of(reader, claim) == [1, 2]
    assert reader.trials.log(claim.trial)[0] == b"hello\n"


@pytest.mark.parametrize("is_last", [False, True])
def test_a_full_batch_of_the_metric_of_a_rule_is_recorded(
    store, reader, sweep_of, who, is_last: bool
) -> None:
    early = EarlyTerminate(rule=TerminationRule.ASHA, bands=(1, 900), eta=2)
    sweep_of(1, early=early, metric=Metric(name="acc"))
    claim, full = take(store, who, "a"), batch(1, *range(1, 1001))
    if is_last:
        assert store.commit(claim, DONE, full) is CommitReply.DONE
    else:
        assert store.beat(claim, who, full, lease_ms=LEASE) is HeartbeatReply.OK
    assert steps_of(reader, claim) == list(range(1, 1001))
    assert reader.trials.get(claim.trial).metrics == {"acc": 1000.0}


def test_a_failure_that_is_retried_leaves_its_last_reports_until_the_next_claim(
    store, reader, sweep_of, who
) -> None:
    sweep_of(1)
    claim = take(store, who, "a")
    assert store.commit(claim, KILLED, batch(1, 1, 2)) is CommitReply.REQUEUED
    assert reader.trials.get(claim.trial).state is TrialState.QUEUED
    assert steps_of(reader, claim) == [1, 2]
    again = take(store, who, "b")
    assert steps_of(reader, again) == []
    assert store.commit(again, DONE, batch(1, 3)) is CommitReply.DONE
    assert steps_of(reader, again) == [3]


def test_a_stale_commit_brings_no_reports(store, reader, sweep_of, who) -> None:
    sweep_of(1)
    claim = take(store, who, "a")
    assert store.release(claim, "stopping") == "released"
    take(store, who, "b")
    assert store.commit(claim, DONE, batch(1, 1)) is CommitReply.STALE
    assert steps_of(reader, claim) == []


def test_a_value_in_the_last_reports_that_reaches_the_target_stops_the_sweep(
    store, reader, sweep_of, who
) -> None:
    sid = sweep_of(3, metric=Metric(name="acc", goal=Goal.MAXIMIZE, target=4.0)).id
    claim = take(store, who, "a")
    low = Outcome(state=TrialState.FINISHED, objective=1.0, step=4)
    assert store.commit(claim, low, batch(1, 4)) is CommitReply.DONE
    sweep = reader.sweeps.get(sid)
    assert sweep.state is SweepState.FINISHED and sweep.counts.cancelled == 2


def test_no_more_tickets_are_minted_than_a_queue_lacks(redis: Redis, sweep_of, who) -> None:
    keys = Keys("hpq")
    store = TrialStore(StoreContext.open(redis, keys))
    sweep_of(40)
    queue = f"rq:queue:{keys.tickets('default')}"
    for i in range(5):
        assert store.commit(take(store, who, f"n{i}"), DONE) is CommitReply.DONE
        assert redis.llen(queue) == 8  # for an idle worker each, of those that may come


def test_a_first_attempt_may_restart_though_it_has_no_checkpoint_of_its_own(
    store, reader, sweep_of, who, redis: Redis
) -> None:
    """Another client of Redis wrote the pointer."""
    sid = sweep_of(1).id
    redis.hset(f"hpq:t:{sid}/1", "checkpoint", "{}")
    claim = take(store, who, "a")
    why = ReportBatch(seq=1, restarted="the path leads out of the trial's folder")
    assert store.beat(claim, who, why, lease_ms=LEASE) == "ok"
    assert store.commit(claim, DONE, batch(2, 1)) is CommitReply.DONE
    assert steps_of(reader, claim) == [1]


@pytest.mark.parametrize("is_beaten", [False, True])
def test_a_batch_may_have_thousands_of_points(store, reader, sweep_of, who, is_beaten) -> None:
    rule = EarlyTerminate(rule=TerminationRule.ASHA, bands=(2, 4_000), eta=2)
    sweep_of(1, metric=Metric(name="acc", goal=Goal.MAXIMIZE), early=rule)
    claim, many = take(store, who, "a"), batch(1, *range(1, 5_001))
    if is_beaten:
        assert store.beat(claim, who, many, lease_ms=LEASE) == "ok"
    assert store.commit(claim, DONE, None if is_beaten else many) is CommitReply.DONE
    steps = steps_of(reader, claim)
    assert 500 < len(steps) <= 1_001 and steps[0] == 1 and steps[-1] == 5_000
    assert reader.trials.get(claim.trial).metrics == {"acc": 5_000.0}
