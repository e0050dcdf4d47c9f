"""What is read from the API's objects, as a real API server wrote them (tests/data/kube)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from hpq.domain.status import DurationStats, SweepStatus, Worker
from hpq.domain.sweep import Launch, SweepView
from hpq_producer.cluster.objects import (
    Pod,
    deployment_of,
    pod_of,
    scheduling_reason,
)
from hpq_producer.cluster.pods import ClusterStatus, read_cluster
from hpq_producer.diagnosis.pods import explain_no_pod, troubled_pods
from hpq_producer.terminal.style import TerminalInfo, plain
from hpq_producer.terminal.text import width
from hpq_producer.watch.frame import render
from hpq_producer.watch.scene import Scene
from hpq_producer.watch.view import View
from tests.support.constants import DATA
from tests.support.golden import Golden

SEEN: dict[str, Any] = json.loads((DATA / "kube" / "objects.json").read_text("utf-8"))


@pytest.mark.parametrize(
    ("what", "phase", "reason"),
    [
        ("gpu", "Pending", "Insufficient nvidia.com/gpu"),
        ("image", "Pending", "ImagePullBackOff: image docker.io/library/nosuch:1"),
        ("mount", "Pending", 'secret "hpq-redis-worker" not found'),
        ("oom", "Running", "CrashLoopBackOff: OOMKilled (memory limit 24Mi)"),
    ],
)
def test_a_pod_that_does_not_work_says_why_in_few_words(what: str, phase: str, reason: str) -> None:
    pod = pod_of(SEEN[what], SEEN["mount_events"] if what == "mount" else ())
    assert (pod.phase, pod.reason, pod.is_ready, pod.queue) == (phase, reason, False, "default")


def test_a_container_that_ends_shows_the_last_line_of_its_log() -> None:
    reason = pod_of(SEEN["crash"]).reason
    assert "redis://hpq-worker@hpq-redis:6379" in reason and len(reason) <= 160


def test_a_container_that_was_killed_names_the_signal_and_not_what_it_logged_last() -> None:
    raw = json.loads(json.dumps(SEEN["crash"]))
    one = raw["status"]["containerStatuses"][0]
    (ended,) = [s[k] for s in (one["state"], one["lastState"]) for k in s if k == "terminated"][:1]
    ended["exitCode"] = 137
    one["state"] = {"terminated": ended}
    assert "signal 9" in pod_of(raw).reason and "redis://" not in pod_of(raw).reason


def test_a_container_that_was_begun_again_and_is_not_ready_says_why_it_ended_before() -> None:
    raw = json.loads(json.dumps(SEEN["crash"]))
    one = raw["status"]["containerStatuses"][0]
    ended = one["state"].get("terminated") or one["lastState"]["terminated"]
    one["lastState"], one["state"] = {"terminated": ended}, {"running": {}}
    raw["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    assert "redis://hpq-worker@hpq-redis:6379" in pod_of(raw).reason
    raw["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert pod_of(raw).reason == ""


def with_init(what: str, code: int) -> dict[str, Any]:
    """A pod before whose worker an init container ended, as a git tree is fetched."""
    raw: dict[str, Any] = json.loads(json.dumps(SEEN[what]))
    ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
    one = {"name": "code", "ready": code == 0, "state": {"terminated": ended}}
    raw["status"]["initContainerStatuses"] = [one]
    return raw


def test_an_init_container_that_did_its_work_is_no_reason_and_one_that_failed_is() -> None:
    well = with_init("crash", 0)
    (worker,) = well["status"]["containerStatuses"]
    worker["lastState"], worker["state"] = {}, {"running": {}}
    for ready in ("False", "True"):
        well["status"]["conditions"] = [{"type": "Ready", "status": ready}]
        assert pod_of(well).reason == ""
    assert pod_of(with_init("oom", 0)).reason == pod_of(SEEN["oom"]).reason != ""
    assert "Error, exit code 1" in pod_of(with_init("oom", 1)).reason


def test_an_evicted_pod_says_so_whatever_became_of_its_container() -> None:
    raw = with_init("crash", 0)
    (worker,) = raw["status"]["containerStatuses"]
    ended = {"exitCode": 0, "reason": "Completed"}
    worker["lastState"], worker["state"] = {}, {"terminated": ended}
    low = "The node was low on resource: ephemeral-storage."
    raw["status"] |= {"phase": "Failed", "reason": "Evicted", "message": low}
    pod = pod_of(raw)
    assert (pod.phase, pod.reason) == ("Failed", f"Evicted: {low}")
    del raw["status"]["reason"]
    assert "Completed, exit code 0" in pod_of(raw).reason


def test_a_used_up_quota_is_named_with_what_is_wanted_and_allowed() -> None:
    workers = deployment_of(SEEN["quota"])
    assert (workers.wanted, workers.present) == (3, 1)
    assert all(w in workers.reason for w in ("quota few", "pods=1", "pods=2"))


@pytest.mark.parametrize(
    ("message", "short"),
    [
        (
            "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {gpu: }."
            " preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
            "Insufficient cpu; node(s) had untolerated taint {gpu: }",
        ),
        ('persistentvolumeclaim "data" not found', 'persistentvolumeclaim "data" not found'),
        ("", "Unschedulable"),
    ],
)
def test_the_scheduler_s_words_are_kept_without_its_counts(message: str, short: str) -> None:
    assert scheduling_reason("Unschedulable", message) == short


def test_why_nobody_works_is_told_by_the_pods_of_the_class() -> None:
    workers, pod = deployment_of(SEEN["quota"]), pod_of(SEEN["gpu"])
    cluster = ClusterStatus(context="c", namespace="n", deployments=(workers,), pods=(pod,), at=0)
    refused, unknown = explain_no_pod(cluster, "default"), explain_no_pod(cluster, "big")
    assert refused and refused.code == "pods-refused" and "quota few" in refused.text
    assert refused.text.endswith("hpq doctor --cluster --context c -n n")
    assert unknown and unknown.code == "no-deployment"
    assert troubled_pods(cluster, ()) == [pod]
    well = Pod(name="a", phase="Running", queue="default", is_ready=True)
    assert troubled_pods(
        ClusterStatus(context="c", namespace="n", deployments=(), pods=(well,), at=0), ()
    ) == [well]


class Server:
    """The few answers of an API server that matter here."""

    context, namespace = "my lab", "ml"

    def __init__(self, replicas: int, *scalers: dict[str, Any]) -> None:
        self._scalers, self.asked = list(scalers), list[str]()
        self._deployment = json.loads(json.dumps(SEEN["quota"]))
        self._deployment["spec"]["replicas"] = replicas
        self._deployment["status"]["conditions"] = []

    def of(self, path: str) -> str:
        return path

    def get(self, path: str, **query: str) -> Any:
        self.asked.append(path.rpartition("/")[2])
        found = {"deployments": [self._deployment], "horizontalpodautoscalers": self._scalers}
        return {"items": found.get(self.asked[-1], [])}


def scaler(target: str, **labels: str) -> dict[str, Any]:
    """An autoscaler of a Deployment, as the API has it; KEDA's have its label."""
    labels = {f"scaledobject.keda.sh/{key}": value for key, value in labels.items()}
    return {
        "metadata": {"name": "auto", "labels": labels},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": target}},
    }


@pytest.mark.parametrize(
    ("scalers", "case"),
    [
        ((), "scaled to 0"),
        ((scaler("other", name="x"),), "scaled to 0"),
        ((scaler("hpq-worker", name="few"),), "scaled to 0 by KEDA"),
        ((scaler("hpq-worker"),), "scaled to 0 below an HPA"),
    ],
)
def test_where_none_are_wanted_it_is_told_who_decides_that(
    scalers: tuple[dict[str, Any], ...], case: str, golden: Golden
) -> None:
    server = Server(0, *scalers)
    why = explain_no_pod(read_cluster(server), "default")  # type: ignore[arg-type]
    assert why and why.code == "scaled-to-0"
    golden.check("waiting", case, why.text)
    assert server.asked == ["deployments", "horizontalpodautoscalers", "pods"]


def test_a_class_that_is_scaled_to_0_is_named_to_who_scales_it_up() -> None:
    big = replace(deployment_of(SEEN["quota"]), wanted=0, queue="big")
    cluster = ClusterStatus(context="c", namespace="n", deployments=(big,), pods=(), at=0)
    why = explain_no_pod(cluster, "big")
    assert (
        why
        and why.code == "scaled-to-0"
        and why.text.endswith("-n n scale deployment/hpq-worker --replicas=N`")
    )


def test_no_autoscaler_is_asked_for_where_pods_are_wanted() -> None:
    server = Server(1, scaler("hpq-worker"))
    read_cluster(server)  # type: ignore[arg-type]
    assert server.asked == ["deployments", "pods"]


@pytest.mark.parametrize(("columns", "rows"), [(44, 10), (80, 24), (200, 60)])
def test_a_frame_has_the_pods_that_do_not_work_before_the_workers_and_keeps_its_size(
    columns: int, rows: int
) -> None:
    pods = tuple(replace(pod_of(SEEN["gpu"]), name=f"hpq-worker-{n}") for n in range(9))
    cluster = ClusterStatus(
        context="c", namespace="n", deployments=(deployment_of(SEEN["quota"]),), pods=pods, at=0
    )
    worker = Worker(name="w1", queue="default", state="busy", device="GPU")
    sweep = SweepView(id="s", name="s", digest="", launch=Launch(trainer="digits"))
    status = SweepStatus(
        sweep=sweep, at_ms=1, running=(), best=(), recent=(), workers=(worker,),
        durations=DurationStats(), last_event="1-0",
    )  # fmt: skip
    look, scene = TerminalInfo(columns=columns, rows=rows), Scene(status=status, cluster=cluster)
    lines = [plain(line) for line in render(View(), scene, look)[0]]
    assert len(lines) <= rows and all(width(line) <= columns for line in lines)
    text = "\n".join(lines)
    assert ("3 wanted, 1 ready" in text and "Insufficient" in text) or rows == 10
    alone = replace(status, workers=())
    look = TerminalInfo(columns=80, rows=24)
    shown = [plain(line) for line in render(View(), replace(scene, status=alone), look)[0]]
    assert "pods: 3 wanted" in "\n".join(shown)
