"""Trials that do not meet the constraints: they keep their result, and no ranking has them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpq.domain.attempt import HeartbeatReply, Outcome
from hpq.domain.constraint import Constraint
from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import EarlyTerminate, Goal, Metric, SweepState, TerminationRule
from hpq.domain.trial import TrialId, TrialState, TrialView
from hpq.store.wire.row import encode_new
from hpq_ops.audit.sweep_audit import audit_sweep
from tests.support.store_calls import LEASE, beat, take

SID = "demo-00000"
ACC, MS = Metric(name="acc", goal=Goal.MAXIMIZE), Metric(name="ms")
BOUND = (Constraint.parse("gb <= 24"),)


def outcome(value: float, violation: float, **more: object) -> Outcome:
    scores = {"violations": (violation,), "infeasible": violation > 0}
    return Outcome(state=TrialState.FINISHED, objective=value, **{**scores, **more})  # type: ignore[arg-type]


def ranked(reader) -> list[int]:
    return [trial.id.number for trial in reader.ranking.best(reader.sweeps.get(SID), 9)]


@pytest.mark.parametrize("replicates", [1, 2])
def test_only_trials_that_meet_the_constraints_are_ranked(
    store, reader, sweep_of, who, control, replicates
) -> None:
    sweep_of(4, constraints=BOUND, objectives=(ACC, MS), replicates=replicates)
    ends = [outcome(0.9, 0.5, values=(0.9, 7.0)), outcome(0.8, 0.0), outcome(0.7, -3.0)]
    for end in (*ends, outcome(0.6, 0.1, violations=(), infeasible=True)):
        store.commit(take(store, who, f"n{end.objective}"), end)
    if replicates == 1:
        assert ranked(reader) == [2, 3]
    assert [t.objective for t in reader.trials.all(SID)] == [0.9, 0.8, 0.7, 0.6]
    told = [e.fields for e in reader.events.read(SID) if e.what == "finished"]
    assert told[0]["values"] == "0.9 7.0" and told[0]["violations"] == "0.5"
    assert "values" not in told[1] and "violations" not in told[3]
    assert [bool(fields.get("infeasible")) for fields in told] == [True, False, False, True]
    assert not audit_sweep(reader, SID).violations
    control.retry(SID, [1])
    store.commit(take(store, who, "again"), outcome(0.95, -1.0))
    assert 1 in ranked(reader) and not audit_sweep(reader, SID).violations


def test_a_target_is_reached_by_a_trial_that_meets_the_constraints(
    store, reader, sweep_of, who
) -> None:
    sweep_of(3, constraints=BOUND, metric=replace(ACC, target=0.9))
    claims = [take(store, who, str(n)) for n in range(2)]
    for claim in claims:
        beat(store, who, claim, 1, 1)  # reports 1.0
    assert reader.sweeps.get(SID).reached is None
    store.commit(claims[0], outcome(1.0, 2.0))
    assert reader.sweeps.get(SID).reached is None
    store.commit(claims[1], outcome(1.0, 0.0))
    assert reader.sweeps.get(SID).state is SweepState.FINISHED
    assert reader.sweeps.get(SID).reached.trial == 2 and not audit_sweep(reader, SID).violations


def test_a_pruned_trial_whose_worker_is_lost_is_not_ranked(
    store, reader, sweep_of, who, redis, keys
) -> None:
    rule = EarlyTerminate(rule=TerminationRule.HYPERBAND, bands=(1,), eta=2)
    sweep_of(3, constraints=BOUND, early=rule)
    good, other, bad = (take(store, who, str(n)) for n in range(3))
    for claim in (good, other):
        beat(store, who, claim, 1, 2)
    assert beat(store, who, bad, 1, 1, objective=1.0) is HeartbeatReply.PRUNE
    redis.zadd(keys.leases, {str(bad.trial): 0})
    redis.hset(keys.trial(bad.trial), "beat_ms", 1)  # long ago
    store.reap("default", lease_ms=LEASE, lost_max=3)
    store.commit(good, outcome(2.0, 0.0))
    assert reader.trials.get(bad.trial).state is TrialState.PRUNED
    assert ranked(reader) == [1] and not audit_sweep(reader, SID).violations


def test_a_reused_result_is_checked_against_the_new_constraints(reader, sweep_of, writer) -> None:
    """Its values are those of the metrics that the older trial reported."""
    plain = sweep_of(1, "plain-00000")
    sweep = replace(plain, id=SID, digest="d", constraints=BOUND, objectives=(ACC, MS))
    done = [
        TrialView(
            id=TrialId(sweep="old-00000", number=n), state=TrialState.FINISHED, params={},
            attempt=1, objective=0.5, metrics={"acc": 0.5, "ms": 3.0, "gb": gb},
        )
        for n, gb in ((1, 32.0), (2, 16.0))
    ]  # fmt: skip
    rows = [encode_new(ParameterSet(x=x), 0) for x in (1, 2)]
    writer.add_rows(SID, 1, rows)
    writer.stage_results(sweep, enumerate(done, 1))
    assert writer.create(sweep) is None
    assert ranked(reader) == [2] and not audit_sweep(reader, SID).violations
    told = {e.trial: e.fields for e in reader.events.read(SID) if e.what == "reused"}
    assert {n: fields["violations"] for n, fields in told.items()} == {1: "8.0", 2: "-8.0"}
    assert {fields["values"] for fields in told.values()} == {"0.5 3.0"}
