"""The guards as the scripts keep them: the breaker, and the worker that fails alone."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pytest

from hpq.domain.attempt import CommitReply, Nothing, Outcome, WorkerPresence
from hpq.domain.stored_state import Cause, Hold
from hpq.domain.sweep import SweepState
from hpq.domain.trial import Claim, Failure, FailureKind, TrialState
from hpq.store.control import SweepControl
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from hpq_ops.audit.sweep_audit import audit_sweep
from tests.support.store_calls import beat

LEASE = 30_000
PASSES = Outcome(state=TrialState.FINISHED, objective=1.0)


def fails(print_: str = "KeyError a.py:3", kind: FailureKind = FailureKind.USER_ERROR) -> Outcome:
    failure = Failure(kind=kind, message="no", fingerprint=print_)
    return Outcome(state=TrialState.FAILED, failure=failure)


class Crew:
    """Workers of one queue that are alive, each with a name of one letter."""

    def __init__(
        self, store: TrialStore, control: SweepControl, reader: StoreReader, names: str, sid: str
    ) -> None:
        self.store, self.control, self.reader, self.sid = store, control, reader, sid
        self.who = {n: WorkerPresence(name=n, host=f"h-{n}", queue="default") for n in names}
        for who in self.who.values():
            store.present(who, idle=True, lifetime_ms=3 * LEASE)

    def take(self, name: str) -> Claim | Nothing:
        return self.store.claim(self.who[name], nonce=secrets.token_hex(4), lease_ms=LEASE)

    def one(self, name: str, outcome: Outcome) -> CommitReply:
        """A worker takes the next trial and ends it so."""
        claim = self.take(name)
        assert isinstance(claim, Claim)
        return self.store.commit(claim, outcome)

    def until_it_rests(self, name: str, is_bad: Callable[[int], bool]) -> list[int]:
        """A worker takes what it gets until nothing is left; return the numbers in that order."""
        taken = []
        while isinstance(claim := self.take(name), Claim):
            bad = is_bad(claim.trial.number)
            assert self.store.commit(claim, fails() if bad else PASSES) is CommitReply.DONE
            taken.append(claim.trial.number)
        return taken

    @property
    def held(self) -> str:
        return self.reader.sweeps.get(self.sid).why_held

    def demand(self) -> int:
        return int(self.store._redis.llen("hpq:demand:default"))  # type: ignore[arg-type]


@pytest.fixture
def crew(store: TrialStore, control: SweepControl, reader: StoreReader, sweep_of):
    def make(names: str, trials: int = 20, **fields: object) -> Crew:
        return Crew(store, control, reader, names, sweep_of(trials, **fields).id)

    return make


@pytest.mark.parametrize("names", ["aaaaa", "abaab"], ids=["the only worker", "two workers"])
def test_the_first_five_alike_hold_the_sweep(crew, names) -> None:
    it = crew("".join(sorted(set(names))))
    for name in names:
        assert it.held == ""
        it.one(name, fails())
    assert it.held == "5 of 5 trials failed: KeyError a.py:3"
    assert it.reader.sweeps.get(it.sid).state is SweepState.HELD
    assert it.take("a") == Nothing() and it.demand() == 0  # autoscalers start no worker for it


@pytest.mark.parametrize("names", ["a" * 10, "ab" * 5], ids=["the only worker", "two workers"])
def test_eight_of_the_last_ten_alike_hold_the_sweep(crew, names) -> None:
    it = crew("".join(sorted(set(names))), trials=30)
    for outcome in (PASSES, fails("another"), PASSES):
        it.one("a", outcome)
    for i, name in enumerate(names):
        if it.held:
            break
        it.one(name, PASSES if i == 4 else fails())
    assert it.held == "8 of 10 trials failed: KeyError a.py:3"
    assert it.reader.sweeps.get(it.sid).counts.failed == 9


def test_failures_that_differ_hold_nothing(crew) -> None:
    it = crew("a", trials=12)
    for i in range(12):
        it.one("a", fails(f"KeyError a.py:{i % 2}"))
    assert it.held == ""


def test_five_failures_of_one_worker_ask_another_before_the_sweep_is_held(crew) -> None:
    """F24: one worker fails five times alike before another has tried."""
    it = crew("ab")
    for _ in range(4):
        assert it.one("a", fails()) is CommitReply.DONE
    assert it.one("a", fails()) is CommitReply.SUSPECT
    assert it.held == "" and it.reader.sweeps.get(it.sid).counts.failed == 4
    assert it.one("b", fails()) is CommitReply.DONE  # the same trial: it is the code
    assert it.held == "6 of 6 trials failed: KeyError a.py:3"


def test_a_worker_that_fails_what_passes_elsewhere_gives_it_to_the_others(crew) -> None:
    """F24: one worker fails what passes on another; its commit is sent twice."""
    it = crew("ab")
    it.one("b", PASSES)
    it.one("b", PASSES)
    for _ in range(2):
        assert it.one("a", fails()) is CommitReply.DONE
    claim = it.take("a")
    assert it.store.commit(claim, fails()) is CommitReply.SUSPECT
    assert it.store.commit(claim, fails()) is CommitReply.ALREADY
    assert it.reader.trials.get(claim.trial).state is TrialState.QUEUED
    assert it.take("a").trial != claim.trial  # while b lives, a does not get it again
    again = it.take("b")
    assert again.trial == claim.trial
    assert it.store.commit(again, PASSES) is CommitReply.DONE
    assert it.one("a", fails()) is CommitReply.SUSPECT  # one more is proof enough
    assert it.held == ""


def test_a_worker_whose_trials_pass_again_is_under_no_suspicion(crew) -> None:
    it = crew("ab")
    it.one("b", PASSES)
    it.one("b", PASSES)
    for outcome in (fails(), fails(), PASSES, fails(), fails()):
        assert it.one("a", outcome) is CommitReply.DONE


@pytest.mark.parametrize(
    "peer", [{"state": "stopping"}, {"refuses": '{"demo-00000":"no"}'}, {"queue": "other"}]
)
def test_a_peer_that_cannot_take_the_sweep_is_no_witness(crew, redis, keys, peer) -> None:
    it = crew("ab")
    redis.hset(keys.worker("b"), mapping=peer)
    for _ in range(5):
        assert it.one("a", fails()) is CommitReply.DONE
    assert it.held == "5 of 5 trials failed: KeyError a.py:3"


def test_parameters_that_cannot_work_are_nobodys_fault(crew) -> None:
    it = crew("ab")
    for _ in range(8):
        assert it.one("a", fails("bad", FailureKind.BAD_PARAMS)) is CommitReply.DONE
    assert it.held == ""


def suspected(it: Crew, redis, keys, ago_s: int, **peer: str) -> Crew:
    """`a` has failed five times and is suspected since then; `b` is busy, or what `peer` says."""
    redis.hset(keys.worker("b"), mapping={"state": "busy", "trial": "other-00000/1", **peer})
    for _ in range(4):
        assert it.one("a", fails()) is CommitReply.DONE
    assert it.one("a", fails()) is CommitReply.SUSPECT
    since = int(redis.hget(keys.worker("a"), "suspect_ms") or 0)
    redis.hset(keys.worker("a"), "suspect_ms", since - 1000 * ago_s)
    return it


def test_a_peer_that_stays_busy_elsewhere_does_not_keep_a_failing_sweep_running(
    crew, redis, keys
) -> None:
    it = suspected(crew("ab"), redis, keys, ago_s=61)
    assert it.one("a", fails()) is CommitReply.DONE
    assert it.held == "6 of 6 trials failed: KeyError a.py:3"


@pytest.mark.parametrize(
    ("ago_s", "peer"), [(30, {}), (61, {"state": "idle"}), (61, {"trial": "demo-00000/20"})]
)
def test_a_peer_that_may_still_say_who_is_at_fault_is_waited_for(
    crew, redis, keys, ago_s, peer
) -> None:
    it = suspected(crew("ab"), redis, keys, ago_s, **peer)
    assert it.one("a", fails()) is CommitReply.SUSPECT
    assert it.held == ""


def test_who_passed_again_is_suspected_anew(crew, redis, keys) -> None:
    it = suspected(crew("ab", trials=30), redis, keys, ago_s=61)
    it.one("a", PASSES)
    for _ in range(4):
        it.one("a", fails())
    assert it.one("a", fails()) is CommitReply.SUSPECT


@pytest.mark.parametrize("verb", ["stop", "cancel"])
def test_what_fails_after_its_sweep_was_ended_is_not_tried_again(crew, verb) -> None:
    """Neither what has a try left, nor what a peer might show to be the worker's fault."""
    it = crew("ab")
    for _ in range(4):
        it.one("a", fails())
    first, second = it.take("a"), it.take("a")
    it.control.set(it.sid, {"retries": "3"})
    getattr(it.control, verb)(it.sid)
    assert it.store.commit(second, fails()) is CommitReply.DONE
    assert it.store.commit(first, fails("signal 9", FailureKind.KILLED)) is CommitReply.DONE
    assert it.reader.sweeps.get(it.sid).counts.queued == it.demand() == 0


def is_bad(number: int) -> bool:
    """24 of the first 511 trials fail whenever they run, 21 apart."""
    return number % 21 == 0 and number <= 511


def test_bad_trials_of_a_healthy_sweep_are_retried_last_and_do_not_stop_it(crew) -> None:
    it = crew("a", trials=600)
    taken = [it.take("a") for _ in range(511)]
    for claim in taken:
        it.store.commit(claim, fails() if is_bad(claim.trial.number) else PASSES)
    bad = [n for n in range(1, 512) if is_bad(n)]
    assert it.control.retry(it.sid, bad) == len(bad) == 24

    assert it.until_it_rests("a", is_bad) == [*range(512, 601), *bad]

    sweep = it.reader.sweeps.get(it.sid)
    assert sweep.state is SweepState.FINISHED and not sweep.hold and it.demand() == 0
    assert sweep.counts.finished == 576 and sweep.counts.failed == 24
    assert audit_sweep(it.reader, it.sid).violations == ()


def test_a_retry_that_passes_runs_to_its_end(crew) -> None:
    it = crew("a", trials=100)
    it.until_it_rests("a", lambda n: n % 5 == 0)
    bad = list(range(5, 101, 5))
    it.control.retry(it.sid, bad)
    assert it.until_it_rests("a", lambda n: n % 10 == 0) == bad
    assert it.reader.sweeps.get(it.sid).counts.failed == 10


def test_a_retry_does_not_hide_that_the_trials_of_the_sweep_fail(crew) -> None:
    it = crew("a")
    for _ in range(4):
        it.one("a", fails())
    it.control.retry(it.sid, range(1, 5))
    it.one("a", fails())
    assert it.held == "5 of 5 trials failed: KeyError a.py:3"
    it.control.retry(it.sid, [5])  # of a held sweep: it resumes, with a new window
    assert it.held == ""
    it.one("a", fails())
    assert it.held == ""


@pytest.mark.parametrize("restart", ["resume", "worker"])
def test_what_passed_before_a_restart_does_not_hide_a_broken_environment(crew, restart) -> None:
    it = crew("ab", trials=300)
    for _ in range(200):
        it.one("a", PASSES)
    it.store.absent(it.who["b"])
    if restart == "resume":
        it.control.pause(it.sid)
        it.control.resume(it.sid)
    else:
        it.store.absent(it.who["a"])
        it.store.present(it.who["a"], idle=True, lifetime_ms=3 * LEASE)
    for _ in range(5):
        assert it.held == ""
        it.one("a", fails())
    assert it.held == "5 of 5 trials failed: KeyError a.py:3"


def test_a_worker_that_starts_beside_another_begins_no_window(crew) -> None:
    it = crew("a")
    it.store.reap("default", lease_ms=LEASE, lost_max=3)  # as each live worker does
    for _ in range(3):
        it.one("a", PASSES)
    late = WorkerPresence(name="late", host="h", queue="default")
    it.store.present(late, idle=True, lifetime_ms=3 * LEASE)
    it.store.absent(late)
    for _ in range(7):
        it.one("a", fails())
    assert it.held == ""
    it.one("a", fails())
    assert it.held == "8 of 10 trials failed: KeyError a.py:3"


def test_workers_of_one_trial_each_hold_a_sweep_that_fails(crew) -> None:
    it = crew("a")
    for _ in range(5):
        assert it.held == ""
        it.one("a", fails())
        it.store.absent(it.who["a"])
        it.store.present(it.who["a"], idle=True, lifetime_ms=3 * LEASE)
    assert it.held == "5 of 5 trials failed: KeyError a.py:3"


LACKS = "the metric 'acc' was never reported; the trial reported Acc; did you mean 'Acc'?"


def lacks(state: TrialState = TrialState.FINISHED) -> Outcome:
    failure = Failure(kind=FailureKind.UNREPORTED, message=LACKS, fingerprint=LACKS)
    return Outcome(state=state, failure=failure)


@pytest.mark.parametrize("state", [TrialState.FINISHED, TrialState.FAILED])
def test_the_third_trial_without_the_metric_holds_a_sweep_that_nobody_reported(crew, state) -> None:
    it = crew("a")
    for i in range(3):
        assert it.held == ""
        if i == 1:
            it.one("a", Outcome(state=TrialState.PRUNED))
            it.one("a", Outcome(state=TrialState.CANCELLED))
        it.one("a", lacks(state))
    assert it.held.endswith(LACKS)
    it.control.resume(it.sid)  # once is enough
    for _ in range(4):
        it.one("a", lacks())
    assert it.held == ""


@pytest.mark.parametrize("seen", ["passed", "running", "diverged"])
def test_a_metric_that_one_trial_reported_holds_nothing(crew, seen) -> None:
    it = crew("ab")
    if seen == "running":
        beat(it.store, it.who["b"], it.take("b"), 1, 1, objective=0.5)
    else:
        it.one("b", PASSES if seen == "passed" else fails("nan", FailureKind.DIVERGED))
    for _ in range(4):
        it.one("a", lacks())
    assert it.held == ""


def test_retried_trials_without_the_metric_hold_nothing(crew) -> None:
    it = crew("a", trials=5)
    it.one("a", lacks())
    it.one("a", lacks())
    it.control.retry(it.sid, [1, 2])
    for _ in range(2):
        it.one("a", Outcome(state=TrialState.CANCELLED))
    it.one("a", Outcome(state=TrialState.CANCELLED))
    for _ in range(2):
        it.one("a", lacks())
    assert it.held == ""


@pytest.mark.parametrize("outcome", [fails(), lacks()], ids=["fail alike", "lack the metric"])
def test_a_paused_sweep_is_not_held_and_counts_failures_once_it_resumes(crew, outcome) -> None:
    it = crew("a")
    claims = [it.take("a") for _ in range(8)]
    it.control.pause(it.sid)
    for claim in claims:
        it.store.commit(claim, outcome)
    assert it.reader.sweeps.get(it.sid).state is SweepState.PAUSED
    it.control.retry(it.sid, [1])
    assert it.take("a") == Nothing(), "a retry does not end a pause"
    it.control.resume(it.sid)
    for _ in range(5 if outcome != lacks() else 3):
        assert it.held == ""
        it.one("a", outcome)
    assert it.held


def test_a_retry_of_a_held_sweep_that_was_stopped_begins_a_new_window(crew) -> None:
    it = crew("a")
    claims = [it.take("a") for _ in range(6)]
    for claim in claims[:5]:
        it.store.commit(claim, fails())
    it.control.stop(it.sid)
    it.control.retry(it.sid, [1])
    it.store.commit(claims[5], fails())
    assert it.reader.sweeps.get(it.sid).state is SweepState.RUNNING


def test_a_person_who_pauses_or_stops_a_held_sweep_decides_over_the_breaker(crew) -> None:
    it = crew("a")
    claims = [it.take("a") for _ in range(6)]
    for claim in claims[:5]:
        it.store.commit(claim, fails())
    hold = it.reader.sweeps.get(it.sid).hold
    assert hold == Hold(cause=Cause.ALIKE, text="5 of 5 trials failed: KeyError a.py:3")
    event = it.reader.events.read(it.sid)[-1]
    assert event.fields == {"id": "alike", "why": hold.text}
    it.control.pause(it.sid)
    it.control.retry(it.sid, [1])
    paused = it.reader.sweeps.get(it.sid)
    assert (paused.state, paused.hold, it.take("a")) == (SweepState.PAUSED, None, Nothing())
    it.control.stop(it.sid)
    stopping = it.reader.sweeps.get(it.sid)
    assert (stopping.state, stopping.is_stopped) == (SweepState.STOPPING, True)
    it.store.commit(claims[5], fails())
    assert it.reader.sweeps.get(it.sid).state is SweepState.FINISHED
