"""`sweep.ask` and `sweep.tell`: the caller runs trials; results that cannot count are refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pytest
from redis import Redis

import hpq
from hpq.domain.attempt import Nothing, Outcome, Reason, ReportBatch, WorkerPresence
from hpq.domain.trial import Claim
from hpq.reporting import MAX_NAMES
from hpq.store.control import SweepControl
from hpq.store.keys import Keys
from hpq.store.trials import TrialStore
from hpq_ops.audit.sweep_audit import audit_sweep
from tests.support.desk import Desk
from tests.support.ids import raises
from tests.support.store_calls import Shelf, beat, claimed, end

Take = Callable[[], Claim | Nothing]
SWEEP = {
    "program": "train.py",
    "method": "grid",
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {"x": {"values": (1, 2, 3)}},
}


@pytest.fixture(autouse=True)
def server(desk: Desk) -> Desk:
    """Every call of the API discovers the tests' server from the environment, as commands do."""
    return desk


def test_asked_trials_are_run_by_the_caller_and_told_once(
    desk: Desk, store: TrialStore, take: Take, redis: Redis, who: WorkerPresence
) -> None:
    sweep = hpq.enqueue(SWEEP)
    first, second = sweep.ask(), sweep.ask()
    assert first is not None and second is not None
    assert (first.params, second.params, first.state) == ({"x": 1}, {"x": 2}, "running")
    worker = claimed(take)
    assert worker.trial.number == 3 and sweep.ask() is None
    assert list(desk.reader.workers.live("default")) == []  # a caller is none
    for bad, code in ((math.nan, "invalid-value"), ({"acc": 1.0}, "invalid-value")):
        with raises(code, "loss"):
            sweep.tell(first, bad)
    sweep.tell(first, {"loss": 0.5, "acc": 0.75})
    sweep.tell(second, failed="no data \x1b[31m")
    end(store, worker, 0.25)
    assert {*redis.scan_iter("hpq:w:*")} == {f"hpq:w:{who.name}".encode()}
    assert sweep.state == "finished"
    ended = sweep.trials()
    assert [(t.state, t.objective) for t in ended] == [
        ("finished", 0.5), ("failed", None), ("finished", 0.25),
    ]  # fmt: skip
    assert ended[0].last == {"loss": 0.5, "acc": 0.75} and list(ended[0].history()["value"])
    assert ended[1].failure is not None and "no data" in ended[1].failure.message
    for trial in (first, ended[2]):
        with raises("usage"):
            sweep.tell(trial, 0.1)
    assert audit_sweep(desk.reader, sweep.id).violations == ()


def test_an_asked_trial_whose_lease_ends_is_asked_again_and_told_by_the_second(desk: Desk) -> None:
    sweep, other = hpq.enqueue(SWEEP), hpq.Sweep()
    first = sweep.ask(lease_s=0.001)
    second = other.ask()
    assert first is not None and second is not None and first.number == second.number == 1
    with raises("attempt-lost"):
        sweep.tell(first, 0.5)
    other.tell(second, 0.25)
    assert sweep[1].objective == 0.25 and len(sweep[1].attempts()) == 2
    assert audit_sweep(desk.reader, sweep.id).violations == ()


def test_a_caller_gets_signed_parameters_only_and_no_trial_of_a_paused_sweep(
    desk: Desk, redis: Redis, keys: Keys, control: SweepControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = hpq.enqueue(SWEEP)
    for lease_s in (0, -1, math.nan, math.inf):
        with raises("usage"):
            sweep.ask(lease_s=lease_s)
    control.pause(sweep.id)
    assert sweep.ask() is None
    control.resume(sweep.id)
    row = redis.hget(keys.sweep(sweep.id, "params"), 1)
    redis.hset(keys.sweep(sweep.id, "params"), 1, row.replace(b"1}", b"9}"))
    with raises("parameters-altered"):
        sweep.ask()
    got = sweep.ask()
    assert got is not None and got.params == {"x": 2}
    late = hpq.enqueue({**SWEEP, "method": "bayes", "name": "late"})
    with raises("no-worker"):
        late.ask()
    monkeypatch.setenv("HPQ_CODE_KEY", "another key of a colleague")
    with raises("code-key-differs"):
        sweep.ask()


@pytest.mark.parametrize(
    "result",
    [
        {"loss": 0.5, "": 5.0},
        {"loss": 0.5, " ": 5.0},
        {"loss": 0.5, "#usage": 5.0},
        {"loss": 0.5, "a\nb": 5.0},
        {"loss": 0.5, "a" * 65: 5.0},
        {"loss": 0.5, "acc": 10**400},
        {"loss": 0.5, "acc": None},
        {"loss": 0.5, **{f"m{n}": 0.0 for n in range(MAX_NAMES)}},
        10**400,
        "low",
    ],
)
def test_a_result_that_a_worker_could_not_report_is_refused_and_can_be_told_again(
    result: float | Mapping[str, float],
) -> None:
    sweep = hpq.enqueue(SWEEP)
    trial = sweep.ask()
    assert trial is not None
    with raises("invalid-value"):
        sweep.tell(trial, result)
    assert sweep[1].state == "running"
    sweep.tell(trial, {"loss": 0.5, "val": {"top 1": 0.75}})
    assert list(sweep.history()["metric"]) == ["loss", "val.top 1"]


def test_ask_leaves_trials_that_begin_at_a_checkpoint_to_workers(
    desk: Desk, store: TrialStore, who: WorkerPresence, take: Take, shelf: Shelf
) -> None:
    sweep = hpq.enqueue({**SWEEP, "keep": {"best": 2}})
    claim = claimed(take)
    beat(store, who, claim, 1, 30, checkpoint=shelf.put(claim, "checkpoint-1"))
    end(store, claim, 0.5, step=30)
    sweep.add({"x": 2}, start_from=1)
    sweep.add({"x": 7}, outside=True)
    asked = [sweep.ask() for _ in range(4)]
    assert [one and one.number for one in asked] == [2, 3, 5, None]
    assert sweep[4].state == "queued" and sweep[4].attempts() == []
    claim = claimed(take)
    assert claim.trial.number == 4
    store.release(claim, Reason.STOPPING)
    assert sweep.ask() is None and sweep[4].state == "queued"
    assert audit_sweep(desk.reader, sweep.id).violations == ()


@pytest.mark.parametrize("told", [{"result": 0.5}, {"failed": "no data"}])
def test_tell_says_that_a_result_does_not_count_if_the_trial_was_cancelled_meanwhile(
    desk: Desk, store: TrialStore, told: Mapping[str, object]
) -> None:
    sweep = hpq.enqueue(SWEEP)
    trial = sweep.ask(lease_s=0.001)
    assert trial is not None
    later_ms = desk.reader.now_ms() + 60_000
    store.reap("default", lease_ms=1, lost_max=3, as_of_ms=later_ms)
    assert sweep[1].state == "queued"
    sweep.cancel(1)
    with raises("attempt-lost", "cancelled"):
        sweep.tell(trial, **told)
    assert (sweep[1].state, sweep[1].objective) == ("cancelled", None)


@pytest.mark.parametrize(
    ("told", "state"), [({"result": 0.5}, "finished"), ({"failed": "no data"}, "queued")]
)
def test_a_result_whose_acknowledgement_was_lost_can_be_told_again(
    told: Mapping[str, object], state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = hpq.enqueue({**SWEEP, "retries": 1})
    trial = sweep.ask()
    assert trial is not None
    commit = TrialStore.commit

    def lose(
        self: TrialStore, claim: Claim, outcome: Outcome, last: ReportBatch | None = None
    ) -> None:
        commit(self, claim, outcome, last)
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(TrialStore, "commit", lose)
        with pytest.raises(ConnectionError):
            sweep.tell(trial, **told)
    sweep.tell(trial, **told)
    assert sweep[1].state == state


def test_a_trial_of_another_sweep_is_not_told_in_place_of_that_with_its_number() -> None:
    sweep, other = hpq.enqueue(SWEEP), hpq.enqueue({**SWEEP, "parameters": {"x": {"value": 4}}})
    trial = sweep.ask()
    assert trial is not None
    with raises("usage", other.id):
        sweep.tell(other.trial(1), 9.0)
    assert (sweep[1].state, other[1].state) == ("running", "queued")
    sweep.tell(trial, 0.5)
    assert sweep[1].objective == 0.5
