"""Workers that a person told to take nothing: what the scripts make of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpq.domain.attempt import Nothing, Outcome
from hpq.domain.trial import Claim, TrialState
from hpq.store.control import SweepControl
from tests.support.ids import ids

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


def test_a_drain_waits_and_says_what_still_runs_or_how_the_pods_go(
    hpq_process, store, reader, who, sweep_of, control: SweepControl
) -> None:
    pod = replace(who, fields={"pod": "hpq-worker-7f-abc"})
    sweep_of(1)
    got = claim(store, pod)
    store.present(pod, idle=False, lifetime_ms=600_000)
    # A worker is live for a lease, and the command may start later than one of 30 s.
    env = {"HPQ_LEASE_S": "600"}
    done = hpq_process("drain", "hpq-worker", "--timeout", "0.5", **env)
    assert done.returncode == 5, done.stderr
    last = done.stderr.splitlines()[-1]
    assert ids(last) == ["timed-out"] and f"{who.name} ({got.trial})" in last
    assert "`hpq drain w1`" in last and "--undo" in last
    store.present(pod, idle=False, lifetime_ms=600_000)  # the command may take longer than a lease
    assert [w.state for w in reader.workers.live()] == ["draining"]
    assert hpq_process("drain", "w1", "--timeout", "-1", **env).returncode == 2

    store.commit(got, Outcome(state=TrialState.FINISHED, objective=1.0, step=1))
    store.present(pod, idle=True, lifetime_ms=600_000)
    done = hpq_process("drain", "hpq-worker-7f", **env)
    assert done.returncode == 0, done.stderr
    cost = "annotate pod hpq-worker-7f-abc controller.kubernetes.io/pod-deletion-cost=-1"
    assert cost in done.stderr and "scale deployment/hpq-worker --replicas=N" in done.stderr
    assert control.drain("nobody") is None
