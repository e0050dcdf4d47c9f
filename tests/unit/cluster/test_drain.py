"""Which pods `hpq scale` and `hpq drain` let go beside a rollout, another queue, an autoscaler.

Pods and Deployments are as an API server wrote them (tests/data/kube); what it answers is played.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from hpq.errors import Held
from hpq_producer.cluster.objects import COST_ANNOTATION
from hpq_producer.cluster.scale.drain import keep_drained_pods, remove_drained_pods
from hpq_producer.cluster.scale.scale import Scaling
from tests.support.constants import DATA

SEEN: dict[str, Any] = json.loads((DATA / "kube" / "objects.json").read_text("utf-8"))


def pod(name: str, queue: str = "default", *, ready: bool = True, **more: Any) -> dict[str, Any]:
    """A pod of the ReplicaSet that its name begins with."""
    raw: dict[str, Any] = json.loads(json.dumps(SEEN["gpu"]))
    raw["metadata"] |= {"name": name, "labels": {"hpq/queue": queue}, "annotations": {}}
    raw["metadata"]["ownerReferences"][0]["name"] = name.rpartition("-")[0]
    raw["spec"]["nodeName"] = "n"
    condition = {"type": "Ready", "status": str(ready)}
    raw["status"] = {"phase": "Running", "conditions": [condition], **more.pop("status", {})}
    raw["metadata"] |= more
    return raw


def scaler(target: str, name: str) -> dict[str, Any]:
    """What KEDA makes for a Deployment."""
    return {
        "metadata": {"name": f"keda-hpa-{name}", "labels": {"scaledobject.keda.sh/name": name}},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": target}},
    }


def deployment(name: str, queue: str, replicas: int, updated: int) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads(json.dumps(SEEN["quota"]))
    raw["metadata"]["name"] = name
    raw["spec"]["replicas"] = replicas
    raw["spec"]["template"]["metadata"]["labels"]["hpq/queue"] = queue
    raw["status"] |= {"conditions": [], "replicas": replicas, "updatedReplicas": updated}
    return raw


class Server:
    """An API server with these pods; a change of scale takes those that `takes` names."""

    context, namespace, flags = "moon", "apollo", " --namespace apollo"

    def __init__(self, pods: list[dict[str, Any]], *, updated: int | None = None) -> None:
        queues = sorted({one["metadata"]["labels"]["hpq/queue"] for one in pods})
        self.pods, self.takes, self.costs = pods, set[str](), dict[str, Any]()
        self.deployments = []
        for queue in queues:
            many = [p for p in pods if p["metadata"]["labels"]["hpq/queue"] == queue]
            name = "hpq-worker" + ("" if queue == "default" else f"-{queue}")
            count = len(many) if updated is None else updated
            self.deployments.append(deployment(name, queue, len(many), count))
        self.asked, self.scalers = list[int](), list[dict[str, Any]]()

    def of(self, path: str) -> str:
        return path

    def get(self, path: str, **query: str) -> Any:
        found = {"apps/v1/deployments": self.deployments, "pods": self.pods}
        return {"items": self.scalers if "autoscaling" in path else found.get(path, [])}

    def patch(self, path: str, body: Any) -> None:
        if path.endswith("/scale"):
            self.asked.append(body["spec"]["replicas"])
            self.pods = [p for p in self.pods if p["metadata"]["name"] not in self.takes]
        else:
            name = path.removeprefix("pods/")
            self.costs[name] = body["metadata"]["annotations"][COST_ANNOTATION]
            for one in self.pods:
                if one["metadata"]["name"] == name:
                    one["metadata"]["annotations"] = {COST_ANNOTATION: self.costs[name] or "0"}


def scaling(server: Server, queue: str = "default") -> Scaling:
    return Scaling(server, None, None, queue)  # type: ignore[arg-type]


HALFWAY = [pod("hpq-worker-old-a"), pod("hpq-worker-new-b", ready=False)]


@pytest.mark.parametrize(
    "server",
    [
        Server(HALFWAY),
        Server([pod("hpq-worker-old-a"), pod("hpq-worker-old-b")], updated=0),  # none made yet
    ],
)
def test_while_a_rollout_is_under_way_no_pods_are_chosen_since_the_choice_would_not_hold(
    server: Server,
) -> None:
    with pytest.raises(Held) as told:
        scaling(server).plan(1)
    command = "kubectl --context moon -n apollo rollout status deployment/hpq-worker"
    assert command in str(told.value)
    assert [len(scaling(server).plan(n).going) for n in (0, 2, 3)] == [2, 0, 0]


def test_what_a_rollout_of_another_class_does_is_no_matter() -> None:
    server = Server([*HALFWAY, pod("hpq-worker-big-x-a", "big"), pod("hpq-worker-big-x-b", "big")])
    assert len(scaling(server, "big").plan(1).going) == 1


def test_chosen_pods_that_stay_are_answered_and_lose_their_cost() -> None:
    server = Server([pod(f"hpq-worker-x-{n}") for n in "abc"])
    plan = scaling(server).plan(2)
    (chosen,) = (one.name for one in plan.going)
    other = next(one["metadata"]["name"] for one in server.pods if not_it(one, chosen))
    server.takes = {other}
    assert scaling(server).apply(plan) == {chosen} and server.asked == [2]
    assert server.costs[chosen] is None


def not_it(one: dict[str, Any], name: str) -> bool:
    return bool(one["metadata"]["name"] != name)


def drained(server: Server, *pods: str) -> str:
    """The line that `hpq drain` says of these pods of one queue, whose workers are done."""
    (line,) = remove_drained_pods(server, None, pods)  # type: ignore[arg-type]
    return line


def test_an_autoscaler_removes_a_drained_pod_first_until_undo() -> None:
    server = Server([pod("hpq-worker-x-a"), pod("hpq-worker-x-b")])
    server.scalers = [scaler("hpq-worker", "few")]
    line = drained(server, "hpq-worker-x-a")
    assert line.startswith("hpq-worker-x-a: ") and "ScaledObject few" in line
    assert "hpq drain hpq-worker-x-a --namespace apollo --undo" in line
    cost = server.costs.pop("hpq-worker-x-a")
    assert -(2**31) <= int(cost) < -100_000 and (server.costs, server.asked) == ({}, [])
    keep_drained_pods(server, {"hpq-worker-x-b"})  # type: ignore[arg-type]
    assert server.costs == {}
    keep_drained_pods(server, {"hpq-worker-x-a", "hpq-worker-x-b"})  # type: ignore[arg-type]
    assert server.costs == {"hpq-worker-x-a": None}


def test_a_drained_pod_is_not_let_go_while_a_rollout_would_take_another_in_its_place() -> None:
    server = Server([*HALFWAY, pod("hpq-worker-old-c")])
    line = drained(server, "hpq-worker-old-c")
    assert line.startswith("hpq-worker-old-c: ") and "rollout" in line
    assert "hpq drain hpq-worker-old-c --namespace apollo" in line and not server.asked
