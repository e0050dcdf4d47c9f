"""The key keda with the real KEDA: a pod a trial that runs or could start, none at last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis.exceptions import RedisError

from hpq.domain.sweep import SweepState
from tests.cluster.conftest import Images, MakeNamespace
from tests.cluster.kube import Cluster, alone, wait_for
from tests.cluster.place import Laptop, Namespace

PACE_S = 15  # between two pods that go
COOL_S = 4

SLEEPS = """
    name: sleeps
    code: .
    command: [sleep, "3600"]
    method: grid
    parameters:
      x: {values: [1, 2, 3]}
"""
FAILS = """
    name: fails
    code: .
    program: fails.py
    method: grid
    parameters:
      x: {min: 1, max: 20}
"""


def quicker(objects: list[dict[str, Any]]) -> None:
    """The scaler of the component, looking more often and waiting less."""
    (scaler,) = (one["spec"] for one in objects if one["kind"] == "ScaledObject")
    scaler |= {"pollingInterval": 1, "cooldownPeriod": COOL_S}
    down = scaler["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    down["stabilizationWindowSeconds"] = 0
    (policy,) = down["policies"]
    assert policy["value"] == 1
    policy["periodSeconds"] = PACE_S


@pytest.fixture(scope="module")
def keda(cluster: Cluster) -> None:
    """KEDA is there."""
    if not cluster.kubectl("get", "namespace", "keda", "--ignore-not-found"):
        with alone():
            cluster.testcluster("keda")


@pytest.fixture(scope="module")
def scaled(keda: None, make_namespace: MakeNamespace, images: Images) -> Namespace:
    made = make_namespace()
    made.deploy(images.worker, keys="keda: {max_pods: 3}", replicas=None, change=quicker)
    return made


@pytest.fixture(scope="module")
def user(make_laptop: Callable[[Namespace], Laptop], scaled: Namespace) -> Laptop:
    return make_laptop(scaled)


def wanted(namespace: Namespace) -> int:
    """How many pods the autoscaler wants just now."""
    return int(namespace.get("deployment", "hpq-worker")["spec"]["replicas"])


def wait_wanted(namespace: Namespace, count: int) -> None:
    wait_for(lambda: wanted(namespace) == count, f"{count} replicas", tell=namespace.tell)


def test_pods_come_with_the_queue_and_the_last_goes_after_the_last_trial(
    scaled: Namespace, user: Laptop
) -> None:
    wait_wanted(scaled, 0)
    sid = user.enqueue(SLEEPS)
    user.wait_until(lambda: user.reader.sweeps.get(sid).counts.running == 3, "three trials run")
    assert wanted(scaled) == 3

    user.ok("cancel", f"{sid}/1", f"{sid}/2", "--yes")  # at once: one after the other takes time
    seen = [3]

    def is_one() -> bool:
        seen.append(wanted(scaled))
        return seen[-1] == 1

    user.wait_until(is_one, "one pod")
    assert sorted(set(seen), reverse=True) == [3, 2, 1]  # at the policy's pace, one at a time

    # Redis is away for longer than the scaler would wait to go to none; the trial runs on.
    user.wait_until(lambda: user.reader.sweeps.get(sid).counts.running == 1, "the last trial runs")
    attempt = user.trial(sid, 3).attempt
    scaled.kubectl("scale", "statefulset/hpq-redis", "--replicas=0")
    wait_for(
        lambda: "error" in str(scaler_condition(scaled, "Ready")).lower(), "KEDA sees the outage"
    )
    assert wanted(scaled) == 1
    scaled.kubectl("scale", "statefulset/hpq-redis", "--replicas=1")
    scaled.rolled_out("statefulset/hpq-redis")
    wait_for(lambda: is_reached(user), "Redis is reached again")
    seen_now = (user.trial(sid, 3).attempt, wanted(scaled))
    assert seen_now == (attempt, 1), [
        user.redis.llen(user.keys.demand("default")),
        *user.reader.events.read(sid),
        scaled.kubectl("-n", "keda", "logs", "deploy/keda-operator", "--tail=40", ok=False),
    ]

    user.ok("cancel", f"{sid}/3", "--yes")
    wait_wanted(scaled, 0)
    user.wait_over(sid)


def is_reached(user: Laptop) -> bool:
    """True where Redis answers; a port-forward ends with its pod, which shows at the next use."""
    try:
        user.forward()
        return bool(user.redis.ping())
    except RedisError:
        return False


def scaler_condition(namespace: Namespace, kind: str) -> dict[str, str]:
    """What KEDA says of the scaler."""
    conditions = namespace.get("scaledobject", "hpq-worker")["status"]["conditions"]
    return next(c for c in conditions if c["type"] == kind)


def test_no_pod_comes_for_what_is_paused_held_or_over_its_limit(
    scaled: Namespace, user: Laptop
) -> None:
    wait_wanted(scaled, 0)
    capped = user.enqueue(SLEEPS.replace("sleeps", "capped\n    max_parallel: 1"))
    user.wait_until(lambda: user.reader.sweeps.get(capped).counts.running == 1, "one trial runs")
    assert wanted(scaled) == 1  # two more wait
    user.ok("pause", capped)
    user.ok("cancel", f"{capped}/1", "--yes")
    wait_wanted(scaled, 0)
    assert user.reader.sweeps.get(capped).counts.queued == 2  # and that is no reason

    user.write("fails.py", "raise KeyError('x')\n")
    held = user.enqueue(FAILS)
    user.wait_until(lambda: user.reader.sweeps.get(held).state is SweepState.HELD, "it is held")
    wait_wanted(scaled, 0)
    assert user.reader.sweeps.get(held).counts.queued > 0

    user.ok("resume", capped)
    user.wait_until(lambda: user.reader.sweeps.get(capped).counts.running == 1, "it goes on")
    for sid in (capped, held):
        user.ok("cancel", sid, "--yes")
        user.wait_over(sid)
