"""What `hpq doctor --cluster` says to do, by what the API server answers."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import pytest

from hpq.errors import Forbidden, NotFound
from hpq_producer.cluster.pods import read_cluster
from hpq_producer.doctor.cluster import _rights, keys_agree
from hpq_producer.doctor.local import Finding
from hpq_producer.doctor.workloads import redis_checkup, workers_checkup

KUBECTL = "kubectl --context moon -n apollo"


class Server:
    """An API server that has these objects, and lets nobody do what `forbids` names."""

    context, namespace, flags = "moon", "apollo", " --namespace apollo"

    def __init__(self, has: dict[str, Any], forbids: Collection[str] = ()) -> None:
        self._has, self._forbids = has, forbids

    def of(self, path: str) -> str:
        return path.rpartition("/v1/")[2]

    def get(self, path: str, **query: str) -> Any:
        if path.startswith("secrets/"):
            raise Forbidden("may not")
        if path not in self._has:
            raise NotFound(f"{path} not found")
        found = self._has[path]
        return {"items": found} if isinstance(found, list) else found

    def allows(self, verb: str, resource: str, name: str = "") -> bool:
        return (name or resource) not in self._forbids


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


def refused(of: str, at: str, message: str) -> dict[str, Any]:
    """The event of a pod that could not be made."""
    return {
        "involvedObject": {"kind": "ReplicaSet", "name": f"{of}-5c9f"},
        "reason": "FailedCreate",
        "message": f"Error creating: {message}",
        "lastTimestamp": at,
    }


QUOTA = (
    'pods "p" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2'
)
RANGE = 'pods "p" is forbidden: maximum memory usage per Container is 512Mi, but limit is 2Gi'
POLICY = 'pods "p" is forbidden: violates PodSecurity "restricted:latest"'


def of_workers(has: dict[str, Any], level: str) -> list[Finding]:
    """What is found of the workers, of one level."""
    api: Any = Server({"pods": [], "events": [], "/api/v1/nodes": [], **has})
    return [one for one in workers_checkup(api, read_cluster(api)) if one.level == level]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            QUOTA,
            [
                f"{KUBECTL} edit resourcequota few",
                "hpq scale 2 --queue big --namespace apollo",
            ],
        ),
        (RANGE, [f"{KUBECTL} describe limitrange", "hpq-worker-big"]),
        (POLICY, [f"{KUBECTL} describe replicaset -l a=b"]),
    ],
)
def test_a_refused_pod_is_reported_with_the_remedy(said: str, words: list[str]) -> None:
    raw = deployment("hpq-worker-big", "big", said)
    (found,) = of_workers({"deployments": [raw]}, "wrong")
    assert all(word in found.remedy for word in words), found.remedy


def test_the_newest_of_several_refusals_is_reported() -> None:
    raws = [deployment("hpq-worker", "default", QUOTA), deployment("hpq-worker-big", "big", QUOTA)]
    events = [
        refused("hpq-worker", "2026-01-01T00:00:02Z", RANGE),
        refused("hpq-worker", "2026-01-01T00:00:01Z", QUOTA),
        refused("hpq-worker-big", "2026-01-01T00:00:03Z", QUOTA),
    ]
    small, big = of_workers({"deployments": raws, "events": events}, "wrong")
    assert {small.code, big.code} == {"pods-refused"}
    assert "memory" in small.what and "quota few" in big.what


def test_only_pods_that_read_a_configmap_are_older_than_its_change() -> None:
    has = {
        "deployments": [deployment("hpq-worker", "default", settings="s-2")],
        "pods": [
            pod("before", "s-1", "2026-01-01T00:00:00Z"),
            pod("old", "s-2", "2026-01-01T00:00:00Z"),
            pod("new", "s-2", "2026-01-01T00:00:02Z"),
        ],
        "configmaps/s-2": {"metadata": {"managedFields": [{"time": "2026-01-01T00:00:01Z"}]}},
    }
    (told,) = of_workers(has, "poor")
    assert told.code == "settings-stale" and " old " in told.what
    assert told.remedy == f"{KUBECTL} rollout restart deployment/hpq-worker"


def of_redis(pods: list[dict[str, Any]], events: list[dict[str, Any]], port: str) -> Finding:
    """What is found of a Redis with no ready pod."""
    sts = {
        "metadata": {"name": "hpq-redis"},
        "spec": {"volumeClaimTemplates": [{}]},
        "status": {"updateRevision": "new"},
    }
    has = {
        "statefulsets": [sts], "pods": pods, "events": events, "persistentvolumeclaims": [],
        "services/hpq-redis": {"spec": {"ports": [{"name": port}]}},
    }  # fmt: skip
    (found,) = redis_checkup(Server(has))  # type: ignore[arg-type]
    return found


def test_of_a_redis_that_is_not_ready_it_is_told_what_makes_it_so() -> None:
    none = of_redis([], [], "redis")
    assert none.code == "redis-pod-missing"
    assert none.remedy == f"{KUBECTL} describe statefulset hpq-redis"

    mount = {
        "reason": "FailedMount",
        "message": 'MountVolume.SetUp failed for volume "tls" : secret "hpq-redis-tls" not found',
    }
    made = pod("hpq-redis-0", phase="Pending")
    made["metadata"]["labels"] = {"controller-revision-hash": "old"}
    old = of_redis([made], [mount], "redis")
    assert old.remedy == f"{KUBECTL} delete pod hpq-redis-0"
    assert old.code == "redis-pod-not-ready" and '"hpq-redis-tls"' in old.what

    made["metadata"]["labels"] = {"controller-revision-hash": "new"}
    assert "hpq manifests --secrets --with tls" in of_redis([made], [mount], "rediss").remedy
    other = of_redis([made], [], "redis")
    assert other.remedy == f"{KUBECTL} describe pod hpq-redis-0"


SECRETS = {"hpq-redis-producer", "hpq-code-key"}


def rights(*forbids: str) -> dict[str, list[Finding]]:
    """What is found of credentials that may all but these, by level."""
    found = list(_rights(Server({}, forbids)))  # type: ignore[arg-type]
    return {level: [one for one in found if one.level == level] for level in ("good", "poor")}


def test_a_viewer_is_told_how_to_look_and_whom_to_ask_for_more() -> None:
    found = rights(*SECRETS, "apps:deployments/scale")
    assert "rights-viewer" in [one.code for one in found["good"]]
    assert [one.code for one in found["poor"]] == ["rights-missing"] * 2
    code, scale = (one.what for one in found["poor"])
    assert "hpq enqueue" in code and "hpq scale" in scale
    assert not any("viewer" in one.remedy for one in found["poor"])
    assert rights()["poor"] == []


def test_who_may_nothing_is_told_both_roles() -> None:
    found = rights(*SECRETS, "hpq-redis-viewer")
    assert {"hpq-operator", "hpq-viewer"} <= set(re.findall(r"hpq-\w+", found["poor"][0].remedy))


def test_another_code_key_is_told_with_the_connection_that_has_the_right_one() -> None:
    told = keys_agree("a", b"other", " --namespace apollo")
    assert told is not None and told.code == "code-key-differs"
    assert "hpq connect --namespace apollo" in told.remedy
