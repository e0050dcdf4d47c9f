"""What is read from the API's objects, as a real API server wrote them (tests/data/kube)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hpq.kubernetes.objects import deployment_of, pod_of, refusal, scheduling_reason
from hpq.kubernetes.pods import read_cluster
from tests.support.kube_api import SEEN, KubeApi, workers


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


def test_a_quota_of_several_resources_is_named_as_well() -> None:
    message = "exceeded quota: few, requested: cpu=1,pods=1, used: cpu=2,pods=2, limited: pods=2"
    assert refusal(f'pods "p" is forbidden: {message}').startswith("quota few is exhausted: cpu=1,")


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


@pytest.mark.parametrize(
    ("wanted", "asked"),
    [(0, ["deployments", "horizontalpodautoscalers", "pods"]), (1, ["deployments", "pods"])],
)
def test_autoscalers_are_asked_for_only_if_a_deployment_wants_no_pod(
    wanted: int, asked: list[str]
) -> None:
    api: Any = KubeApi({"deployments": [workers(wanted)], "pods": []})
    read_cluster(api)
    assert api.asked == asked
