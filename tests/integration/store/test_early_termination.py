"""Early termination on the real scripts, against the answers of W&B's own package."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from itertools import count
from random import Random
from typing import Any

import pytest

from hpq.domain.attempt import HeartbeatReply, Nothing, Outcome, Reason, ReportBatch, WorkerPresence
from hpq.domain.stored_state import TargetReached
from hpq.domain.sweep import EarlyTerminate, Goal, Metric, SweepState, TerminationRule
from hpq.domain.trial import Checkpoint, Claim, Failure, FailureKind, Point, TrialId, TrialState
from hpq.store.control import SweepControl
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from hpq.yamlfile.strict_model import value_of
from hpq_ops.audit.sweep_audit import audit_sweep
from hpq_producer.sweepfile.model import CommonKeys
from tests.support.constants import DATA

ORACLE = json.loads((DATA / "oracle" / "hyperband.json").read_text("utf-8"))
STRIDE = 5  # of the cases: some of each kind
LEASE, SID = 30_000, "demo-00000"
OK, PRUNE = HeartbeatReply.OK, HeartbeatReply.PRUNE


class Bench:
    """Trials of one sweep that report one value at a time."""

    def __init__(self, store: TrialStore, reader: StoreReader) -> None:
        self.store, self.reader = store, reader
        self.who = WorkerPresence(name="w", host="h", queue="default")
        self.claims: dict[int, Claim] = {}
        self._seq: dict[int, int] = {}
        self._nonces, self._steps = count(), count(1)

    def claim(self) -> int:
        """The number of the trial that was claimed."""
        got = self.store.claim(self.who, nonce=f"n{next(self._nonces)}", lease_ms=LEASE)
        assert isinstance(got, Claim)
        n = got.trial.number
        self.claims[n], self._seq[n] = got, 0
        return n

    def log(
        self, n: int, *values: float, step: int = 0, more: Mapping[str, Any] | None = None
    ) -> HeartbeatReply:
        """Report values in one batch, and once more as a client does that got no answer.

        Each has a step of its own, of whatever size, unless one is given for all.
        """
        self._seq[n] += 1
        points = tuple(
            Point(step=step or next(self._steps), name="acc", value=value) for value in values
        )
        batch = ReportBatch(seq=self._seq[n], objective=values[-1], points=points, **(more or {}))
        first = self.store.beat(self.claims[n], self.who, batch, lease_ms=LEASE)
        again = self.store.beat(self.claims[n], self.who, batch, lease_ms=LEASE)
        assert again == first
        return first

    def silent(self, n: int) -> HeartbeatReply:
        """Beat without anything new."""
        batch = ReportBatch(seq=self._seq[n])
        return self.store.beat(self.claims[n], self.who, batch, lease_ms=LEASE)

    def end(self, n: int, state: TrialState, value: float | None = None) -> None:
        """Commit."""
        self.store.commit(self.claims[n], Outcome(state=state, objective=value))

    def trial(self, n: int) -> Any:
        """The trial as readers see it."""
        return self.reader.trials.get(TrialId(sweep=SID, number=n))


@pytest.fixture
def bench(store: TrialStore, reader: StoreReader) -> Bench:
    store.reap("default", lease_ms=LEASE, lost_max=3)
    return Bench(store, reader)


def rule_of(keys: Any) -> TerminationRule:
    """Return the rule of a sweep file's early_terminate."""
    return value_of(CommonKeys, "early_terminate", keys).rule()  # type: ignore[no-any-return]


def number(value: object) -> float:
    return math.nan if value is None else float(str(value))


def test_the_bands_are_those_of_wandb() -> None:
    for one in ORACLE["configs"]:
        if one["bands"] is not None:
            known = sorted(set(one["bands"]))
            ours = [band for band in rule_of(one["early_terminate"]).bands if band <= 10_000]
            assert ours == known, one


def test_stops_are_those_of_wandb_in_any_order_of_reports(
    bench: Bench, sweep_of: Callable[..., Any], redis: Any
) -> None:
    """Every case of the oracle: what had been reported decides, not the order in which it came."""
    seen = 0
    for index in range(0, len(ORACLE["cases"]), STRIDE):
        case = ORACLE["cases"][index]
        redis.flushall()
        goal = Goal(case["goal"])
        rule, runs = rule_of(case["early_terminate"]), case["runs"]
        sweep_of(len(runs), SID, metric=Metric(name="acc", goal=goal), early=rule)
        order = [i for i, run in enumerate(runs) for _ in run["values"]]
        Random(index).shuffle(order)
        places = {bench.claim(): i for i in range(len(runs))}
        numbers = {i: n for n, i in places.items()}
        left = [list(run["values"]) for run in runs]
        for i in order:
            # Nobody is stopped on the way: the oracle was asked when all had been reported.
            redis.hdel(f"hpq:t:{SID}/{numbers[i]}", "stop", "pruning")
            bench.log(numbers[i], number(left[i].pop(0)))
        for i, run in enumerate(runs):
            redis.hdel(f"hpq:t:{SID}/{numbers[i]}", "stop", "pruning")
            if not run["running"]:
                bench.end(numbers[i], TrialState.FINISHED, 1.0)
        for i, run in enumerate(runs):
            if run["running"]:
                seen += 1
                verdict = bench.silent(numbers[i])
                assert (verdict is PRUNE) == (i in case["stopped"]), (case, i)
                why = bench.trial(numbers[i]).pruning
                if why:
                    assert [why.band, why.value, why.threshold] == case["why"][i]
    assert seen


def rule(**more: Any) -> EarlyTerminate:
    return EarlyTerminate(
        **{"rule": TerminationRule.HYPERBAND, "bands": (1, 2, 4), "eta": 2.0} | more
    )


def test_the_files_rules_have_their_defaults() -> None:
    assert rule_of({"type": "hyperband", "min_iter": 3}).strict  # as W&B's schema fills it in
    asha = rule_of({"type": "asha", "max_iter": 64})
    assert (asha.bands, asha.eta) == ((1, 4, 16), 4.0)
    median = rule_of({"type": "median", "min_iter": 15})
    assert median.bands[:6] == (15, 16, 18, 20, 22, 24) and median.min_trials == 5
    assert len(median.bands) < 200 and median.bands[-1] <= 2**20


def test_asha_keeps_the_best_of_a_rung_as_they_come(bench, sweep_of) -> None:
    """Optuna's: at a rung the best n // eta of those that came so far go on, at least one."""
    sweep_of(5, early=rule(rule=TerminationRule.ASHA))
    one, two, three, four, five = (bench.claim() for _ in range(5))
    assert bench.log(one, 0.5) is OK  # nobody else is there
    assert bench.log(two, 0.4) is PRUNE  # 2 // 2: the best one
    assert bench.log(three, 0.45) is PRUNE  # 3 // 2
    assert bench.log(four, 0.5) is OK  # it ties with the second of 4 // 2
    assert bench.log(five, 0.9) is OK
    assert bench.silent(one) is OK and bench.log(one, 0.1) is OK  # alone at the second rung
    why = bench.trial(three).pruning
    assert (why.rule, why.band, why.rank, why.n) == ("asha", 1, 2, 3)
    assert (why.threshold, why.value) == (0.5, 0.45)


@pytest.mark.parametrize("goal", Goal)
def test_asha_stops_whom_optuna_stops(bench, sweep_of, goal) -> None:
    optuna = pytest.importorskip("optuna")
    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction=goal.value, pruner=pruner)
    early = rule_of({"type": "asha", "eta": 3})
    sweep_of(200, metric=Metric(name="acc", goal=goal), early=early)
    rng, theirs, stopped = Random(7), {}, 0
    for _ in range(200):  # one of them goes on, or another begins
        if len(theirs) < 5:
            theirs[bench.claim()] = study.ask()
        n = rng.choice(sorted(theirs))
        step, value = theirs[n].user_attrs.get("at", 0) + 1, round(rng.random(), 2)
        theirs[n].set_user_attr("at", step)
        theirs[n].report(value, step)
        should = theirs[n].should_prune()
        assert bench.log(n, value) is (PRUNE if should else OK), (n, step, value)
        if should:
            stopped += 1
            bench.end(n, TrialState.PRUNED, value)
            study.tell(theirs.pop(n), state=optuna.trial.TrialState.PRUNED)
    assert stopped > 20


def test_the_median_rule_asks_for_enough_others(bench, sweep_of) -> None:
    sweep_of(5, early=rule(rule=TerminationRule.MEDIAN, min_trials=3))
    trials = [bench.claim() for _ in range(5)]
    for n, value in zip(trials[:3], (0.3, 0.2, 0.1), strict=True):
        assert bench.log(n, value) is OK
    assert bench.log(trials[3], 0.2) is OK  # as good as the median
    assert bench.log(trials[4], 0.19) is PRUNE  # of 0.1 0.2 0.2 0.3
    assert bench.trial(trials[4]).pruning.threshold == 0.2
    assert bench.log(trials[0], 0.3) is OK  # three others at its second value: none


def test_values_that_are_no_numbers_and_batches_sent_twice_count_once(
    bench, sweep_of, redis
) -> None:
    sweep_of(1, early=rule())
    n = bench.claim()
    bench.log(n, math.nan, 0.5, math.inf, -math.inf, 0.25)
    assert redis.hmget(f"hpq:t:{SID}/{n}", "logged", "best") == [b"2", b"0.5"]
    assert redis.zrange(f"hpq:s:{SID}:band:2", 0, -1, withscores=True) == [(b"1", 0.25)]


def test_values_at_one_step_count_once_as_a_row_of_wandbs_history(bench, sweep_of, redis) -> None:
    sweep_of(1, early=rule(strict=False))
    n = bench.claim()
    bench.log(n, 0.5, 0.9, 0.4, step=3)  # the better one is gone with its row: `best` forgets it
    assert redis.hmget(f"hpq:t:{SID}/{n}", "logged", "best") == [b"1", b"0.4"]
    assert bands(redis) == {1: [(b"1", 0.4)]}
    bench.log(n, 0.6, step=4)
    bench.log(n, 0.3, step=4)  # also in another batch
    assert redis.hmget(f"hpq:t:{SID}/{n}", "logged", "best") == [b"2", b"0.4"]
    assert bands(redis) == {1: [(b"1", 0.4)], 2: [(b"1", 0.3)]}
    bench.log(n, 0.2, step=3)  # only the step before counts: another fold may begin again at 0
    assert redis.hget(f"hpq:t:{SID}/{n}", "logged") == b"3"


def bands(redis: Any) -> dict[int, list[tuple[bytes, float]]]:
    found = {b: redis.zrange(f"hpq:s:{SID}:band:{b}", 0, -1, withscores=True) for b in (1, 2, 4)}
    return {band: rows for band, rows in found.items() if rows}


def test_an_attempt_that_goes_on_from_a_checkpoint_counts_no_value_twice(
    bench, sweep_of, redis, store
) -> None:
    sweep_of(1, early=rule(strict=False))
    n = bench.claim()
    at = Checkpoint(store="s", path="p", step=7, best=0.1, counts={"acc": 2}, logged=1)
    bench.log(n, 0.1)
    bench.log(n, 0.2, 0.3, 0.9, more={"checkpoint": at})
    assert bands(redis) == {1: [(b"1", 0.1)], 2: [(b"1", 0.2)], 4: [(b"1", 0.9)]}
    store.release(bench.claims[n], Reason.STOPPING)
    assert bench.claim() == n
    assert bands(redis) == {1: [(b"1", 0.1)]}
    bench.log(n, 0.25)
    assert bands(redis) == {1: [(b"1", 0.1)], 2: [(b"1", 0.25)]}
    assert redis.hget(f"hpq:t:{SID}/1", "best") == b"0.25"
    bench.log(n, 0.4, more={"restarted": "another run begins", "kept_step": 7})
    assert bands(redis) == {1: [(b"1", 0.1)], 2: [(b"1", 0.4)]}
    bench.log(n, 0.5, more={"restarted": "its checkpoint is gone"})
    assert bands(redis) == {1: [(b"1", 0.5)]}


def test_what_a_trial_logged_goes_when_it_begins_anew(
    bench, sweep_of, redis, store, control: SweepControl
) -> None:
    sweep_of(1, early=rule())
    n = bench.claim()
    bench.log(n, 0.1, 0.2)
    store.release(bench.claims[n], Reason.STOPPING)
    assert bench.claim() == n and bands(redis) == {}
    bench.log(n, 0.3)
    bench.end(n, TrialState.FINISHED, 0.3)
    assert bands(redis) == {1: [(b"1", 0.3)]}
    assert control.retry(SID, [n]) == 1 and bands(redis) == {}


@pytest.fixture
def told(bench: Bench, sweep_of: Callable[..., Any]) -> Bench:
    """Trial 2 was told to stop."""
    sweep_of(3, early=rule(rule=TerminationRule.ASHA))
    bench.claim(), bench.claim()
    at = Checkpoint(store="s", path="p", step=7, logged=1)
    assert bench.log(1, 0.5) is OK and bench.log(2, 0.4, more={"checkpoint": at}) is PRUNE
    return bench


@pytest.mark.parametrize("how", ["commit", "release", "reap"])
def test_a_trial_that_was_told_to_stop_ends_pruned_also_without_its_worker(
    told, store, reader, redis, keys, how, control: SweepControl
) -> None:
    if how == "commit":
        told.end(2, TrialState.PRUNED, 0.4)
    elif how == "release":
        store.release(told.claims[2], Reason.STOPPING)
    else:
        redis.zadd(keys.leases, {f"{SID}/2": 0})
        redis.hset(f"hpq:t:{SID}/2", "beat_ms", 1)  # long ago
        store.reap("default", lease_ms=LEASE, lost_max=3)
    trial = told.trial(2)
    assert (trial.state, trial.objective, trial.pruning.rank) == (TrialState.PRUNED, 0.4, 2)
    assert [t.id.number for t in reader.ranking.best(reader.sweeps.get(SID), 5)] == [2]
    assert how == "commit" or trial.best == 0.4
    assert trial.checkpoint is None  # it came to its end
    events = [e for e in reader.events.read(SID) if e.trial == 2]
    assert [e.what for e in events] == ["claimed", "prune", "pruned"]
    assert json.loads(events[1].fields["why"])["threshold"] == 0.5
    told.end(1, TrialState.FINISHED, 0.5)
    control.cancel(SID)
    assert not audit_sweep(reader, SID).violations


def test_a_trial_that_finished_before_it_heard_is_finished(told) -> None:
    told.end(2, TrialState.FINISHED, 0.4)
    assert told.trial(2).state is TrialState.FINISHED and told.trial(2).pruning


def test_a_failure_of_a_trial_that_was_told_to_stop_is_not_tried_again(
    told, store, control: SweepControl
) -> None:
    failure = Failure(kind=FailureKind.KILLED, message="m")
    control.set(SID, {"retries": "3"})
    store.commit(told.claims[2], Outcome(state=TrialState.FAILED, failure=failure))
    assert told.trial(2).state is TrialState.FAILED


def test_a_removed_sweep_leaves_nothing_of_its_bands(
    told, store, redis, control: SweepControl
) -> None:
    assert redis.exists(f"hpq:s:{SID}:band:1")
    control.remove(SID)
    assert not redis.keys(f"hpq:[st]:{SID}*")


TARGET = Metric(name="acc", goal=Goal.MAXIMIZE, target=0.9)


def test_a_value_that_reaches_the_target_ends_the_sweep(
    bench, sweep_of, store, reader, redis, control: SweepControl
) -> None:
    sweep_of(6, metric=TARGET)
    control.retry(SID, [])
    bench.claim(), bench.claim(), bench.claim()
    store.release(bench.claims[3], Reason.STOPPING)  # it waits, and was claimed before
    bench.log(1, math.nan, math.inf, 0.89)
    assert reader.sweeps.get(SID).state is SweepState.RUNNING
    assert bench.log(1, 0.9, 0.95) is OK
    sweep = reader.sweeps.get(SID)
    assert (sweep.counts.queued, sweep.counts.cancelled, sweep.counts.running) == (0, 4, 2)
    assert (sweep.state, sweep.reached) == (
        SweepState.STOPPING,
        TargetReached(trial=1, value=0.9, target=0.9),
    )
    assert redis.llen("hpq:demand:default") == 2
    assert store.claim(bench.who, nonce="x", lease_ms=LEASE) == Nothing()
    store.release(bench.claims[2], Reason.STOPPING)  # it may end, but does not start again
    bench.end(1, TrialState.FINISHED, 0.95)
    assert reader.sweeps.get(SID).state is SweepState.FINISHED
    assert [e.what for e in reader.events.read(SID) if e.trial == 1].count("target") == 1
    assert not audit_sweep(reader, SID).violations
    control.retry(SID, [4, 5])
    assert reader.sweeps.get(SID).reached is None and bench.claim() == 4
    bench.log(4, 0.95)
    assert reader.sweeps.get(SID).state is SweepState.RUNNING, "a retry goes beyond the target"
    assert bench.claim() == 5


def test_a_retry_goes_beyond_the_target_also_if_a_person_stopped_the_sweep_since(
    bench, sweep_of, reader, control: SweepControl
) -> None:
    sweep_of(3, metric=TARGET)
    bench.claim(), bench.claim()
    bench.log(1, 0.95)
    control.stop(SID)
    control.retry(SID, [3])
    assert bench.claim() == 3
    bench.log(2, 0.95)
    assert reader.sweeps.get(SID).state is SweepState.RUNNING


def test_a_result_from_a_workers_disk_reaches_the_target_too(bench, sweep_of, reader) -> None:
    sweep_of(3, metric=Metric(name="acc", target=0.1))
    bench.claim()
    bench.end(1, TrialState.FINISHED, 0.05)
    assert reader.sweeps.get(SID).state is SweepState.FINISHED
    assert reader.sweeps.get(SID).reached.trial == 1
    told = [event.what for event in reader.events.of_trial(TrialId(sweep=SID, number=1))]
    assert told == ["claimed", "finished", "target"]
    assert not audit_sweep(reader, SID).violations
