"""Results of workers that were cut off for longer than a lease, where nothing may start again."""

from __future__ import annotations

import pytest

from hpq.domain.attempt import CommitReply, HeartbeatReply, Nothing, Outcome, ReportBatch
from hpq.domain.trial import Claim, TrialState
from hpq.store.control import SweepControl
from hpq_ops.audit.sweep_audit import audit_sweep
from tests.support.store_calls import reaped

LEASE = 30_000
WAYS = ("a stopped sweep", "a trial told to prune")


def lose(store, redis, keys, claim: Claim, *, silent_ms: int) -> int | None:
    """The lease of a trial has ended; its last beat was so long ago."""
    seconds, _ = redis.time()
    redis.hset(keys.trial(claim.trial), "beat_ms", 1000 * seconds - silent_ms)
    redis.zadd(keys.leases, {str(claim.trial): 1})
    return reaped(store, "default", lease_ms=LEASE, lost_max=3)


@pytest.fixture(params=WAYS)
def cut_off(
    request, store, redis, keys, reader, who, sweep_of, take, control: SweepControl
) -> Claim:
    """A trial that may end and not start again, whose worker was not heard for two leases."""
    sweep_of(2)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    claim = take()
    store.beat(claim, who, ReportBatch(seq=1, step=1, objective=0.3), lease_ms=LEASE)
    if request.param == WAYS[0]:
        control.stop(claim.trial.sweep)
    else:
        control.cancel(claim.trial.sweep, [2])
        redis.hset(keys.trial(claim.trial), "stop", "prune")
    assert lose(store, redis, keys, claim, silent_ms=2 * LEASE) == 0
    assert take() == Nothing()  # it does not start again
    assert redis.zscore(keys.leases, str(claim.trial)) > 1_000_000  # and holds up no other
    return claim


def test_a_result_that_comes_after_the_lease_is_taken(store, reader, cut_off) -> None:
    """F29, Promise 4: of a stopped sweep, or told to prune, a worker is cut off for two leases."""
    outcome = Outcome(state=TrialState.FINISHED, objective=0.95, step=9)
    assert store.commit(cut_off, outcome) is CommitReply.DONE
    assert store.commit(cut_off, outcome) is CommitReply.ALREADY
    trial = reader.trials.get(cut_off.trial)
    assert (trial.state, trial.objective) == (TrialState.FINISHED, 0.95)
    found = audit_sweep(reader, cut_off.trial.sweep)
    assert not found.violations and not found.open


def test_its_beat_hears_what_it_was_told_and_goes_on(store, reader, who, cut_off) -> None:
    answer = store.beat(cut_off, who, ReportBatch(seq=2, step=2), lease_ms=LEASE)
    assert answer in (HeartbeatReply.OK, HeartbeatReply.PRUNE)
    assert reader.trials.get(cut_off.trial).state is TrialState.RUNNING


def test_after_four_leases_without_a_word_it_has_ended(store, redis, keys, reader, cut_off) -> None:
    assert lose(store, redis, keys, cut_off, silent_ms=4 * LEASE) == 1
    state = reader.trials.get(cut_off.trial).state
    assert state in (TrialState.CANCELLED, TrialState.PRUNED)
    outcome = Outcome(state=TrialState.FINISHED, objective=0.95)
    assert store.commit(cut_off, outcome) is CommitReply.ALREADY
    assert reader.trials.get(cut_off.trial).state is state
    assert not audit_sweep(reader, cut_off.trial.sweep).violations


def test_a_trial_that_a_person_cancelled_ends_with_its_lease(
    store, redis, keys, reader, sweep_of, take, control: SweepControl
) -> None:
    sweep_of(1)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    claim = take()
    control.cancel(claim.trial.sweep)
    assert lose(store, redis, keys, claim, silent_ms=LEASE) == 1
    assert reader.trials.get(claim.trial).state is TrialState.CANCELLED


@pytest.fixture
def lost_before(store, redis, keys, reader, sweep_of, take, control: SweepControl) -> Claim:
    """A trial that was queued again as lost; then its sweep was stopped."""
    sweep_of(2)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    claim = take()
    assert lose(store, redis, keys, claim, silent_ms=LEASE) == 1
    assert control.stop(claim.trial.sweep) == 1  # the one that never ran
    assert reader.trials.get(claim.trial).state is TrialState.QUEUED and take() == Nothing()
    return claim


def test_a_trial_that_was_lost_before_the_stop_may_end_as_well(store, reader, lost_before) -> None:
    """F29, Promise 4: a worker is cut off, its trial reaped, and then the sweep is stopped."""
    outcome = Outcome(state=TrialState.FINISHED, objective=0.95, step=9)
    assert store.commit(lost_before, outcome) is CommitReply.DONE
    sweep = reader.sweeps.get(lost_before.trial.sweep)
    assert (sweep.state.is_over, sweep.counts.finished, sweep.counts.cancelled) == (True, 1, 1)
    assert not audit_sweep(reader, sweep.id).violations


@pytest.mark.parametrize("how", ["four leases", "cancel", "retry"])
def test_and_is_waited_for_no_longer_than_the_others(
    store, redis, keys, reader, take, lost_before, how, control: SweepControl
) -> None:
    sid = lost_before.trial.sweep
    store.reap("default", lease_ms=LEASE, lost_max=3)
    assert reader.trials.get(lost_before.trial).state is TrialState.QUEUED
    if how == "retry":  # the sweep goes on, and with it what was lost
        control.retry(sid, [2])
        assert take().trial == lost_before.trial
        return
    if how == "cancel":
        control.cancel(sid)
    else:
        redis.hincrby(keys.trial(lost_before.trial), "beat_ms", -3 * LEASE)
        found = store.reap("default", lease_ms=LEASE, lost_max=3)
        assert (found.queued, found.ended) == (0, 1)
        assert not redis.hgetall(keys.queue("default", "owners"))  # the sweep is closed
    assert reader.trials.get(lost_before.trial).state is TrialState.CANCELLED
    assert reader.sweeps.get(sid).state.is_over and not audit_sweep(reader, sid).violations
