"""What `hpq doctor --cluster` says to do, by what the API server answers."""

from __future__ import annotations

from typing import Any

from hpq.errors import Forbidden, NotFound
from hpq_producer.cluster.pods import read_cluster
from hpq_producer.doctor.cluster import _redis, _workers, keys_agree
from hpq_producer.doctor.local import Finding

KUBECTL = "kubectl --context moon -n apollo"


class Server:
    """An API server that has these objects."""

    context, namespace = "moon", "apollo"

    def __init__(self, has: dict[str, Any]) -> None:
        self._has = has

    def of(self, path: str) -> str:
        return path.rpartition("/v1/")[2]

    def get(self, path: str, **query: str) -> Any:
        if path.startswith("secrets/"):
            raise Forbidden("may not")
        if path not in self._has:
            raise NotFound(f"{path} not found")
        found = self._has[path]
        return {"items": found} if isinstance(found, list) else found


def pod(name: str, settings: str = "", made: str = "", **status: Any) -> dict[str, Any]:
    """A worker's pod as the API has it."""
    reads = [{"configMapRef": {"name": settings}}] if settings else []
    return {
        "metadata": {"name": name, "creationTimestamp": made, "labels": {}},
        "spec": {"containers": [{"name": "worker", "envFrom": reads}]},
        "status": {"phase": "Running", **status},
    }


def deployment(name: str, queue: str, refusal: str = "", settings: str = "") -> dict[str, Any]:
    """A Deployment of workers, one of whose pods may be refused."""
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}
    template = pod("t", settings)
    template["metadata"]["labels"] = {"hpq/queue": queue}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template},
        "status": {
            "replicas": 2, "readyReplicas": 2,
            "conditions": [{**condition, "message": refusal}] if refusal else [],
        },
    }  # fmt: skip


QUOTA = (
    'pods "p" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2'
)


def of_workers(has: dict[str, Any], level: str) -> list[Finding]:
    """What is found of the workers, of one level."""
    api: Any = Server({"pods": [], "events": [], **has})
    return [one for one in _workers(api, read_cluster(api)) if one.level == level]


def test_a_refused_pod_is_reported_with_the_reason() -> None:
    raws = [deployment("hpq-worker", "default"), deployment("hpq-worker-big", "big", QUOTA)]
    (big,) = of_workers({"deployments": raws}, "wrong")
    assert big.code == "pods-refused" and "quota few" in big.what
    assert "quota" in big.remedy and big.remedy.endswith(
        f"{KUBECTL} get events --field-selector type=Warning"  # which hpq's Roles permit
    )


def test_a_pod_that_does_not_work_is_told_with_what_to_do() -> None:
    waiting = {"name": "worker", "state": {"waiting": {"reason": "ErrImagePull"}}, "image": "no:1"}
    broken = pod("hpq-worker-x-a", phase="Pending", containerStatuses=[waiting])
    (told,) = of_workers(
        {"deployments": [deployment("hpq-worker", "default")], "pods": [broken]}, "wrong"
    )
    assert told.code == "pod-trouble" and "no:1" in told.what
    assert "imagePullSecrets" in told.remedy
    assert told.remedy.endswith(f"{KUBECTL} describe pod hpq-worker-x-a")


def test_of_a_redis_that_is_not_ready_it_is_told_what_makes_it_so() -> None:
    def of_redis(*pods: dict[str, Any]) -> list[Finding]:
        claims = [
            {"metadata": {"name": name}, "status": {"phase": "Pending"}}
            for name in ("data-hpq-redis-0", "of-another-application")
        ]
        has = {"pods": list(pods), "events": events, "persistentvolumeclaims": claims}
        return list(_redis(Server(has)))  # type: ignore[arg-type]

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
    (missing,) = _redis(Server(has))  # type: ignore[arg-type]
    assert missing.code == "redis-pod-missing"
    assert "without limits.cpu, quota few refuses the pod" in missing.what
    assert "cpu_limit" in missing.remedy


def test_another_code_key_than_that_of_the_workers_is_told() -> None:
    told = keys_agree("a", "other")
    assert told is not None and told.code == "code-key-differs"
    assert "HPQ_CODE_KEY" in told.remedy
