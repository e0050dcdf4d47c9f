"""What `hpq doctor --cluster` says to do, by what the API server answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpq.kubernetes.pods import read_cluster
from hpq_ops.doctor.checkup import Finding
from hpq_ops.doctor.cluster import _redis, _workers, keys_agree
from tests.support.kube_api import KubeApi, pod, workers

KUBECTL = "kubectl --context moon -n apollo"


QUOTA = (
    'pods "p" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2'
)


def of_workers(*deployments: Any, pods: Sequence[Any] = ()) -> list[Finding]:
    """What is found of the workers."""
    api: Any = KubeApi({"deployments": list(deployments), "pods": list(pods)}, "moon", "apollo")
    return list(_workers(api, read_cluster(api)))


def test_workers_that_do_not_run_are_wrong_and_those_that_start_or_are_not_wanted_are_not() -> None:
    well, none = workers(1, ready=1, queue="small"), workers(0, queue="none")
    found = of_workers(well, none, workers(3, queue="big", refusal=QUOTA))
    assert [(one.level, one.code) for one in found] == [
        ("good", "pods"),
        ("good", "pods"),
        ("note", "scaled-to-0"),
        ("wrong", "pods-refused"),
    ]
    assert f"{KUBECTL} get events" in found[-1].what  # which hpq's Roles permit
    (starts,) = of_workers(workers(1), pods=[pod("p1", phase="Pending")])
    assert (starts.level, starts.code) == ("note", "pods-starting")
    waiting = {"name": "worker", "state": {"waiting": {"reason": "ErrImagePull"}}, "image": "no:1"}
    broken = pod("p1", phase="Pending", containerStatuses=[waiting])
    (wrong,) = of_workers(workers(3, ready=2), pods=[broken])
    assert (wrong.level, wrong.code) == ("wrong", "pod-trouble")
    assert f"{KUBECTL} describe pod p1" in wrong.what


def test_of_a_redis_that_is_not_ready_it_is_told_what_makes_it_so() -> None:
    def of_redis(*pods: dict[str, Any]) -> list[Finding]:
        claims = [
            {"metadata": {"name": name}, "status": {"phase": "Pending"}}
            for name in ("data-hpq-redis-0", "of-another-application")
        ]
        has = {"pods": list(pods), "events": events, "persistentvolumeclaims": claims}
        return list(_redis(KubeApi(has, "moon", "apollo")))  # type: ignore[arg-type]

    mount = {
        "reason": "FailedMount",
        "message": 'MountVolume.SetUp failed for volume "tls" : secret "hpq-redis-tls" not found',
    }
    events = [
        mount,
        {"reason": "ProvisioningFailed", "message": 'storageclass "nope" not found'},
        {"reason": "FailedCreate", "message": f"create Pod hpq-redis-0 failed error: {QUOTA}"},
    ]
    none, claim = of_redis()
    assert (none.code, claim.code) == ("redis-pod-missing", "volume-unbound")
    assert "quota few" in none.what and '"nope"' in claim.what
    assert f"{KUBECTL} delete statefulset/hpq-redis pvc/data-hpq-redis-0" in claim.remedy
    assert none.remedy.endswith(f"; {KUBECTL} describe statefulset hpq-redis")
    old, _ = of_redis(pod("hpq-redis-0", phase="Pending"))
    assert old.code == "redis-pod-not-ready" and '"hpq-redis-tls"' in old.what
    assert f"{KUBECTL} delete pod hpq-redis-0" in old.remedy
    ready = pod("hpq-redis-0", conditions=[{"type": "Ready", "status": "True"}])
    assert [one.code for one in of_redis(ready)] == ["volume-unbound"]


def test_a_claim_that_waits_for_its_pod_is_no_problem_of_its_own() -> None:
    claim = {"metadata": {"name": "data-hpq-redis-0"}, "status": {"phase": "Pending"}}
    message = 'pods "hpq-redis-0" is forbidden: failed quota: few: must specify limits.cpu for: a'
    events = [{"reason": "FailedCreate", "message": message}]
    has = {"pods": [], "events": events, "persistentvolumeclaims": [claim]}
    (missing,) = _redis(KubeApi(has, "moon", "apollo"))  # type: ignore[arg-type]
    assert missing.code == "redis-pod-missing"
    assert "without limits.cpu, quota few refuses the pod" in missing.what
    assert "cpu_limit" in missing.remedy


def test_another_code_key_than_that_of_the_workers_is_told() -> None:
    told = keys_agree("a", "other")
    assert told is not None and told.code == "code-key-differs"
    assert "HPQ_CODE_KEY" in told.remedy
