"""Applying again: what it leaves alone, and what it takes back. No worker needs to start."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.cluster.conftest import MakeNamespace
from tests.cluster.kube import wait_for
from tests.cluster.place import Namespace
from tests.support.constants import ROOT

WORDS = ("--create-namespace", "--gpus", 0, "--image", "docker.io/library/hpq-worker:none")


@pytest.fixture
def installed(make_namespace: MakeNamespace) -> Namespace:
    """Redis, ready, and a Deployment of no pods."""
    made = make_namespace()
    made.apply(made.manifests(*WORDS))
    made.scale(0)
    made.apply(made.manifests("--secrets"))
    made.rolled_out("statefulset/hpq-redis")
    return made


def test_an_apply_leaves_the_count_of_pods_as_it_was_scaled(installed: Namespace) -> None:
    installed.apply(installed.manifests(*WORDS, keys="settings: {HPQ_LOG: debug}"))
    assert installed.get("deployment", "hpq-worker")["spec"]["replicas"] == 0


def test_an_apply_takes_back_a_change_that_redis_cannot_start_with(installed: Namespace) -> None:
    installed.apply(installed.manifests(*WORDS, keys="tls: true"))  # and no Secret hpq-redis-tls
    redis = "app.kubernetes.io/name=hpq-redis"
    wait_for(lambda: not installed.ready(redis), "Redis to be replaced", tell=installed.tell)
    wait_for(lambda: len(installed.pods(redis)) == 1, "its new pod", tell=installed.tell)
    installed.apply(installed.manifests(*WORDS))
    installed.rolled_out("statefulset/hpq-redis")
    assert installed.ready(redis)


def test_a_server_side_apply_takes_over_without_a_conflict_and_no_apply_leaves_a_difference(
    installed: Namespace,
) -> None:
    """What Argo CD and Flux need, where somebody began with `kubectl apply`."""
    text = yaml.safe_dump_all(installed.manifests(*WORDS))
    kubectl = installed.cluster.kubectl
    assert kubectl("diff", "-f", "-", given=text) == ""
    kubectl("apply", "--server-side", "-f", "-", given=text)
    assert kubectl("diff", "-f", "-", given=text) == ""
    assert kubectl("diff", "--server-side", "-f", "-", given=text) == ""
    assert installed.get("deployment", "hpq-worker")["spec"]["replicas"] == 0


def test_a_prune_deletes_what_the_file_no_longer_has_and_nothing_else(
    installed: Namespace,
) -> None:
    """As the page about GitOps has it; Argo CD and Flux delete the same."""
    page = (ROOT / "docs" / "guides" / "kubernetes.md").read_text("utf-8")
    (command,) = re.findall(r"kubectl -n research apply (--prune .*?) -f -", page, re.DOTALL)
    more = "egress: true\nqueues: {default: {gpus: 0}, big: {gpus: 0}}"
    installed.apply(installed.manifests(*WORDS, keys=more))
    installed.kubectl("scale", "deployment/hpq-worker-big", "--replicas=0")
    kinds = "deployments,statefulsets,networkpolicies,poddisruptionbudgets,roles,secrets,services"

    def names() -> set[str]:
        return set(installed.kubectl("get", kinds, "-o", "name").split())

    before, text = names(), yaml.safe_dump_all(installed.manifests(*WORDS))
    installed.kubectl("apply", *command.replace("\\\n", "").split(), "-f", "-", given=text)
    gone = {
        "deployment.apps/hpq-worker-big",
        "poddisruptionbudget.policy/hpq-worker-big",
        "networkpolicy.networking.k8s.io/hpq-worker-to-https",
    }
    assert gone < before and names() == before - gone
    assert installed.get("deployment", "hpq-worker")["spec"]["replicas"] == 0


QUEUES = """
queues:
  default: {gpus: 0}
  chosen: {gpus: 0, cpu_limit: 2, node_selector: {hpq-test/gpu: %(name)s}}
"""
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "cpus"},
    "spec": {"hard": {"limits.cpu": "2"}},
}


def test_a_queue_takes_its_own_nodes_and_a_quota_on_cpus_takes_its_pods(
    make_namespace: MakeNamespace,
) -> None:
    made = make_namespace()
    words = (*WORDS[0:1], *WORDS[3:])
    objects = made.manifests(*words, keys=QUEUES % {"name": made.name})
    made.apply([one for one in objects if one["kind"] == "Namespace"])
    made.kubectl("apply", "-f", "-", given=yaml.safe_dump(QUOTA))
    made.apply([one for one in objects if one["kind"] != "StatefulSet"])

    def refused() -> str:
        conditions = made.get("deployment", "hpq-worker")["status"].get("conditions", [])
        return next((str(c["message"]) for c in conditions if c["type"] == "ReplicaFailure"), "")

    assert "limits.cpu" in wait_for(refused, "a pod without a limit is refused", tell=made.tell)
    chosen = "app.kubernetes.io/instance=hpq-worker-chosen"

    def unscheduled() -> str:
        conditions = [c for p in made.pods(chosen) for c in p["status"].get("conditions", [])]
        return next((str(c.get("message")) for c in conditions if c["status"] == "False"), "")

    assert "node affinity" in wait_for(unscheduled, "a pod waits for its node", tell=made.tell)
    (node,) = made.cluster.get("nodes")["items"]
    name = node["metadata"]["name"]
    made.cluster.kubectl("label", "node", name, f"hpq-test/gpu={made.name}")
    try:
        wait_for(
            lambda: [p["spec"].get("nodeName") for p in made.pods(chosen)] == [name],
            "the pod is on the node with the label",
            tell=made.tell,
        )
    finally:
        made.cluster.kubectl("label", "node", name, "hpq-test/gpu-")
