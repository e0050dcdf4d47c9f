"""What broke once in the scripts and the store, each so small that it needs no process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import hpq
from hpq.domain.attempt import (
    CommitReply,
    HeartbeatReply,
    Nothing,
    Outcome,
    Reason,
    ReportBatch,
    WorkerPresence,
)
from hpq.domain.stored_state import StoredState
from hpq.domain.sweep import SweepState
from hpq.domain.trial import Checkpoint, Claim, Failure, FailureKind, TrialId, TrialState
from hpq.errors import NotFound, UserError
from hpq.store.control import SweepControl
from hpq.store.sweep_writer import SweepWriter
from hpq.store.tickets import Tickets
from tests.support.store_calls import reaped

LEASE = 30_000


def test_the_log_of_a_finished_trial_keeps_its_tail_to_the_byte(
    store, reader, sweep_of, who
) -> None:
    sweep_of(1)
    claim = store.claim(who, nonce="a", lease_ms=LEASE)
    for seq, data in enumerate((b"a" * 60_000, b"b" * 60_000, b"end"), start=1):
        store.beat(claim, who, ReportBatch(seq=seq, log=data), lease_ms=LEASE)
    before = reader.trials.log(claim.trial)[1]
    store.commit(claim, Outcome(state=TrialState.FINISHED))
    log, last = reader.trials.log(claim.trial)
    assert log == b"b" * (16_384 - 2 * 16 - 3) + b"end"
    assert last == before  # who follows the log reads nothing twice


def test_a_trial_of_a_stopped_sweep_that_is_given_back_is_cancelled(
    store, reader, sweep_of, who, control: SweepControl
) -> None:
    sweep = sweep_of(2)
    claim = store.claim(who, nonce="a", lease_ms=LEASE)
    control.stop(sweep.id)
    assert store.release(claim, Reason.STOPPING) == "released"
    assert reader.sweeps.get(sweep.id).state is SweepState.FINISHED
    assert reader.trials.get(claim.trial).state is TrialState.CANCELLED


def test_poison_asks_for_the_hosts_of_the_trials_own_queue(
    store, reader, sweep_of, who, redis, keys
) -> None:
    """A reaper of another queue, which has many hosts, says nothing about this one's."""
    sweep_of(1)
    for host in ("h7", "h8"):
        other = WorkerPresence(name=host, host=host, queue="small")
        store.present(other, idle=True, lifetime_ms=LEASE)
    store.present(who, idle=False, lifetime_ms=LEASE)
    store.reap("small", lease_ms=LEASE, lost_max=2)
    for nonce in ("a", "b"):
        claim = store.claim(who, nonce=nonce, lease_ms=LEASE)
        redis.zadd(keys.leases, {str(claim.trial): 0})
        assert reaped(store, "small", lease_ms=LEASE, lost_max=2) == 1
    failure = reader.trials.get(claim.trial).failure
    assert failure is not None and failure.kind is FailureKind.POISON


def test_a_reap_that_was_held_up_takes_no_lease_that_ended_meanwhile(
    store, sweep_of, who, redis, keys
) -> None:
    """F13: Redis hung between a worker's look at the clock and its reap, and all beats with it."""
    sweep_of(2)
    looked = store.present(who, idle=True, lifetime_ms=LEASE).now_ms
    store.reap("default", lease_ms=1, lost_max=3, as_of_ms=looked)
    late, early = (store.claim(who, nonce=nonce, lease_ms=LEASE) for nonce in "ab")
    redis.zadd(keys.leases, {str(early.trial): looked - 1, str(late.trial): looked + 1})
    while redis.time() <= ((looked + 1) // 1000, (looked + 1) % 1000 * 1000 + 999):
        pass  # the server's next millisecond but one
    assert reaped(store, "default", lease_ms=1, lost_max=3, as_of_ms=looked) == 1
    assert reaped(store, "default", lease_ms=1, lost_max=3) == 1


def test_many_reapers_at_once_give_a_trial_back_once(
    store, reader, sweep_of, who, redis, keys
) -> None:
    """F19, R5: eight reapers and four readers at the moment when leases end."""
    sweep = sweep_of(20)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    for nonce in range(20):
        store.claim(who, nonce=str(nonce), lease_ms=LEASE)
    for name in redis.zrange(keys.leases, 0, -1):
        redis.zadd(keys.leases, {name: 0})
    with ThreadPoolExecutor(12) as pool:
        limits = {"lease_ms": LEASE, "lost_max": 3}
        reaps = [pool.submit(reaped, store, "default", **limits) for _ in range(8)]
        looks = [pool.submit(lambda: list(reader.trials.all(sweep.id))) for _ in range(4)]
    assert sum(done.result() or 0 for done in reaps) == 20 and all(done.result() for done in looks)
    assert sorted(e.trial for e in reader.events.read(sweep.id) if e.what == "requeued") == [
        *range(1, 21)
    ]


def test_a_lease_that_is_none_keeps_no_reaper_from_the_others(
    store, reader, sweep_of, who, redis, keys
) -> None:
    """R24, R4: rubbish among the leases, and the lease of a sweep that is gone."""
    sweep_of(1)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    claim = store.claim(who, nonce="a", lease_ms=LEASE)
    redis.hset("hpq:t:gone-00000/1", "attempt", 1)
    redis.zadd(keys.leases, {"rubbish": 0, "gone-00000/1": 1, str(claim.trial): 2})
    assert reaped(store, "default", lease_ms=LEASE, lost_max=3) == 1
    assert reader.trials.get(claim.trial).state is TrialState.QUEUED
    assert not redis.exists(keys.leases)


def test_discard_leaves_a_created_sweep(store, reader, sweep_of, writer: SweepWriter) -> None:
    sweep = sweep_of(2)
    writer.discard(sweep.id)  # as after a creation whose answer was lost
    assert len(list(reader.trials.all(sweep.id))) == 2


@pytest.mark.parametrize("step", [float("nan"), 0.5, "7", 2**60, [1]])
def test_a_step_is_a_whole_number(step) -> None:
    with pytest.raises(ValueError, match="step"):
        hpq.report({"loss": 1.0}, step=step)


def late(store, who, redis, keys, claim) -> None:
    """The lease of an attempt ends and is reaped; its worker may still come back."""
    store.reap("default", lease_ms=LEASE, lost_max=9)
    redis.zadd(keys.leases, {str(claim.trial): 0})
    assert reaped(store, "default", lease_ms=LEASE, lost_max=9) == 1


def test_a_late_beat_does_not_revive_an_attempt_that_was_closed(
    store, reader, sweep_of, who, redis, keys, control: SweepControl
) -> None:
    sweep_of(1)
    claim = store.claim(who, nonce="a", lease_ms=LEASE)
    late(store, who, redis, keys, claim)
    control.cancel(claim.trial.sweep, [claim.trial.number])
    control.retry(claim.trial.sweep, [claim.trial.number])
    assert store.beat(claim, who, ReportBatch(seq=1), lease_ms=LEASE) is HeartbeatReply.LOST
    assert reader.trials.get(claim.trial).state is TrialState.QUEUED


def test_a_late_failure_that_is_tried_again_ends_its_attempt(
    store, reader, sweep_of, who, redis, keys
) -> None:
    sweep_of(1)
    claim = store.claim(who, nonce="a", lease_ms=LEASE)
    late(store, who, redis, keys, claim)
    assert store.commit(claim, out_of_memory()) is CommitReply.REQUEUED
    assert store.beat(claim, who, ReportBatch(seq=1), lease_ms=LEASE) is HeartbeatReply.LOST


def test_a_cancelled_trial_that_fails_meanwhile_is_not_tried_again(
    store, reader, sweep_of, who, control: SweepControl
) -> None:
    sweep_of(1)
    claim = store.claim(who, nonce="a", lease_ms=LEASE)
    control.cancel(claim.trial.sweep, [claim.trial.number])
    assert store.commit(claim, out_of_memory()) is CommitReply.DONE
    assert reader.trials.get(claim.trial).state is TrialState.FAILED


def test_retry_leaves_a_pause_alone(store, reader, sweep_of, who, control: SweepControl) -> None:
    sweep = sweep_of(2)
    claim = store.claim(who, nonce="a", lease_ms=LEASE)
    store.commit(claim, Outcome(state=TrialState.FAILED))
    control.pause(sweep.id)
    assert control.retry(sweep.id, [2]) == 0  # it waits
    assert control.retry(sweep.id, [1]) == 1
    assert reader.sweeps.get(sweep.id).state is SweepState.PAUSED
    assert store.claim(who, nonce="b", lease_ms=LEASE) == Nothing()


def test_no_trial_waits_for_ever_for_a_host_that_does_not_take_its_sweep(
    store, sweep_of, who, redis, keys
) -> None:
    sweep = sweep_of(1)
    other = WorkerPresence(name="w2", host="h2", queue="default")
    store.present(other, idle=True, lifetime_ms=LEASE)
    claim = store.claim(who, nonce="a", lease_ms=LEASE)
    store.commit(claim, out_of_memory())
    assert store.claim(who, nonce="b", lease_ms=LEASE) == Nothing()  # rather elsewhere
    assert store.claim(other, nonce="c", lease_ms=LEASE, skip=[sweep.id]) == Nothing()
    redis.hset(keys.trial(claim.trial), "avoid_ms", 0)  # as after a while
    again = store.claim(who, nonce="d", lease_ms=LEASE)
    assert isinstance(again, Claim) and again.attempt == 2


def test_trials_that_wait_for_another_host_hide_none_that_do_not(store, sweep_of, who) -> None:
    sweep_of(21)
    store.present(
        WorkerPresence(name="w2", host="h2", queue="default"), idle=True, lifetime_ms=LEASE
    )
    claims = [store.claim(who, nonce=str(i), lease_ms=LEASE) for i in range(20)]
    for claim in claims:
        store.commit(claim, out_of_memory())
    left = store.claim(who, nonce="x", lease_ms=LEASE)
    assert left is not None and left.trial.number == 21


@pytest.mark.parametrize("verb", ["stop", "cancel"])
def test_a_sweep_that_has_finished_stays_finished(
    store, reader, sweep_of, who, verb, control: SweepControl
) -> None:
    sweep = sweep_of(1)
    claim = store.claim(who, nonce="a", lease_ms=LEASE)
    store.commit(claim, Outcome(state=TrialState.FINISHED))
    assert getattr(control, verb)(sweep.id) == 0
    assert reader.sweeps.get(sweep.id).stored is StoredState.OPEN
    with pytest.raises(UserError, match="is over"):
        control.pause(sweep.id)


def test_a_removed_sweep_is_out_of_sight_at_once_and_a_later_removal_finishes_it(
    store, reader, sweep_of, who, redis, keys, monkeypatch, control: SweepControl
) -> None:
    sweep_of(3)
    other = sweep_of(1, "two-00000")
    claim = store.claim(who, nonce="a", lease_ms=LEASE)
    with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
        broken.setattr(SweepControl, "_delete_removed", interrupted)
        control.remove(claim.trial.sweep)
    with pytest.raises(NotFound):
        reader.trials.get(claim.trial)
    assert store.beat(claim, who, ReportBatch(seq=1), lease_ms=LEASE) is HeartbeatReply.UNKNOWN
    assert store.claim(who, nonce="b", lease_ms=LEASE).trial.sweep == other.id
    control.remove(other.id)
    assert not [k for k in redis.keys("*") if b":s:" in k or b":t:" in k or b"removing" in k]


def test_what_a_trial_ran_is_its_workers_measure_and_ends_when_it_is_given_back(
    store, reader, sweep_of, who, redis, keys, control: SweepControl
) -> None:
    sweep_of(2)
    claim = store.claim(who, nonce="a", lease_ms=LEASE)
    redis.hincrby(keys.trial(claim.trial), "claimed_ms", -60_000)  # Redis was away for a minute
    store.commit(claim, Outcome(state=TrialState.FINISHED, ran_ms=2_000))
    assert reader.trials.get(claim.trial).duration_ms == 2_000
    assert redis.hget(keys.sweep(claim.trial.sweep), "dur_sum") == b"2000"
    given = store.claim(who, nonce="b", lease_ms=LEASE)
    store.release(given, Reason.STOPPING)
    ran_ms = reader.trials.get(given.trial).duration_ms
    redis.hincrby(keys.trial(given.trial), "claimed_ms", -60_000)
    control.cancel(given.trial.sweep, [given.trial.number])
    assert reader.trials.get(given.trial).duration_ms == ran_ms < 60_000


def out_of_memory() -> Outcome:
    failure = Failure(kind=FailureKind.OUT_OF_MEMORY, message="no memory", fingerprint="m")
    return Outcome(state=TrialState.FAILED, failure=failure)


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_poison_remembers_the_highest_step(store, reader, sweep_of, who, redis, keys) -> None:
    """Losses at the steps 5, 3, 4, 3 are no progress after the first."""
    sweep_of(1)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    for nonce, step in enumerate((5, 3, 4, 3)):
        claim = store.claim(who, nonce=str(nonce), lease_ms=LEASE)
        if claim == Nothing():
            break
        store.beat(claim, who, ReportBatch(seq=1, step=step), lease_ms=LEASE)
        redis.zadd(keys.leases, {str(claim.trial): 0})
        store.reap("default", lease_ms=LEASE, lost_max=3)
    failure = reader.trials.get(FIRST).failure
    assert failure is not None and failure.kind is FailureKind.POISON


def test_a_checkpoint_that_each_attempt_saves_first_is_no_progress(
    store, reader, sweep_of, who, redis, keys
) -> None:
    sweep_of(1)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    for nonce in range(3):
        claim = store.claim(who, nonce=str(nonce), lease_ms=LEASE)
        assert isinstance(claim, Claim)
        first = Checkpoint(store="s", path=f"p/{nonce}", step=0)
        store.beat(claim, who, ReportBatch(seq=1, checkpoint=first), lease_ms=LEASE)
        redis.zadd(keys.leases, {str(claim.trial): 0})
        store.reap("default", lease_ms=LEASE, lost_max=3)
    failure = reader.trials.get(FIRST).failure
    assert failure is not None and failure.kind is FailureKind.POISON


@pytest.mark.parametrize("row", [None, b"\xff\xfe", b"[1]"])
def test_a_claim_decides_nothing_about_parameters_that_cannot_be_read(
    store, reader, sweep_of, who, redis, keys, row
) -> None:
    """The worker first asks who signed the sweep: a trial of another key is not its to fail."""
    sweep = sweep_of(2)
    if row is None:
        redis.hdel(keys.sweep(sweep.id, "params"), "1")
    else:
        redis.hset(keys.sweep(sweep.id, "params"), "1", row)
    claim = store.claim(who, nonce="a", lease_ms=LEASE)
    assert isinstance(claim, Claim) and claim.trial.number == 1 and claim.row == (row or b"")
    assert redis.hget(keys.trial(FIRST), "kind") is None


def test_a_worker_of_one_sweep_leaves_that_of_another_queue_alone(store, sweep_of, who) -> None:
    sweep = sweep_of(1, queue="gpu")
    assert store.claim(who, nonce="a", lease_ms=LEASE, only=sweep.id) == Nothing()
    assert store.claim(who, nonce="b", lease_ms=LEASE, only="not-there") == Nothing()


def test_a_reaped_attempt_of_a_removed_sweep_leaves_no_ghost(
    store, sweep_of, who, redis, keys
) -> None:
    sweep = sweep_of(1)
    claim = store.claim(who, nonce="a", lease_ms=LEASE)
    late(store, who, redis, keys, claim)
    redis.sadd(keys.removing, sweep.id)
    redis.delete(keys.sweep(sweep.id))  # as between the two halves of a removal
    before = set(redis.keys("*"))
    assert store.beat(claim, who, ReportBatch(seq=1), lease_ms=LEASE) is HeartbeatReply.UNKNOWN
    assert store.commit(claim, Outcome(state=TrialState.FINISHED)) is CommitReply.UNKNOWN
    assert store.release(claim, Reason.STOPPING) == "unknown"
    assert set(redis.keys("*")) == before


FIRST = TrialId(sweep="demo-00000", number=1)


@pytest.mark.parametrize("trials", [0, 1])
def test_a_worker_that_claims_and_is_never_heard_again_is_forgotten(
    store, redis, keys, sweep_of, who, trials
) -> None:
    """Its hash had expired, as where it was stopped for long; the claim makes it again."""
    if trials:
        sweep_of(trials)
    claim = store.claim(who, nonce="a", lease_ms=LEASE)
    assert (isinstance(claim, Claim)) is bool(trials)
    assert 0 < redis.pttl(keys.worker(who.name)) <= 3 * LEASE


def test_a_ticket_that_is_minted_reaches_a_worker_of_its_queue(redis, keys) -> None:
    tickets = Tickets(redis, keys)
    tickets.mint("default", 1)
    (job,) = redis.scan_iter("rq:job:*")
    assert redis.ttl(job) > 0  # a worker may die with it
    popped = tickets.pop("default", 0.1)
    assert popped is not None and tickets.is_ticket(popped)
    assert tickets.pop("default", 0.1) is None


def test_the_reaper_closes_a_sweep_that_is_over_and_among_the_open_ones(
    redis, keys, sweep_of, store, who
) -> None:
    """Another client made it look like a search when its last trial ended, and mended that."""
    sweep = sweep_of(1)
    claim = store.claim(who, nonce="a", lease_ms=600_000)
    assert isinstance(claim, Claim)
    redis.hset(keys.sweep(sweep.id), "sampler", "x")
    outcome = Outcome(state=TrialState.FINISHED)
    assert store.commit(claim, outcome) is CommitReply.DONE
    redis.hdel(keys.sweep(sweep.id), "sampler")
    for _ in range(2):  # the first one only notes the server's run
        store.reap("default", lease_ms=1, lost_max=3)
    assert redis.zrange(keys.queue("default", "open"), 0, -1) == []
    assert redis.hgetall(keys.queue("default", "owners")) == {}
