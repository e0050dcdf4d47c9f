"""Workers that a person told to take nothing: what the scripts make of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpq.domain.attempt import Nothing, Outcome
from hpq.domain.trial import Claim, TrialState
from hpq.store.control import SweepControl
from hpq_producer.cluster.scale.scale import Scaling
from tests.support.ids import ids
from tests.unit.cluster.test_drain import Server, pod

LEASE = 30_000
DRAINED = Nothing(is_drained=True)


@pytest.fixture
def present(store, who):
    """The worker has said that it is there."""
    store.present(who, idle=True, lifetime_ms=600_000)
    return who


def claim(store, who, nonce: str = "n"):
    return store.claim(who, nonce=nonce, lease_ms=LEASE)


def test_a_drained_worker_gets_nothing_counts_as_no_idle_one_and_can_be_let_again(
    store, reader, redis, keys, sweep_of, present, control: SweepControl
) -> None:
    idle = keys.queue("default", "idle")
    assert control.drain(present.name) == "" and redis.zcard(idle) == 0
    sweep_of(1)
    assert claim(store, present) == DRAINED
    store.present(present, idle=True, lifetime_ms=600_000)
    assert redis.zcard(idle) == 0 and reader.workers.live()[0].state == "drained"
    assert control.drain(present.name, undo=True) == ""
    assert isinstance(claim(store, present), Claim) and reader.workers.live()[0].state == "busy"


def test_a_drain_answers_the_trial_that_runs_whatever_the_worker_says_of_itself(
    store, reader, sweep_of, present, control: SweepControl
) -> None:
    sweep_of(2)
    got = claim(store, present)
    store.present(present, idle=True, lifetime_ms=600_000)  # written before it had the answer
    assert control.drain(present.name) == control.drain(present.name) == str(got.trial)
    assert claim(store, present) == got  # a reply that was lost is still answered
    assert claim(store, present, "other") == DRAINED
    store.commit(got, Outcome(state=TrialState.FINISHED, objective=1.0, step=1))
    assert control.drain(present.name) == ""


def test_a_drain_for_a_while_ends_by_itself_and_nobody_is_drained_who_is_not_there(
    store, redis, keys, sweep_of, present, control: SweepControl
) -> None:
    sweep_of(1)
    assert control.drain("nobody") is None
    control.drain(present.name, lasts_ms=60_000)
    assert claim(store, present) == DRAINED
    redis.hset(keys.worker(present.name), "drain", "1")  # a time long past
    assert isinstance(claim(store, present), Claim)


def test_a_drain_with_a_timeout_says_what_still_runs_and_how_to_go_on(
    hpq_process, store, reader, who, sweep_of, tmp_path
) -> None:
    (tmp_path / "kubeconfig").write_text(
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: []\n"
        "contexts: [{name: lab, context: {cluster: c}}]\ncurrent-context: lab\n"
    )
    pod = replace(who, fields={"pod": "hpq-worker-7f-abc"})
    sweep_of(1)
    got = claim(store, pod)
    store.present(pod, idle=False, lifetime_ms=600_000)
    # The kubernetes library reads KUBECONFIG when it is imported: in a process of its own. The API
    # server is not asked while all workers are busy.
    # A worker is live for a lease, and the command may start later than one of 30 s.
    env = {"KUBECONFIG": str(tmp_path / "kubeconfig"), "HPQ_LEASE_S": "600"}
    done = hpq_process("drain", "hpq-worker", "--timeout", "0.5", **env)
    assert done.returncode == 5, done.stderr
    last = done.stderr.splitlines()[-1]
    assert ids(last) == ["timed-out"] and f"{who.name} ({got.trial})" in last
    assert "`hpq drain w1`" in last and "--undo" in last
    store.present(pod, idle=False, lifetime_ms=600_000)  # the command may take longer than a lease
    assert [w.state for w in reader.workers.live()] == ["draining"]
    assert hpq_process("drain", "w1", "--timeout", "-1", **env).returncode == 2


def test_a_pod_that_is_handed_a_trial_after_it_was_chosen_stays_while_another_is_idle(
    store, control: SweepControl, reader, sweep_of, who
) -> None:
    names = [f"hpq-worker-x-{n}" for n in "abc"]
    crew = {
        name: replace(who, name=f"{name}-1", fields={"pod": name, "state": "idle"})
        for name in names
    }
    for worker in crew.values():
        store.present(worker, idle=True, lifetime_ms=LEASE)
    scaling = Scaling(Server([pod(name) for name in names]), reader, control, "default")
    plan = scaling.plan(2)
    (chosen,) = (one.name for one in plan.going)
    sweep_of(1)
    got = claim(store, crew[chosen])
    store.present(crew[chosen], idle=True, lifetime_ms=LEASE)  # it says so too late

    new = scaling.drain(plan)
    (other,) = (one.name for one in new.going)
    assert other != chosen and new.trials == [] and list(new.busy) == [chosen]
    states = {worker.pod: worker.state for worker in reader.workers.live()}
    assert states[other] == "drained"
    assert sorted(state for name, state in states.items() if name != other) == ["idle", "idle"]

    all_of_them = scaling.drain(scaling.plan(0))
    assert all_of_them.going[-1].name == chosen and all_of_them.trials == [str(got.trial)]
