"""A state machine of one sweep and three workers that call the real scripts in any order."""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hpq.domain.attempt import (
    CommitReply,
    HeartbeatReply,
    Nothing,
    Outcome,
    Reason,
    ReportBatch,
    WorkerPresence,
)
from hpq.domain.budget import Budget
from hpq.domain.identity import ParameterSet
from hpq.domain.stored_state import StoredState
from hpq.domain.sweep import EarlyTerminate, Goal, Launch, Metric, SweepView, TerminationRule
from hpq.domain.trial import Claim, Failure, FailureKind, Point, TrialId, TrialState
from hpq.errors import UserError
from hpq.redis.client import connect
from hpq.store.control import SweepControl
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.scripts import StoreContext
from hpq.store.sweep_writer import SweepWriter
from hpq.store.trials import TrialStore
from hpq.store.wire.fields import dumps
from hpq.store.wire.row import NewRow
from hpq_ops.audit.sweep_audit import audit_sweep

TRIALS, LEASE, HOUR = 4, 30_000, 3_600_000
BANDS = (1, 2)
STEPS_PER_AUDIT = 5  # it replays all events, which takes as long as all other checks
SID = "machine-00000"
GOOD = [TrialState.FINISHED, TrialState.PRUNED, TrialState.CANCELLED]
KINDS = [FailureKind.USER_ERROR, FailureKind.KILLED, FailureKind.OUT_OF_MEMORY]
ENDS = {"finished", "failed", "pruned", "cancelled"}
CLOSED = (StoredState.STOPPED, StoredState.CANCELLED)


def row(number: int) -> NewRow:
    return NewRow(dumps({"x": number}), ParameterSet({"x": number}).identity)


class Machine(RuleBasedStateMachine):
    """Three workers, one sweep; a call may be repeated, as after a lost reply."""

    url = ""
    looks = 0

    @property
    def checks(self) -> Sequence[Callable[[Seen], None]]:
        return CHECKS

    def __init__(self) -> None:
        super().__init__()
        self.total = TRIALS
        self.redis = connect(self.url)
        self.redis.flushall()
        self.keys = Keys("hpq")
        self.store_context = StoreContext.open(self.redis, self.keys, mints=False)
        self.store = TrialStore(self.store_context)
        self.writer = SweepWriter(self.store_context)
        self.control = SweepControl(self.store_context)
        self.control.limit_owner("*", {"running": 1000})  # so that GPU time is charged
        self.reader = StoreReader(self.redis, self.keys, LEASE)
        self.workers = [
            WorkerPresence(name=f"w{i}", host=f"h{i % 2}", queue="default") for i in range(3)
        ]
        metric = Metric(name="acc", goal=Goal.MAXIMIZE)
        launch, early = (
            Launch(trainer="digits"),
            EarlyTerminate(rule=TerminationRule.ASHA, bands=BANDS, eta=2),
        )
        self.enqueue(
            SweepView(
                id=SID,
                name="m",
                digest="d",
                launch=launch,
                metric=metric,
                early=early,
                budget=Budget.of_hours(1e6, 0),
                timeout_s=60,
            )
        )
        self.store.reap("default", lease_ms=LEASE, lost_max=3)
        self.held: list[tuple[WorkerPresence, Claim]] = []  # all claims so far
        self.asked: dict[int, tuple[str, Claim | Nothing]] = {}  # the last claim of each worker
        self.seq = 0
        self.taken: Counter[str] = Counter()  # accepted commits by trial
        self.hours: Counter[tuple[int, int]] = Counter()  # by number and attempt, beside ms

    def enqueue(self, sweep: SweepView) -> None:
        self.writer.add_rows(SID, 1, [row(number) for number in range(1, TRIALS + 1)])
        self.writer.create(sweep)

    def teardown(self) -> None:
        self.audit()
        self.redis.close()

    @rule(who=st.integers(0, 2), twice=st.booleans())
    def claim(self, who: int, twice: bool) -> None:
        nonce, worker = secrets.token_hex(4), self.workers[who]
        got = self.store.claim(worker, nonce=nonce, lease_ms=LEASE)
        if twice:
            again = self.store.claim(worker, nonce=nonce, lease_ms=LEASE)
            if isinstance(got, Claim) and isinstance(again, Claim):
                # A claim that fills the sweep's cap leaves no need for a suggester.
                again = replace(again, unfed=got.unfed)
            assert again == got
        self.asked[who] = (nonce, got)
        if isinstance(got, Claim):
            self.held.append((worker, got))

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def claim_again_late(self, data: st.DataObject) -> None:
        """Repeat a claim whose reply was lost, after other calls."""
        who = data.draw(st.sampled_from(sorted(self.asked)))
        nonce, got = self.asked[who]
        before = self.reader.trials.get(got.trial) if isinstance(got, Claim) else None
        again = self.store.claim(self.workers[who], nonce=nonce, lease_ms=LEASE)
        if isinstance(got, Claim) and before is not None:
            is_mine = (before.attempt, before.worker) == (got.attempt, self.workers[who].name)
            if is_mine and before.state is TrialState.RUNNING:
                assert isinstance(again, Claim)
                # The claim may have published a checkpoint, and a suggester have come or gone.
                again = replace(again, checkpoint=got.checkpoint, unfed=got.unfed)
                assert again == got
        if isinstance(again, Claim) and again != got:
            self.held.append((self.workers[who], again))
        self.asked[who] = (nonce, again)

    def pick(self, data: st.DataObject) -> tuple[WorkerPresence, Claim]:
        return data.draw(st.sampled_from(self.held))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), step=st.integers(0, 5), value=st.sampled_from([0.1, 0.5, math.nan]))
    def beat(self, data: st.DataObject, step: int, value: float) -> None:
        worker, claim = self.pick(data)
        self.seq += 1
        points = (Point(step=step, name="acc", value=value),)
        batch = ReportBatch(seq=self.seq, step=step, objective=0.5, points=points, log=b"x")
        answers = {self.store.beat(claim, worker, batch, lease_ms=LEASE) for _ in range(2)}
        assert len(answers) == 1
        now = self.reader.trials.get(claim.trial)
        if answers != {HeartbeatReply.LOST}:
            assert now.state is TrialState.RUNNING and now.attempt == claim.attempt
            told = self.redis.hget(self.keys.trial(claim.trial), "stop")
            assert answers == {HeartbeatReply((told or b"ok").decode())}

    @precondition(lambda self: self.held)
    @rule(data=st.data(), value=st.floats(-1, 1), kind=st.sampled_from([*GOOD, *KINDS]))
    def commit(self, data: st.DataObject, value: float, kind: FailureKind | TrialState) -> None:
        _, claim = self.pick(data)
        failure, state = None, kind
        if isinstance(kind, FailureKind):
            state = TrialState.FAILED
            failure = Failure(kind=kind, message="m", fingerprint=value.hex() if value else "m")
        outcome = Outcome(state=state, objective=value, step=1, failure=failure)
        before = self.reader.trials.get(claim.trial)
        first = self.store.commit(claim, outcome)
        assert self.store.commit(claim, outcome) in (CommitReply.ALREADY, CommitReply.STALE)
        if first is CommitReply.DONE:
            assert not before.state.is_terminal and before.attempt == claim.attempt
            assert self.reader.trials.get(claim.trial).state is state
            self.taken[str(claim.trial)] += 1
        if before.attempt > claim.attempt:
            assert first is CommitReply.STALE

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        _, claim = self.pick(data)
        first = self.store.release(claim, Reason.STOPPING)
        assert self.store.release(claim, Reason.STOPPING) != "released"
        assert first in ("released", "already", "stale")

    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        names = [n.decode() for n in self.redis.zrange(self.keys.leases, 0, -1)]
        if names:
            self.redis.zadd(self.keys.leases, {data.draw(st.sampled_from(names)): 0})
        self.store.reap("default", lease_ms=LEASE, lost_max=3)

    @rule(data=st.data(), hours=st.sampled_from([-2, 1, 3]))
    def age(self, data: st.DataObject, hours: int) -> None:
        """Let hours pass for a running attempt; below 0: a failover to a clock that is behind."""
        running = [t for t in self.reader.trials.all(SID) if t.state is TrialState.RUNNING]
        if running:
            trial = data.draw(st.sampled_from(running))
            self.redis.hincrby(self.keys.trial(trial.id), "claimed_ms", -hours * HOUR)
            running = self.keys.sweep(SID, "running")
            self.redis.zincrby(running, -hours * HOUR, str(trial.id.number))
            self.redis.hincrby(self.keys.sweep(SID), "started_ms", -hours * HOUR)
            self.hours[trial.id.number, trial.attempt] += hours

    @rule(verb=st.sampled_from(["pause", "resume", "stop", "cancel"]))
    def tell(self, verb: str) -> None:
        try:
            getattr(self.control, verb)(SID)
            before = self.books()
            getattr(self.control, verb)(SID)  # repeated, as after a lost reply
            assert self.books() == before
        except UserError:
            sweep = self.reader.sweeps.get(SID)
            assert sweep.stored in CLOSED or sweep.state.is_over
        if verb == "pause":
            assert self.store.claim(self.workers[0], nonce="p", lease_ms=LEASE) == Nothing()

    @rule(number=st.integers(1, TRIALS))
    def cancel_one(self, number: int) -> None:
        self.control.cancel(SID, [number])
        before = self.books()
        self.control.cancel(SID, [number])
        assert self.books() == before

    @rule(numbers=st.sets(st.integers(1, TRIALS)))
    def retry(self, numbers: set[int]) -> None:
        self.control.retry(SID, sorted(numbers))
        before = self.books()
        assert self.control.retry(SID, sorted(numbers)) == 0
        assert self.books() == before

    def books(self) -> list[tuple[TrialState, int]]:
        return [(trial.state, trial.attempt) for trial in self.reader.trials.all(SID)]

    @rule(cap=st.integers(0, 2))
    def cap(self, cap: int) -> None:
        self.control.set(SID, {"max_parallel": str(cap)})

    @invariant()
    def the_books_are_in_order(self) -> None:
        """All that must hold after each step, of one look at the store."""
        seen = Seen(self)
        for check in self.checks:
            check(seen)
        self.looks += 1
        if self.looks % STEPS_PER_AUDIT == 0:
            self.audit()

    def audit(self) -> None:
        assert audit_sweep(self.reader, SID).violations == ()


@dataclass
class Seen:
    """What the store holds after a step, and what the machine knows."""

    machine: Machine

    def __post_init__(self) -> None:
        it = self.machine
        keys, reader = it.keys, it.reader
        self.sweep = reader.sweeps.get(SID)
        self.trials = list(reader.trials.all(SID))
        self.events = reader.events.read(SID)
        numbers = range(1, it.total + 1)
        pipe = it.redis.pipeline(transaction=False)
        pipe.zrange(keys.leases, 0, -1)
        pipe.zrange(keys.sweep(SID, "rank"), 0, -1)
        pipe.zrange(keys.sweep(SID, "running"), 0, -1, withscores=True)
        pipe.llen(keys.demand("default"))
        pipe.hget(keys.queue("default", "busy"), "")
        pipe.zscore(keys.queue("default", "open"), SID)
        pipe.zscore(keys.queue("default", "pending"), SID)
        pipe.hmget(keys.sweep(SID), "useful_ms", "spent_ms", "started_ms")
        for band in BANDS:
            pipe.zrange(keys.sweep(SID, f"band:{band}"), 0, -1)
        for n in numbers:
            key = keys.trial(TrialId(sweep=SID, number=n))
            pipe.hmget(key, "claimed_ms", "charged_ms", "logged")
        answers = pipe.execute()
        self.leases, self.rank = ({raw.decode() for raw in names} for names in answers[:2])
        self.since = {raw.decode(): int(since) for raw, since in answers[2]}
        self.running = set(self.since)
        self.demand, busy, self.place, self.listed = answers[3:7]
        self.busy = int(busy or 0)
        self.useful, self.spent, self.started = (int(n or 0) for n in answers[7])
        self.bands = [{int(n) for n in found} for found in answers[8 : 8 + len(BANDS)]]
        rows = dict(zip(numbers, answers[8 + len(BANDS) :], strict=True))
        self.claimed = {str(n): int(row[0]) for n, row in rows.items() if row[0]}
        self.charged = {str(n) for n, row in rows.items() if row[1]}
        self.logged = {n: int(row[2] or 0) for n, row in rows.items()}


def counts_leases_and_ranks_are_those_of_the_trials(seen: Seen) -> None:
    counts = seen.sweep.counts
    assert counts.planned == seen.machine.total or seen.sweep.no_more
    tally = Counter(t.state for t in seen.trials)
    assert all(counts.of(state) == tally[state] for state in TrialState)
    assert seen.leases == {str(t.id) for t in seen.trials if t.state is TrialState.RUNNING}
    ranked = {str(t.id.number) for t in seen.trials if t.state in GOOD[:2]}
    assert seen.rank == ranked


def each_running_attempt_counts_since_its_claim(seen: Seen) -> None:
    assert seen.since == {n: seen.claimed[n] for n in seen.running}
    assert seen.started == sum(seen.since.values())
    assert 0 <= seen.useful <= seen.spent


def the_gpu_time_of_each_running_attempt_is_charged(seen: Seen) -> None:
    assert seen.charged == seen.running


def each_attempt_that_ended_is_spent_once(seen: Seen) -> None:
    running = {(t.id.number, t.attempt) for t in seen.trials if t.state is TrialState.RUNNING}
    hours = seen.machine.hours
    ended = [max(0, spent) for key, spent in hours.items() if key not in running]
    assert round(seen.spent / HOUR) == sum(ended)


def the_demand_is_what_could_run(seen: Seen) -> None:
    sweep = seen.sweep
    queued, running = sweep.counts.queued + int(sweep.counts.to_come), sweep.counts.running
    if sweep.stored is not StoredState.OPEN:
        claimable = 0
    elif sweep.max_parallel:
        claimable = max(0, min(queued, sweep.max_parallel - running))
    else:
        claimable = queued
    assert seen.demand == running + claimable
    assert seen.busy == running
    assert (seen.place is not None) == (queued + running > 0)


def claims_look_at_the_sweep_if_a_trial_may_start_or_must_end(seen: Seen) -> None:
    sweep = seen.sweep
    waits = sweep.counts.queued + int(sweep.counts.to_come)
    is_full = sweep.max_parallel and sweep.counts.running >= sweep.max_parallel
    may_start = sweep.stored is StoredState.OPEN and waits and not is_full
    must_end = sweep.stored in CLOSED and sweep.counts.queued
    assert seen.listed == (seen.place if may_start or must_end else None)


def a_band_holds_who_logged_so_many(seen: Seen) -> None:
    for band, found in zip(BANDS, seen.bands, strict=True):
        assert found == {n for n, logged in seen.logged.items() if logged >= band}


def every_end_has_its_event(seen: Seen) -> None:
    for trial in seen.trials:
        mine = [e for e in seen.events if e.trial == trial.id.number]
        attempts = [e.attempt for e in mine if e.what == "claimed"]
        assert attempts == sorted(set(attempts))
        ends = [e for e in mine if e.what in ENDS or e.what == "reused"]
        backs = [e for e in mine if e.what == "retried"]
        assert len(ends) - len(backs) <= 1
        if trial.state.is_terminal and trial.attempt:
            assert ends and ends[-1].what in (trial.state, "reused")


OF_FILES = (
    counts_leases_and_ranks_are_those_of_the_trials,
    each_running_attempt_counts_since_its_claim,
    the_gpu_time_of_each_running_attempt_is_charged,
    each_attempt_that_ended_is_spent_once,
    the_demand_is_what_could_run,
    claims_look_at_the_sweep_if_a_trial_may_start_or_must_end,
)
CHECKS = (*OF_FILES, a_band_holds_who_logged_so_many, every_end_has_its_event)
