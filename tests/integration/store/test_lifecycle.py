"""The life of a trial through the real scripts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from redis import Redis

from hpq.domain.attempt import (
    CommitReply,
    HeartbeatReply,
    Nothing,
    Outcome,
    Reason,
    ReportBatch,
    WorkerPresence,
)
from hpq.domain.retry_policy import OVERFILLED_MAX, RETRY_RULES, Evidence
from hpq.domain.sweep import Launch, SweepState
from hpq.domain.trial import Claim, Failure, FailureKind, Point, TrialId, TrialState
from hpq.domain.usage import USAGE
from hpq.errors import UserError
from hpq.store.control import SweepControl
from hpq.store.keys import Keys
from hpq.store.sweep_writer import SweepWriter
from tests.support.store_calls import ask, reaped, take

LEASE = 30_000
ENDED = {TrialState.FINISHED, TrialState.FAILED, TrialState.PRUNED, TrialState.CANCELLED}


def finished(value: float) -> Outcome:
    return Outcome(state=TrialState.FINISHED, objective=value, step=1)


def failed(kind: FailureKind = FailureKind.USER_ERROR, print_: str = "KeyError a.py:3") -> Outcome:
    return Outcome(
        state=TrialState.FAILED, failure=Failure(kind=kind, message="no", fingerprint=print_)
    )


def expire(redis: Redis, keys: Keys) -> None:
    """Let every lease end now."""
    for name in redis.zrange(keys.leases, 0, -1):
        redis.zadd(keys.leases, {name: 0})


def test_a_trial_goes_from_queued_over_running_to_finished(store, reader, sweep_of, who) -> None:
    sweep = sweep_of(3)
    claim = take(store, who)
    assert claim.trial.number == 1 and claim.attempt == 1
    assert claim.row == b'{"x":1}'
    batch = ReportBatch(
        seq=1, step=2, objective=0.5, points=(Point(step=2, name="acc", value=0.5),)
    )
    assert store.beat(claim, who, batch, lease_ms=LEASE) is HeartbeatReply.OK
    assert store.commit(claim, finished(0.7)) is CommitReply.DONE
    trial = reader.trials.get(claim.trial)
    assert trial.state is TrialState.FINISHED and trial.objective == 0.7
    assert trial.metrics == {"acc": 0.5}
    counts = reader.sweeps.get(sweep.id).counts
    assert (counts.queued, counts.running, counts.finished, counts.total) == (2, 0, 1, 3)
    assert [e.what for e in reader.events.read(sweep.id)] == ["created", "claimed", "finished"]


def test_the_same_nonce_claims_the_same_trial(store, sweep_of, who) -> None:
    sweep_of(3)
    assert take(store, who, "a") == take(store, who, "a")
    second = take(store, who, "b")
    assert second is not None and second.trial.number == 2


def test_a_batch_sent_twice_is_taken_once(store, reader, sweep_of, who) -> None:
    sweep_of(1)
    claim = take(store, who)
    batch = ReportBatch(
        seq=1, step=1, log=b"hello\n", points=(Point(step=1, name="acc", value=1.0),)
    )
    for _ in range(2):
        assert store.beat(claim, who, batch, lease_ms=LEASE) is HeartbeatReply.OK
    assert reader.trials.log(claim.trial)[0] == b"hello\n"
    assert len(reader.trials.metric_history(claim.trial, "acc")) == 1


def test_a_commit_sent_twice_counts_once(store, reader, sweep_of, who) -> None:
    sweep = sweep_of(1)
    claim = take(store, who)
    assert store.commit(claim, finished(1.0)) is CommitReply.DONE
    assert store.commit(claim, finished(1.0)) is CommitReply.ALREADY
    assert reader.sweeps.get(sweep.id).counts.finished == 1
    assert reader.sweeps.get(sweep.id).state is SweepState.FINISHED


def test_a_failed_attempt_is_tried_again_as_its_kind_allows(store, reader, sweep_of, who) -> None:
    sweep_of(1)
    first = take(store, who, "a")
    assert store.commit(first, failed(FailureKind.KILLED)) is CommitReply.REQUEUED
    assert store.commit(first, failed(FailureKind.KILLED)) is CommitReply.ALREADY
    second = take(store, who, "b")
    assert second is not None and second.attempt == 2
    assert store.commit(second, failed(FailureKind.KILLED)) is CommitReply.DONE
    trial = reader.trials.get(first.trial)
    assert trial.state is TrialState.FAILED
    assert trial.failure is not None and trial.failure.kind is FailureKind.KILLED


@pytest.mark.parametrize(
    ("steps", "ends"),
    [
        ((5, 5), "QF"),  # the first kill is the free retry, however far it came
        ((5, 6, 7, 7), "QQQF"),  # further than each attempt before: not charged
        ((5, 9, 6, 6), "QQF"),  # further than the last, but not than the furthest
    ],
)
def test_what_is_killed_is_tried_once_more_and_then_only_after_progress(
    store, sweep_of, who, steps: tuple[int, ...], ends: str
) -> None:
    sweep_of(1)
    got = ""
    for number, step in enumerate(steps[: len(ends)]):
        killed = replace(failed(FailureKind.KILLED), step=step)
        end = store.commit(take(store, who, f"n{number}"), killed)
        got += {CommitReply.REQUEUED: "Q", CommitReply.DONE: "F"}[end]
    assert got == ends


def test_a_user_error_is_final_unless_the_sweep_allows_retries(store, sweep_of, who) -> None:
    sweep_of(1, retries=1)
    assert store.commit(take(store, who, "a"), failed()) is CommitReply.REQUEUED
    assert store.commit(take(store, who, "b"), failed()) is CommitReply.DONE


@pytest.mark.parametrize("kind", [k for k in FailureKind if not RETRY_RULES[k].released])
@pytest.mark.parametrize("more", [0, 2])
def test_a_kind_of_failure_is_retried_as_often_and_where_its_rule_says(
    store, sweep_of, who, redis, keys, kind, more
) -> None:
    rule, sweep = RETRY_RULES[kind], sweep_of(1, retries=more)
    trial = keys.trial(TrialId(sweep=sweep.id, number=1))
    more = 0 if rule.evidence is Evidence.TAMPERING else more
    for n in range(rule.retries + more):
        assert store.commit(take(store, who, f"n{n}"), failed(kind)) is CommitReply.REQUEUED
        assert redis.hget(trial, "avoid").decode() == (who.host if rule.elsewhere else "")
    assert store.commit(take(store, who, "last"), failed(kind)) is CommitReply.DONE


def test_an_expired_lease_gives_the_trial_back_first(
    store, reader, sweep_of, who, redis, keys
) -> None:
    sweep = sweep_of(3)
    lost = take(store, who, "a")
    assert reaped(store, "default", lease_ms=LEASE, lost_max=3) == 0
    expire(redis, keys)
    assert reaped(store, "default", lease_ms=LEASE, lost_max=3) == 1
    assert reader.sweeps.get(sweep.id).counts.queued == 3
    again = take(store, WorkerPresence(name="w2", host="h2", queue="default"), "b")
    assert isinstance(again, Claim) and again.trial == lost.trial and again.attempt == 2
    assert store.beat(lost, who, ReportBatch(seq=1), lease_ms=LEASE) is HeartbeatReply.LOST
    assert store.commit(lost, finished(9.0)) is CommitReply.STALE
    assert store.commit(again, finished(0.1)) is CommitReply.DONE
    assert reader.trials.get(lost.trial).objective == 0.1


def test_a_late_result_is_taken_where_nobody_claimed_the_trial(
    store, reader, sweep_of, who, redis, keys
) -> None:
    sweep = sweep_of(1)
    claim = take(store, who)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    expire(redis, keys)
    assert reaped(store, "default", lease_ms=LEASE, lost_max=3) == 1
    assert store.commit(claim, finished(0.3)) is CommitReply.DONE
    counts = reader.sweeps.get(sweep.id).counts
    assert (counts.finished, counts.queued) == (1, 0)


def test_a_late_beat_takes_the_trial_back_into_running(
    store, reader, sweep_of, who, redis, keys
) -> None:
    sweep = sweep_of(1)
    claim = take(store, who)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    expire(redis, keys)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    assert store.beat(claim, who, ReportBatch(seq=1), lease_ms=LEASE) is HeartbeatReply.OK
    assert reader.sweeps.get(sweep.id).counts.running == 1
    assert store.commit(claim, finished(0.3)) is CommitReply.DONE


def test_a_released_trial_is_claimed_next_and_its_old_attempt_is_closed(
    store, sweep_of, who
) -> None:
    sweep_of(3)
    claim = take(store, who, "a")
    assert store.release(claim, Reason.STOPPING) == "released"
    assert store.release(claim, Reason.STOPPING) == "already"
    assert store.beat(claim, who, ReportBatch(seq=1), lease_ms=LEASE) is HeartbeatReply.LOST
    assert store.commit(claim, finished(1.0)) is CommitReply.ALREADY
    again = take(store, who, "b")
    assert isinstance(again, Claim) and again.trial == claim.trial and again.attempt == 2


FULL = "/cache holds more than the 1 GiB that a pod may have there"


def test_a_trial_that_overfills_its_pods_is_poison_and_one_that_is_preempted_never_is(
    store, reader, sweep_of, who, control: SweepControl
) -> None:
    sweep = sweep_of(2)
    replies = []
    for turn in range(OVERFILLED_MAX):  # preempted in between, which does not count
        store.release(take(store, who, f"a{turn}"), Reason.STOPPING)
        last = take(store, who, f"b{turn}")
        replies.append(store.release(last, Reason.OVERFILLED, overfilled=FULL))
    assert replies == ["released"] * (OVERFILLED_MAX - 1) + ["poison"]
    assert reader.sweeps.get(sweep.id).returned.trial == 1
    poisoned, other = (reader.trials.get(TrialId(sweep=sweep.id, number=n)) for n in (1, 2))
    assert poisoned.failure.kind is FailureKind.POISON and FULL in poisoned.failure.message
    assert other.state is TrialState.QUEUED
    assert store.release(last, Reason.OVERFILLED, overfilled=FULL) == "already"
    for turn in range(20):
        assert store.release(take(store, who, f"c{turn}"), Reason.STOPPING) == "released"
    assert reader.sweeps.get(sweep.id).returned.trial == 2
    assert reader.workers.counters()["returned_again"] > 20
    assert control.retry(sweep.id, [1]) == 1
    take(store, who, "d")
    again = take(store, who, "e")
    assert again.trial.number == 1
    assert store.release(again, Reason.OVERFILLED, overfilled=FULL) == "released"


def test_nothing_is_claimed_after_pause_returns(
    store, reader, sweep_of, who, control: SweepControl
) -> None:
    sweep = sweep_of(2)
    control.pause(sweep.id)
    assert reader.sweeps.get(sweep.id).state is SweepState.PAUSED
    assert ask(store, who, "a") == Nothing()
    control.resume(sweep.id)
    take(store, who, "b")


def test_stop_lets_what_runs_finish_and_cancels_the_rest(
    store, reader, sweep_of, who, control: SweepControl
) -> None:
    sweep = sweep_of(3)
    claim = take(store, who, "a")
    assert control.stop(sweep.id) == 2
    assert reader.sweeps.get(sweep.id).state is SweepState.STOPPING
    assert ask(store, who, "b") == Nothing()
    assert store.beat(claim, who, ReportBatch(seq=1), lease_ms=LEASE) is HeartbeatReply.OK
    store.commit(claim, finished(1.0))
    assert reader.sweeps.get(sweep.id).state is SweepState.FINISHED
    with pytest.raises(UserError, match="hpq retry"):
        control.pause(sweep.id)


def test_cancel_reaches_a_running_trial_at_its_next_beat(
    store, reader, sweep_of, who, control: SweepControl
) -> None:
    sweep = sweep_of(3)
    claim = take(store, who, "a")
    assert control.cancel(sweep.id) == 3
    assert store.beat(claim, who, ReportBatch(seq=1), lease_ms=LEASE) is HeartbeatReply.STOP
    assert store.commit(claim, Outcome(state=TrialState.CANCELLED)) is CommitReply.DONE
    got = reader.sweeps.get(sweep.id)
    assert got.state is SweepState.CANCELLED and got.counts.cancelled == 3
    assert {t.state for t in reader.trials.all(sweep.id)} == {TrialState.CANCELLED}


def test_retry_queues_ended_trials_with_a_new_attempt(
    store, reader, sweep_of, who, control: SweepControl
) -> None:
    sweep = sweep_of(2)
    claim = take(store, who, "a")
    store.commit(claim, failed())
    control.cancel(sweep.id)
    assert control.retry(sweep.id, [1, 2]) == 2
    counts = reader.sweeps.get(sweep.id).counts
    assert (counts.queued, counts.failed, counts.cancelled) == (2, 0, 0)
    fresh, again = take(store, who, "b"), take(store, who, "c")  # what never ran goes first
    assert (fresh.trial.number, fresh.attempt) == (2, 1)
    assert (again.trial.number, again.attempt) == (1, 2)


def test_a_sweep_whose_first_five_trials_fail_alike_is_held(
    store, reader, sweep_of, who, control: SweepControl
) -> None:
    sweep = sweep_of(9)
    for i in range(5):
        store.commit(take(store, who, str(i)), failed())
    got = reader.sweeps.get(sweep.id)
    assert got.state is SweepState.HELD and got.why_held == "5 of 5 trials failed: KeyError a.py:3"
    assert ask(store, who, "x") == Nothing()
    assert control.retry(sweep.id, [1, 2, 3, 4, 5]) == 5
    assert reader.sweeps.get(sweep.id).state is SweepState.RUNNING


def test_different_failures_do_not_hold_a_sweep(store, reader, sweep_of, who) -> None:
    sweep = sweep_of(6)
    for i in range(5):
        store.commit(take(store, who, str(i)), failed(print_=f"line {i}"))
    assert reader.sweeps.get(sweep.id).state is SweepState.RUNNING


def test_max_parallel_caps_what_runs_at_once(store, sweep_of, who, control: SweepControl) -> None:
    sweep = sweep_of(3, max_parallel=1)
    claim = take(store, who, "a")
    assert ask(store, who, "b") == Nothing()
    store.commit(claim, finished(1.0))
    take(store, who, "c")
    control.set(sweep.id, {"max_parallel": "2"})
    take(store, who, "d")


def test_priority_goes_before_age(store, sweep_of, who) -> None:
    sweep_of(1, "old-00000")
    sweep_of(1, "new-00000", priority=5)
    sweep_of(1, "low-00000", priority=-5)
    order = [take(store, who, str(i)).trial.sweep for i in range(3)]
    assert order == ["new-00000", "old-00000", "low-00000"]


def test_a_worker_leaves_what_it_skips(store, sweep_of, who) -> None:
    sweep_of(1, "mine-00000")
    assert ask(store, who, "a", skip=("mine-00000",)) == Nothing()
    assert take(store, who, "b").trial.sweep == "mine-00000"


def test_trials_of_another_queue_are_not_claimed(store, sweep_of, who) -> None:
    sweep_of(1, queue="small")
    assert ask(store, who) == Nothing()


def out_of_memory(store, who, take_as: str) -> None:
    """A worker takes the next trial, which runs out of memory there."""
    claim = take(store, who, take_as)
    assert store.commit(claim, failed(FailureKind.OUT_OF_MEMORY)) is CommitReply.REQUEUED


def not_yet(redis, key: str) -> None:
    """Let a trial wait 20 s longer than the 10 s of the script, which a busy machine may take."""
    assert redis.hincrby(key, "avoid_ms", 20_000) > 20_000


def arrive(store, name: str, host: str, **fields: str) -> WorkerPresence:
    """Another worker of the queue says that it is there."""
    fields = {"state": "idle", **fields}
    other = WorkerPresence(name=name, host=host, queue="default", fields=fields)
    store.present(other, idle=fields["state"] == "idle", lifetime_ms=3 * LEASE)
    return other


def test_out_of_memory_goes_to_another_host_where_there_is_one(store, sweep_of, who) -> None:
    sweep_of(1)
    arrive(store, "w1", "h1")
    other = arrive(store, "w2", "h2", state="busy")
    out_of_memory(store, who, "a")
    assert ask(store, who, "b") == Nothing()
    assert ask(store, arrive(store, "w3", "h1"), "c") == Nothing()
    assert take(store, other, "d").attempt == 2


def test_out_of_memory_stays_where_there_is_no_other_host(store, sweep_of, who) -> None:
    sweep_of(1)
    arrive(store, "w1", "h1")
    out_of_memory(store, who, "a")
    assert take(store, who, "b").attempt == 2


@pytest.mark.parametrize(
    "peer", [{"only": "another-00000"}, {"refuses": '{"demo-00000":"no"}'}, {"state": "stopping"}]
)
def test_a_host_whose_workers_cannot_take_the_sweep_is_no_elsewhere(
    store, sweep_of, who, peer
) -> None:
    sweep_of(1)
    arrive(store, "w1", "h1")
    arrive(store, "w2", "h2", **peer)
    arrive(store, "w3", "h1", **peer)
    out_of_memory(store, who, "a")
    assert take(store, who, "b").attempt == 2


def test_on_the_only_host_an_idle_worker_takes_what_another_ran_out_of_memory_with(
    store, sweep_of, who, redis, keys
) -> None:
    key = keys.trial(TrialId(sweep=sweep_of(3).id, number=1))
    arrive(store, "w1", "h1")
    idle = arrive(store, "w2", "h1")
    out_of_memory(store, who, "a")
    not_yet(redis, key)
    assert take(store, who, "b").trial.number == 2
    assert (again := take(store, idle, "c")).trial.number == 1 and again.attempt == 2
    out_of_memory(store, who, "d")
    assert take(store, who, "e").trial.number == 3  # w2 is busy, so nobody waits for it


def test_nobody_waits_long_for_an_idle_worker_of_the_same_host(
    store, sweep_of, who, redis, keys
) -> None:
    key = keys.trial(TrialId(sweep=sweep_of(1).id, number=1))
    arrive(store, "w1", "h1")
    arrive(store, "w2", "h1")
    out_of_memory(store, who, "a")
    not_yet(redis, key)
    assert ask(store, who, "b") == Nothing()
    redis.hincrby(key, "avoid_ms", -30_000)
    assert take(store, who, "c").attempt == 2


def test_poison_asks_for_no_host_whose_workers_serve_another_sweep(
    store, reader, sweep_of, who, redis, keys
) -> None:
    sweep_of(1)
    arrive(store, "w1", "h1")
    arrive(store, "w2", "h2", only="another-00000")
    store.reap("default", lease_ms=LEASE, lost_max=2)
    for nonce in ("a", "b"):
        claim = take(store, who, nonce)
        expire(redis, keys)
        store.reap("default", lease_ms=LEASE, lost_max=2)
    assert reader.trials.get(claim.trial).state is TrialState.FAILED


def test_a_trial_that_loses_its_worker_too_often_is_poison(
    store, reader, sweep_of, who, redis, keys
) -> None:
    sweep_of(1)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    for i in range(3):
        claim = take(store, who, str(i))
        expire(redis, keys)
        store.reap("default", lease_ms=LEASE, lost_max=3)
    trial = reader.trials.get(claim.trial)
    assert trial.failure is not None and trial.failure.kind is FailureKind.POISON


def test_a_trial_that_gets_further_each_time_is_not_poison(
    store, reader, sweep_of, who, redis, keys
) -> None:
    sweep_of(1)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    for i in range(6):
        claim = take(store, who, str(i))
        store.beat(claim, who, ReportBatch(seq=1, step=i + 1), lease_ms=LEASE)
        expire(redis, keys)
        store.reap("default", lease_ms=LEASE, lost_max=3)
    assert reader.trials.get(claim.trial).state is TrialState.QUEUED


def test_after_a_restart_of_the_server_nothing_expires_for_one_lease(
    store, sweep_of, who, redis, keys
) -> None:
    sweep_of(1)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    redis.hset(keys.server, "run_id", "another")
    take(store, who)
    expire(redis, keys)
    assert reaped(store, "default", lease_ms=LEASE, lost_max=3) is None
    redis.hset(keys.server, "since", 0)
    assert reaped(store, "default", lease_ms=LEASE, lost_max=3) == 1


def test_the_demand_list_is_as_long_as_running_and_claimable(
    store, sweep_of, who, redis, keys, control: SweepControl
) -> None:
    def demand() -> int:
        return redis.llen(keys.demand("default"))

    sweep = sweep_of(5)
    assert demand() == 5
    claim = take(store, who, "a")
    assert demand() == 5
    control.set(sweep.id, {"max_parallel": "2"})
    assert demand() == 2
    control.pause(sweep.id)
    assert demand() == 1
    control.resume(sweep.id)
    control.set(sweep.id, {"max_parallel": "0"})
    assert demand() == 5
    store.commit(claim, finished(1.0))
    assert demand() == 4
    redis.delete(keys.demand("default"))
    store.reap("default", lease_ms=LEASE, lost_max=3)
    assert demand() == 4


def test_a_demand_beyond_its_list_is_exact_without_a_worker(
    store, sweep_of, redis, keys, reader, control: SweepControl
) -> None:
    def demand() -> tuple[int, float]:
        listed = redis.llen(keys.demand("default"))
        return listed, reader.workers.fleet().demand.get("default", -1)

    sweep_of(3, sid="few-00000")
    many = sweep_of(3, sid="many-00000").id
    control.pause(many)
    redis.zadd(keys.sweep(many, "waiting"), {str(n): n for n in range(4, 12_001)})
    control.resume(many)
    assert demand() == (10_000, 12_003)
    control.pause(many)
    assert demand() == (3, 3)
    control.resume(many)
    redis.hset(keys.queues, "demand:default", "x")  # another client damaged it
    redis.rpush(keys.demand("default"), *["1"] * 3_000)  # as well
    control.pause(many)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    assert demand() == (3, 3)


def test_tickets_are_as_many_as_can_be_used(store, sweep_of, redis, keys) -> None:
    sweep_of(100)
    assert redis.llen(f"rq:queue:{keys.tickets('default')}") == 8
    sweep_of(2, "two-00000", queue="small")
    assert redis.llen(f"rq:queue:{keys.tickets('small')}") == 2


def test_a_digest_that_is_there_is_not_written_again(
    store, reader, sweep_of, redis, writer: SweepWriter
) -> None:
    first = sweep_of(2)
    writer.add_rows("other-00000", 1, [('{"x":1}', b"1" * 16)])
    assert writer.create(replace(first, id="other-00000")) == first.id
    assert reader.sweeps.ids() == [first.id]
    assert redis.exists("hpq:s:other-00000:params") == 0


def test_rows_of_an_enqueue_that_died_are_invisible_and_expire(
    store, reader, redis, who, writer: SweepWriter
) -> None:
    writer.add_rows("half-00000", 1, [('{"x":1}', b"1" * 16)])
    assert reader.sweeps.ids() == [] and ask(store, who) == Nothing()
    assert all(redis.ttl(f"hpq:s:half-00000:{part}") > 0 for part in ("params", "waiting", "ids"))


def test_remove_leaves_no_key_of_the_sweep(
    store, reader, sweep_of, who, redis, control: SweepControl
) -> None:
    before = {k for k in redis.keys("*") if b":s:" in k or b":t:" in k}
    sweep = sweep_of(3)
    claim = take(store, who)
    batch = ReportBatch(seq=1, log=b"x", points=(Point(step=1, name="a/b c", value=1.0),))
    store.beat(claim, who, batch, lease_ms=LEASE)
    store.commit(claim, finished(1.0))
    control.remove(sweep.id)
    assert {k for k in redis.keys("*") if b":s:" in k or b":t:" in k} == before
    assert reader.sweeps.ids() == []


def test_a_log_keeps_its_newest_mebibyte_and_less_once_finished(
    store, reader, sweep_of, who
) -> None:
    sweep_of(1)
    claim = take(store, who)
    for seq in range(1, 80):
        store.beat(claim, who, ReportBatch(seq=seq, log=b"%03d" % seq * 5000), lease_ms=LEASE)
    log = reader.trials.log(claim.trial)[0]
    assert 1_000_000 < len(log) <= 1_048_576 and log.endswith(b"079")
    store.commit(claim, finished(1.0))
    assert 0 < len(reader.trials.log(claim.trial)[0]) <= 16_384


def test_best_of_equal_values_is_the_lower_number(store, reader, sweep_of, who) -> None:
    sweep = sweep_of(4)
    for i, value in enumerate([0.5, 0.9, 0.9, 0.1]):
        store.commit(take(store, who, str(i)), finished(value))
    assert [t.id.number for t in reader.ranking.best(reader.sweeps.get(sweep.id), 2)] == [2, 3]
    assert [t.id.number for t in reader.ranking.best(reader.sweeps.get(sweep.id), 9)] == [
        2,
        3,
        1,
        4,
    ]


def test_a_launch_record_survives_the_wire(store, reader, sweep_of) -> None:
    launch = Launch(program="a b.py", command=("${env}", "x"), code="d", pass_env=("A",))
    sweep = sweep_of(1, launch=launch, timeout_s=1.5, spec={"a": [1, {"b": None}]})
    got = reader.sweeps.get(sweep.id)
    assert got.launch == launch and got.timeout_s == 1.5 and got.spec == {"a": [1, {"b": None}]}


def test_usage_is_kept_with_the_trial_in_at_most_150_bytes_until_it_is_retried(
    store, reader, redis, keys, sweep_of, take, control
) -> None:
    sid, used = sweep_of(2).id, dict.fromkeys(USAGE, 79.9)
    trials = []
    for usage in ({}, used):
        claim = take()
        trials.append(claim.trial)
        outcome = Outcome(state=TrialState.FINISHED, objective=1.0, step=1, ran_ms=1, usage=usage)
        assert store.commit(claim, outcome) is CommitReply.DONE
    sizes = [redis.memory_usage(keys.trial(trial), samples=0) for trial in trials]
    assert sizes[1] - sizes[0] <= 150
    assert [dict(reader.trials.get(trial).usage) for trial in trials] == [{}, used]
    control.retry(sid, [2])
    assert reader.trials.get(trials[1]).usage == {}
