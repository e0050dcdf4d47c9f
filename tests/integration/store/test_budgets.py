"""Budgets: what each end of an attempt adds to what is spent, and what starts no more."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock

import pytest
from redis import Redis

from hpq.archive.transfer import restore, write
from hpq.domain.attempt import CommitReply, Outcome, Reason, ReportBatch, WorkerPresence
from hpq.domain.budget import Budget
from hpq.domain.stored_state import Cause, Hold
from hpq.domain.sweep import SweepState
from hpq.domain.trial import Claim, Failure, FailureKind, TrialId, TrialState
from hpq.store.control import SweepControl
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.scripts import StoreContext
from hpq.store.trials import TrialStore
from hpq.store.worker_reader import server_ms
from hpq_ops.audit.sweep_audit import audit_sweep
from hpq_producer.actions.set_limits import limits
from hpq_views.why.verdict import exit_code
from tests.conftest import MakeSweep

LEASE, HOUR, SID = 30_000, 3_600_000, "demo-00000"


class Bench:
    """Workers whose attempts last hours at once: the tests move the time of a claim back."""

    def __init__(self, store: TrialStore, redis: Redis, keys: Keys, who: WorkerPresence) -> None:
        self.store, self.redis, self.keys, self.who = store, redis, keys, who

    def claim(self, hours: float, gpus: float = 1) -> Claim | None:
        """Claim a trial that has run for these hours; None if none starts."""
        got = self.store.claim(self.who, nonce=secrets.token_hex(8), lease_ms=LEASE, gpus=gpus)
        if not isinstance(got, Claim):
            return None
        self.age(got, hours)
        return got

    def age(self, claim: Claim, hours: float) -> None:
        """Let hours pass for a running attempt."""
        ms, sweep = round(hours * HOUR), self.keys.sweep(claim.trial.sweep)
        self.redis.hincrby(self.keys.trial(claim.trial), "claimed_ms", -ms)
        self.redis.zincrby(f"{sweep}:running", -ms, str(claim.trial.number))
        if self.redis.hget(sweep, "budget_ms"):
            self.redis.hincrby(sweep, "started_ms", -ms)

    def lose(self, claim: Claim) -> None:
        """Let the lease of a worker end that was silent for an hour."""
        self.redis.hset(self.keys.trial(claim.trial), "beat_ms", server_ms(self.redis) - HOUR)
        self.redis.zadd(self.keys.leases, {str(claim.trial): 0})
        assert self.store.reap("default", lease_ms=LEASE, lost_max=3).queued == 1

    def end(self, claim: Claim, state: TrialState = TrialState.FINISHED) -> CommitReply:
        if state is not TrialState.FAILED:
            return self.store.commit(claim, Outcome(state=state, objective=0.5))
        failure = Failure(kind=FailureKind.USER_ERROR, message="m", fingerprint="f")
        return self.store.commit(claim, Outcome(state=state, failure=failure))

    def run(self, *hours: float, gpus: float = 1) -> None:
        """Run trials of these hours, one after another."""
        for one in hours:
            claim = self.claim(one, gpus)
            assert claim is not None
            assert self.end(claim) is CommitReply.DONE


@pytest.fixture
def bench(store: TrialStore, redis: Redis, keys: Keys, who: WorkerPresence) -> Bench:
    return Bench(store, redis, keys, who)


@pytest.fixture
def used(reader: StoreReader) -> Callable[[], tuple[float, float]]:
    """Return the GPU-hours that the sweep has used and wasted."""

    def read_hours() -> tuple[float, float]:
        budget = reader.sweeps.get(SID).budget
        assert budget is not None
        return round(budget.used_hours, 2), round(budget.wasted_hours, 2)

    return read_hours


def hours(gpu_hours: float, until_ms: int = 0) -> Budget:
    return Budget.of_hours(gpu_hours, until_ms)


def test_no_trial_starts_that_does_not_fit_and_set_goes_on_at_once(
    bench: Bench, sweep_of: MakeSweep, reader: StoreReader, control: SweepControl, used, redis, keys
) -> None:
    sweep_of(9, budget=hours(6.1))
    bench.run(1, 1, 1)
    last = [bench.claim(0) for _ in range(4)]
    assert [bool(one) for one in last] == [True, True, True, False]
    assert reader.sweeps.get(SID).state is SweepState.RUNNING, "running trials may free hours"
    for one in last[:3]:
        bench.age(one, 1)
        bench.end(one)
    sweep = reader.sweeps.get(SID)
    assert (sweep.state, sweep.hold) == (SweepState.HELD, Hold(cause=Cause.GPU_HOURS))
    assert exit_code(sweep, 0.5) == 6 and "budget.gpu_hours=10.5" in sweep.resumed_by
    assert used() == (6, 0)
    assert int(redis.hget(keys.queues, "demand:default")) == 0
    control.resume(SID)
    assert reader.sweeps.get(SID).is_over_budget, "resume does not override a budget"
    control.set(SID, limits(["budget.gpu_hours=7.2"]))
    assert reader.sweeps.get(SID).state is SweepState.RUNNING
    assert int(redis.hget(keys.queues, "demand:default")) == 1, "as many as fit"
    assert bench.claim(0) and not bench.claim(0)
    assert audit_sweep(reader, SID).violations == ()


def test_a_pause_outlives_a_budget_that_is_used_up_and_raised(
    bench: Bench, sweep_of: MakeSweep, reader: StoreReader, control: SweepControl
) -> None:
    sweep_of(9, budget=hours(1))
    bench.run(1)
    assert reader.sweeps.get(SID).is_over_budget
    control.pause(SID)
    control.set(SID, limits(["budget.gpu_hours=0.5"]))
    assert reader.sweeps.get(SID).state is SweepState.PAUSED
    control.set(SID, limits(["budget.gpu_hours=10"]))
    assert reader.sweeps.get(SID).state is SweepState.PAUSED and not bench.claim(1)
    control.resume(SID)
    assert bench.claim(1)


def test_what_runs_counts_as_long_as_it_has_run_and_an_expected_trial(
    bench: Bench, store: TrialStore, sweep_of: MakeSweep, redis: Redis, keys: Keys, used
) -> None:
    sweep_of(9, budget=hours(4), timeout_s=3600.0)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    long = bench.claim(1.5)
    assert bench.claim(0) and not bench.claim(0)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    bench.end(long)
    assert used() == (1.5, 0)
    assert int(redis.hget(keys.queues, "demand:default")) == 2, "the one that runs, and one more"
    assert bench.claim(0) and not bench.claim(0)


def test_eight_workers_that_race_start_no_more_than_the_rest(
    bench: Bench, sweep_of: MakeSweep, redis: Redis, keys: Keys, redis_url: str
) -> None:
    sweep_of(200, budget=hours(20))
    bench.run(1, 1, 1)
    start, lock, most, started = Barrier(8), Lock(), 0.0, 0

    def work(i: int) -> None:
        nonlocal most, started
        who = WorkerPresence(name=f"w{i}", host=f"h{i}", queue="default")
        with Redis.from_url(redis_url) as client:
            own = Bench(TrialStore(StoreContext.open(client, keys, mints=False)), client, keys, who)
            start.wait()
            while (claim := own.claim(0)) is not None:
                pipe = client.pipeline()
                pipe.hget(keys.sweep(SID), "spent_ms").zcard(keys.sweep(SID, "running"))
                spent, running = pipe.execute()
                with lock:
                    started += 1
                    most = max(most, int(spent) / HOUR + running)
                own.age(claim, 1)
                own.end(claim)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert most <= 20 + 1e-2 and 15 <= started <= 17


@pytest.mark.parametrize("gpus", [4, 0.25])
def test_gpus_of_a_trial_multiply_its_hours(
    bench: Bench, sweep_of: MakeSweep, store: TrialStore, used, gpus: float
) -> None:
    sweep_of(9, budget=hours(5.6 * gpus))
    bench.run(1, 1, 1, gpus=gpus)
    assert used() == (3 * gpus, 0)
    running = [bench.claim(0, gpus) for _ in range(3)]
    assert [bool(one) for one in running] == [True, True, False]
    store.release(running[1], Reason.STOPPING)
    bench.age(running[0], 0.7)
    assert bench.claim(0, gpus) is None


def test_workers_of_two_sizes_leave_a_sweep_held_once_its_budget_holds_it(
    bench: Bench, sweep_of: MakeSweep, store: TrialStore, reader: StoreReader
) -> None:
    sweep_of(9, budget=hours(4.5))
    bench.run(1, 1, 1, gpus=1)
    for gpus in (2, 1, 2, 1):
        assert bench.claim(0, gpus) is None
        store.reap("default", lease_ms=LEASE, lost_max=3, every_ms=0)
        assert reader.sweeps.get(SID).state is SweepState.HELD


def test_the_reaper_corrects_when_running_trials_began(
    bench: Bench, sweep_of: MakeSweep, store: TrialStore, redis: Redis, keys: Keys
) -> None:
    sweep_of(9, budget=hours(4.1), timeout_s=3600.0)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    bench.claim(1)
    redis.hdel(keys.sweep(SID), "started_ms")  # as if it ran since 1970
    assert bench.claim(0) is None
    store.reap("default", lease_ms=LEASE, lost_max=3)
    assert [bool(bench.claim(0)) for _ in range(3)] == [True, True, False]


def test_a_trial_that_returns_counts_the_gpus_of_each_attempt(
    bench: Bench, sweep_of: MakeSweep, store: TrialStore, used
) -> None:
    sweep_of(2, budget=hours(99))
    store.release(bench.claim(1, gpus=4), Reason.STOPPING)
    bench.end(bench.claim(1))
    assert used() == (5, 4)


def test_every_way_out_of_running_is_spent(
    bench: Bench,
    store: TrialStore,
    sweep_of: MakeSweep,
    control: SweepControl,
    redis: Redis,
    keys: Keys,
    reader: StoreReader,
    used,
) -> None:
    sweep_of(20, budget=hours(100), retries=1)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    bench.run(1, 1, 1)
    assert used() == (3, 0)
    assert bench.end(bench.claim(2), TrialState.FAILED) is CommitReply.REQUEUED
    assert used() == (5, 2)
    assert bench.end(bench.claim(3), TrialState.FAILED) is CommitReply.DONE
    assert used() == (8, 5)
    assert store.release(bench.claim(1), Reason.STOPPING) == "released"
    assert used() == (9, 6)
    bench.lose(bench.claim(4))
    assert used() == (12, 9), "it counts until its last heartbeat"
    again = bench.claim(1)
    control.cancel(SID, [again.trial.number])
    bench.end(again, TrialState.CANCELLED)
    assert used() == (13, 10)
    bench.end(bench.claim(1), TrialState.PRUNED)
    assert used() == (14, 10)
    assert audit_sweep(reader, SID).violations == ()


@pytest.mark.parametrize("way", ["beat", "commit", "failure"])
def test_a_lost_worker_that_comes_back_counts_its_attempt_once(
    way: str, bench: Bench, store: TrialStore, sweep_of, redis: Redis, keys: Keys, used, who, reader
) -> None:
    sweep_of(5, budget=hours(100), retries=5)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    bench.run(1, 1, 1)
    claim = bench.claim(4)
    bench.lose(claim)
    assert used() == (6, 3)
    if way == "beat":
        assert store.beat(claim, who, ReportBatch(seq=1), lease_ms=LEASE) == "ok"
        assert used() == (3, 0)
        claimed = int(redis.hget(keys.trial(claim.trial), "claimed_ms") or 0)
        assert redis.zscore(keys.sweep(SID, "running"), "4") == claimed
        assert redis.hget(keys.sweep(SID), "started_ms") == str(claimed).encode()
    bench.end(claim, TrialState.FAILED if way == "failure" else TrialState.FINISHED)
    assert used() == (7, 4 if way == "failure" else 0)
    assert audit_sweep(reader, SID).violations == ()


def test_a_budget_that_is_set_while_a_worker_is_lost_owes_nothing_when_it_comes_back(
    bench: Bench, store: TrialStore, sweep_of: MakeSweep, control: SweepControl, who, used
) -> None:
    sweep_of(5)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    claim = bench.claim(4)
    bench.lose(claim)
    control.set(SID, limits(["budget.gpu_hours=9"]) | {"until_ms": ""})
    assert store.beat(claim, who, ReportBatch(seq=1), lease_ms=LEASE) == "ok"
    assert used() == (0, 0)
    bench.end(claim)
    assert used() == (4, 0)


def test_before_three_trials_have_ended_only_a_timeout_is_expected(
    bench: Bench, sweep_of: MakeSweep
) -> None:
    sweep_of(9, budget=hours(3.1), timeout_s=3600.0)
    assert [bool(bench.claim(0)) for _ in range(4)] == [True, True, True, False]
    sweep_of(9, "other-00000", budget=hours(0.5))
    first = [bench.claim(0) for _ in range(8)]
    assert all(first), "the first wave has no bound"
    bench.age(first[0], 0.5)
    assert bench.claim(0) is None


def test_a_trial_starts_only_if_it_is_expected_to_end_in_time(
    bench: Bench,
    store: TrialStore,
    sweep_of: MakeSweep,
    redis: Redis,
    keys: Keys,
    reader: StoreReader,
    control: SweepControl,
) -> None:
    now = server_ms(redis)
    sweep_of(9, budget=hours(0, now + HOUR))
    store.reap("default", lease_ms=LEASE, lost_max=3)
    bench.run(0.5, 0.5, 0.5)
    running = bench.claim(0.5)
    assert running is not None
    redis.hset(keys.sweep(SID), "until_ms", now + HOUR // 4)  # an hour passes
    assert bench.claim(0.5) is None
    bench.end(running)
    sweep = reader.sweeps.get(SID)
    assert sweep.hold == Hold(cause=Cause.UNTIL) and sweep.resumed_by.endswith("budget.until=none")
    control.set(SID, limits(["budget.until=none"]))
    assert bench.claim(0) is not None


def test_the_reaper_holds_a_sweep_whose_time_passes_while_it_waits(
    store: TrialStore, sweep_of: MakeSweep, redis: Redis, keys: Keys, reader: StoreReader
) -> None:
    sweep_of(2, budget=hours(0, server_ms(redis) + HOUR))
    store.reap("default", lease_ms=LEASE, lost_max=3)
    redis.hset(keys.sweep(SID), "until_ms", server_ms(redis) - 1)
    store.reap("default", lease_ms=LEASE, lost_max=3)
    assert reader.sweeps.get(SID).hold == Hold(cause=Cause.UNTIL)
    assert int(redis.hget(keys.queues, "demand:default")) == 0


def test_80_percent_is_told_once_for_each_budget(
    bench: Bench, sweep_of: MakeSweep, reader: StoreReader, control: SweepControl
) -> None:
    sweep_of(12, budget=hours(10))

    def told() -> int:
        return sum(event.what == "budget" for event in reader.events.read(SID))

    bench.run(*[1] * 7)
    assert told() == 0
    bench.run(1, 1)
    assert told() == 1
    control.set(SID, limits(["budget.gpu_hours=11"]))
    bench.run(1)
    assert told() == 2


def test_a_budget_that_is_set_later_counts_from_then_on(
    bench: Bench, sweep_of: MakeSweep, reader: StoreReader, redis: Redis, keys: Keys, desk, used
) -> None:
    sweep_of(9, owner="me")
    bench.run(1)
    before = bench.claim(1, gpus=2)
    assert reader.sweeps.get(SID).budget is None
    desk.hpq("set", SID, "budget.gpu_hours=6.1")
    assert redis.hget(keys.sweep(SID), "started_ms") == redis.hget(
        keys.trial(before.trial), "claimed_ms"
    )
    bench.end(before)
    bench.run(1, 1)
    assert used() == (4, 0)
    assert bench.claim(0) and bench.claim(0) and not bench.claim(0)


def test_a_sweep_that_its_budget_holds_is_never_archived_and_a_stop_ends_it(
    bench: Bench,
    sweep_of: MakeSweep,
    reader: StoreReader,
    control: SweepControl,
    redis: Redis,
    keys: Keys,
    tmp_path,
) -> None:
    sweep_of(9, budget=hours(1))
    bench.run(1)
    assert reader.sweeps.get(SID).is_over_budget
    assert list(reader.sweeps.ended(-HOUR)) == []
    control.stop(SID)
    assert reader.sweeps.get(SID).state is SweepState.FINISHED
    assert [sweep.id for sweep, _ in reader.sweeps.ended(-HOUR)] == [SID]


def test_a_sweep_without_a_budget_has_no_field_of_one(
    bench: Bench, sweep_of: MakeSweep, redis: Redis, keys: Keys
) -> None:
    sweep_of(2)
    bench.run(1)
    fields = redis.hkeys(keys.sweep(SID)) + redis.hkeys(keys.trial(TrialId(sweep=SID, number=1)))
    assert not {b"budget_ms", b"spent_ms", b"useful_ms", b"started_ms", b"gpus"} & {*fields}


def test_a_sweep_of_which_nothing_fits_is_held_from_the_start(
    sweep_of: MakeSweep, redis: Redis, keys: Keys, reader: StoreReader
) -> None:
    sweep_of(2, budget=hours(0.5), timeout_s=3600.0)
    assert reader.sweeps.get(SID).hold == Hold(cause=Cause.GPU_HOURS), (
        "no worker starts for it, to reap"
    )
    assert int(redis.hget(keys.queues, "demand:default") or 0) == 0


@pytest.mark.parametrize("way", ["commit", "release", "reap"])
def test_a_clock_that_went_back_gives_no_hours_back(
    way: str, bench: Bench, store: TrialStore, sweep_of: MakeSweep, redis: Redis, keys: Keys, used
) -> None:
    sweep_of(9, budget=hours(100))
    store.reap("default", lease_ms=LEASE, lost_max=3)
    bench.run(1, 1, 1)
    claim = bench.claim(-2)
    if way == "commit":
        bench.end(claim)
    elif way == "release":
        store.release(claim, Reason.STOPPING)
    else:
        redis.zadd(keys.leases, {str(claim.trial): 0})
        store.reap("default", lease_ms=LEASE, lost_max=3)
    assert used() == (3, 0)


def test_a_sweep_that_is_restored_after_its_time_is_held(
    bench: Bench,
    sweep_of: MakeSweep,
    redis: Redis,
    keys: Keys,
    reader: StoreReader,
    control: SweepControl,
    tmp_path,
) -> None:
    sweep_of(3, budget=hours(9, server_ms(redis) + HOUR))
    bench.run(1)
    before, context = reader.sweeps.get(SID).budget, StoreContext.open(redis, keys)
    redis.hset(keys.sweep(SID), "until_ms", server_ms(redis) - 1)  # hours pass
    write(context, SID, tmp_path / "late.hpq")
    control.remove(SID)
    restore(context, tmp_path / "late.hpq")
    sweep = reader.sweeps.get(SID)
    assert sweep.hold == Hold(cause=Cause.UNTIL)
    assert before and sweep.budget and sweep.budget.spent_ms == before.spent_ms


@pytest.mark.parametrize("field", ["started_ms", "spent_ms", "useful_ms"])
@pytest.mark.parametrize("call", ["claim", "commit", "reap"])
def test_a_damaged_number_moves_no_trial_half_way(
    bench: Bench, store: TrialStore, sweep_of: MakeSweep, redis: Redis, keys: Keys, field, call
) -> None:
    """The trial was in no list: no lease, no queue, and its record said that it runs."""
    sweep_of(3, budget=hours(0))
    bench.run(1)
    claim = bench.claim(1)
    assert claim is not None
    store.reap("default", lease_ms=1, lost_max=3)  # the first one only notes the server's run
    redis.hset(keys.sweep(SID), field, "x")
    if call == "claim":
        assert bench.claim(0) is None
    elif call == "commit":
        assert bench.end(claim) is CommitReply.UNKNOWN
    else:
        redis.zadd(keys.leases, {str(claim.trial): 1})
        store.reap("default", lease_ms=1, lost_max=3)
    assert redis.zrange(keys.sweep(SID, "running"), 0, -1) == [b"2"]
    assert redis.zrange(keys.leases, 0, -1) == [str(claim.trial).encode()]
    assert redis.hget(keys.trial(claim.trial), "state") == b"running"
    redis.hset(keys.sweep(SID), field, HOUR)
    assert bench.end(claim) is CommitReply.DONE


@pytest.mark.parametrize("field", ["dur_sum", "until_ms"])
def test_a_trial_that_was_lost_once_is_not_lost_again_while_its_sweep_is_damaged(
    bench: Bench, store: TrialStore, sweep_of: MakeSweep, redis: Redis, keys: Keys, control, field
) -> None:
    """Its lease came back though it waited: after three runs of the reaper it was poison."""
    sweep_of(5, budget=hours(9))
    bench.run(1, 1, 1)
    claim = bench.claim(1)
    assert claim is not None
    store.reap("default", lease_ms=1, lost_max=3)  # the first one only notes the server's run
    control.pause(SID)
    redis.hset(keys.sweep(SID), field, "x")
    redis.zadd(keys.leases, {str(claim.trial): 1})
    for _ in range(3):
        redis.zadd(keys.leases, {str(claim.trial): 1}, xx=True)
        store.reap("default", lease_ms=1, lost_max=3)
    trial = redis.hgetall(keys.trial(claim.trial))
    assert (trial[b"state"], trial[b"lost"]) == (b"queued", b"1")
    assert redis.zcard(keys.leases) == 0
