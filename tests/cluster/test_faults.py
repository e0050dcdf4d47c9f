"""What happens to pods: nothing is lost, nothing is charged, and trials go on from checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cluster.place import Laptop, Namespace
from tests.cluster.steered import Steered

NEVER_MS = 4_000_000_000_000  # a time that no clock shows in this century


@pytest.fixture
def steered(namespace: Namespace, laptop: Laptop) -> Steered:
    """Sweeps that go on until the test says so."""
    return Steered(namespace, laptop)


def assert_nothing_charged(laptop: Laptop, sid: str) -> None:
    """Every trial finished, and no attempt counted against one."""
    for trial in laptop.trials(sid):
        assert trial.state == "finished", trial
        fields = laptop.redis.hkeys(laptop.keys.trial(trial.id))
        assert not [f for f in fields if f.startswith(b"c:")], (trial, fields)


def test_scaling_up_and_down_in_a_sweep_loses_nothing(steered: Steered) -> None:
    namespace, laptop = steered.namespace, steered.laptop
    sid = steered.enqueue(4)
    steered.wait_running(sid, 1)
    namespace.scale(3)
    assert len(set(steered.wait_running(sid, 3).values())) == 3
    namespace.scale(1)
    (left,) = namespace.wait_ready(1)
    steered.go(sid)
    laptop.wait_over(sid)
    assert_nothing_charged(laptop, sid)
    given_back = [n for n in range(1, 5) if "requeued" in laptop.events(sid, n)]
    assert len(given_back) == 2, given_back
    assert all(left in laptop.trial(sid, n).worker for n in given_back)
    laptop.ok("get", f"{sid}/{given_back[0]}", "model.txt", HPQ_STORE=str(steered.volume))
    assert int((laptop.code / "model.txt").read_text()) >= 3


def evict(namespace: Namespace, pod: str) -> None:
    """What `kubectl drain` sends for each pod of its node."""
    wanted = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace.name},
    }
    path = f"/api/v1/namespaces/{namespace.name}/pods/{pod}/eviction"
    namespace.kubectl("create", "--raw", path, "-f", "-", given=json.dumps(wanted))


CRASH = "a crash of all its processes"
FAULTS: dict[str, Callable[[Namespace, str], object]] = {
    CRASH: lambda n, pod: n.kill(pod),
    "deletion with grace": lambda n, pod: n.kubectl("delete", "pod", pod, "--wait=false"),
    "deletion without grace": lambda n, pod: n.kubectl(
        "delete", "pod", pod, "--grace-period=0", "--force"
    ),
    "the eviction of a drain": evict,
    "a rollout": lambda n, pod: n.kubectl("rollout", "restart", "deployment/hpq-worker"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_trial_goes_on_from_its_checkpoint_after(fault: str, steered: Steered) -> None:
    namespace, laptop = steered.namespace, steered.laptop
    (pod,) = namespace.wait_ready(1)
    sid = steered.enqueue(1)
    (number,) = steered.wait_running(sid, 1)
    laptop.wait_until(lambda: laptop.trial(sid, number).checkpoint, "a checkpoint")
    FAULTS[fault](namespace, pod)
    if fault == CRASH:  # the container that starts again in the pod does not await the lease's end
        laptop.redis.zadd(laptop.keys.leases, {f"{sid}/{number}": NEVER_MS}, xx=True)
    laptop.wait_until(lambda: laptop.trial(sid, number).attempt > 1, "another attempt")
    steered.go(sid)
    laptop.wait_over(sid)
    assert_nothing_charged(laptop, sid)
    assert "requeued" in laptop.events(sid, number)
    log = laptop.ok("logs", f"{sid}/{number}")
    assert "begins at" in log and not log.rstrip().endswith("begins at 0"), log
    (after,) = namespace.wait_ready(1)
    # A container that ends is started again in its pod; what is deleted or evicted gets a new one.
    assert (after == pod) == (fault == CRASH)


def test_an_update_and_its_rollback_lose_nothing(steered: Steered) -> None:
    """A setting is changed, since an image of its own takes minutes."""
    namespace, laptop = steered.namespace, steered.laptop
    change = ("set", "env", "deployment/hpq-worker", "HPQ_LOG=debug")
    namespace.scale(2)
    sid = steered.enqueue(4)
    pods = set(steered.wait_running(sid, 2).values())
    for words in (change, ("rollout", "undo", "deployment/hpq-worker")):
        namespace.kubectl(*words)
        namespace.rolled_out("deployment/hpq-worker")
        of_new_pods = lambda: len(now := set(steered.running(sid).values()) - pods) == 2 and now  # noqa: E731, B023
        pods |= laptop.wait_until(of_new_pods, "two trials in new pods")
    steered.go(sid)
    laptop.wait_over(sid)
    assert_nothing_charged(laptop, sid)
