"""Why no pod of a queue runs, by what the API server answers, and how often it is asked."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from hpq.errors import Forbidden, OutOfReach
from hpq.kubernetes.pods import ClusterStatus, read_cluster
from hpq_views.why import pods
from hpq_views.why.pods import INTERVAL_S, PodReasons
from tests.support.golden import Golden
from tests.support.kube_api import SEEN, KubeApi, pod, scaler, workers

QUOTA = (
    'pods "p" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2'
)
POLICY = (
    'pods "p" is forbidden: violates PodSecurity "restricted:latest": unrestricted capabilities'
)
READY = {"conditions": [{"type": "Ready", "status": "True"}]}
LOW = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}

LACKS_GPU = (
    "2026-11-29 hpq: starts\nhpq worker: the pod was given 1 nvidia.com/mig-1g.10gb, but nvidia-smi"
    " shows 0; its queue may need `pod: {runtimeClassName: nvidia}` [no-gpu]\n"
)
ENDED = {
    "name": "worker",
    "restartCount": 2,
    "lastState": {"terminated": {"exitCode": 2, "message": LACKS_GPU}},
}
NO_GPU = {"containerStatuses": [{**ENDED, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}

SAYS = (
    "09:00:00 INFO hpq.supervisor: starts\n"
    "09:00:09 WARNING hpq.health: not ready: worker 0 does not reach Redis [redis-away]\n"
)

# As the cluster of tests had them while its kubelet stood still.
GONE = [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}]
LOST = pod("p0", conditions=GONE)
LOST["metadata"]["deletionTimestamp"] = "2026-11-29T09:48:26Z"
UNSCHEDULED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/1 nodes are available: 1 node(s) had untolerated taint(s). no new claims",
}
LEFT = pod("p1", phase="Pending", conditions=[UNSCHEDULED])

ABOUT = {"involvedObject": {"name": SEEN["mount"]["metadata"]["name"]}}
MOUNT_EVENTS = [{**ABOUT, **event} for event in SEEN["mount_events"]]


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def reasons_of(api: KubeApi, monkeypatch: pytest.MonkeyPatch, clock: Any = None) -> PodReasons:
    """Return the reasons in a namespace that this API server has."""
    monkeypatch.setattr(pods, "KubernetesApi", lambda context, namespace, timeout_s: api)
    return PodReasons(api.context, api.namespace, clock or Clock())


@pytest.mark.parametrize(
    ("case", "code", "names", "has"),
    [
        ("a GPU", "pod-trouble", "nvidia.com/gpu 5f88764899-qvjz6", {"pods": [SEEN["gpu"]]}),
        ("an image", "pod-trouble", "nosuch:1 imagePullSecrets", {"pods": [SEEN["image"]]}),
        ("a crash", "pod-trouble", "--previous", {"pods": [SEEN["crash"]]}),
        ("memory", "pod-trouble", "24Mi --previous", {"pods": [SEEN["oom"]]}),
        ("no GPU", "no-gpu", "mig-1g.10gb --previous", {"pods": [pod("p1", **NO_GPU)]}),
        (
            "a Secret",
            "pod-trouble",
            "hpq-redis-worker",
            {"pods": [SEEN["mount"]], "events": MOUNT_EVENTS},
        ),
        ("a node", "pod-trouble", "p1 n1 Evicted", {"pods": [pod("p1", **LOW)]}),
        ("several pods", "pod-trouble", "p1 more", {"pods": [pod(n, **LOW) for n in ("p1", "p2")]}),
        (
            "quota",
            "pods-refused",
            "hpq-worker few pods=2",
            {"deployments": [workers(3, refusal=QUOTA)]},
        ),
        (
            "policy",
            "pods-refused",
            "PodSecurity restricted",
            {"deployments": [workers(3, refusal=POLICY)]},
        ),
        ("a pod that starts", "pods-starting", "p1 n1", {"pods": [pod("p1", phase="Pending")]}),
        (
            "a worker that cannot start",
            "pod-trouble",
            "p1 n1 redis-away describe",
            {"pods": [pod("p1")], "p1/log": SAYS},
        ),
        ("a lost node", "pod-trouble", "p0 n1 Terminating", {"pods": [LEFT, LOST]}),
        ("no pod yet", "pods-starting", "hpq-worker", {}),
        (
            "an unknown Redis",
            "no-worker",
            "logs deployment/hpq-worker",
            {"deployments": [workers(1, ready=1)], "pods": [pod("p1", **READY)]},
        ),
        (
            "an evicted pod beside the one that replaced it",
            "no-worker",
            "logs deployment/hpq-worker",
            {
                "deployments": [workers(1, ready=1)],
                "pods": [pod("p0", **LOW), pod("p1", **READY)],
            },
        ),
        ("another queue", "no-deployment", "big", {"deployments": [workers(1, queue="big")]}),
        ("scaled to 0", "scaled-to-0", "--replicas=N", {"deployments": [workers(0)]}),
        (
            "scaled to 0 by KEDA",
            "scaled-to-0",
            "describe scaledobject few",
            {
                "deployments": [workers(0)],
                "horizontalpodautoscalers": [scaler("hpq-worker", name="few")],
            },
        ),
        (
            "scaled to 0 below an HPA",
            "scaled-to-0",
            "--replicas=N",
            {"deployments": [workers(0)], "horizontalpodautoscalers": [scaler("hpq-worker")]},
        ),
        ("no right", "cluster-forbidden", "m", {"pods": Forbidden("m", code="cluster-forbidden")}),
        (
            "no answer",
            "cluster-unreachable",
            "m",
            {"deployments": OutOfReach("m", code="cluster-unreachable")},
        ),
        ("an odd object", "no-worker", "KeyError", {"pods": [{}]}),
    ],
)
def test_the_reason_names_the_object_and_the_command_of_this_cluster(
    case: str,
    code: str,
    names: str,
    has: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    golden: Golden,
) -> None:
    api = KubeApi({"deployments": [workers(3)], "pods": [], "events": [], **has})
    why, *_ = reasons_of(api, monkeypatch).of("default")
    assert why.code == code
    assert all(name in why.text for name in names.split()), why.text
    says_more = code in ("pods-refused", "pod-trouble", "pods-starting", "scaled-to-0")
    assert not says_more or "kubectl --context 'my lab' -n ml " in why.text, why.text
    golden.check("waiting", f"no pod: {case}", why.text)


def test_without_a_queue_there_is_a_reason_for_each_queue_and_each_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = KubeApi(
        {
            "deployments": [workers(3, refusal=QUOTA), workers(0, queue="big")],
            "pods": [SEEN["gpu"], SEEN["image"]],
        }
    )
    found = reasons_of(api, monkeypatch).of()
    assert [why.code for why in found] == [
        "pods-refused",
        "pod-trouble",
        "pod-trouble",
        "scaled-to-0",
    ]


def test_the_log_of_a_pod_is_read_until_it_has_a_reason_and_again_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked() -> int:
        clock.now += INTERVAL_S
        (why,) = reasons.of("default")
        assert ("redis-away" in why.text) == ("p1/log" in api.has)
        return api.asked.count("p1/log")

    api, clock = KubeApi({"deployments": [workers(1)], "pods": [pod("p1")], "events": []}), Clock()
    reasons = reasons_of(api, monkeypatch, clock)
    assert [asked(), asked()] == [1, 2]
    api.has["p1/log"] = SAYS
    assert [asked(), asked(), asked()] == [3, 3, 3]
    api.has["pods"] = [pod("p1", containerStatuses=[{**ENDED, "lastState": {}, "state": {}}])]
    assert [asked(), asked()] == [4, 4]


def test_a_namespace_is_read_again_after_10_s_also_after_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api, clock = KubeApi({"deployments": [workers(3, refusal=QUOTA)], "pods": []}), Clock()
    reasons = reasons_of(api, monkeypatch, clock)
    quota = reasons.of("default")
    api.has["deployments"] = OutOfReach("away", code="cluster-unreachable")
    clock.now = INTERVAL_S - 0.1
    assert reasons.of("default") == quota
    assert [why.code for why in reasons.of("big")] == ["no-deployment"]
    assert api.asked == ["deployments", "pods"]
    clock.now = INTERVAL_S
    for _ in range(3):
        assert [why.code for why in reasons.of("default")] == ["cluster-unreachable"]
    assert api.asked == ["deployments", "pods", "deployments"]


def test_a_slow_api_server_is_waited_for_a_tenth_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api, clock = KubeApi({"deployments": [workers(0)], "pods": []}), Clock()
    reasons = reasons_of(api, monkeypatch, clock)

    def read(api: KubeApi, logged: dict[tuple[str, int], str]) -> ClusterStatus:
        clock.now += 8.0
        return read_cluster(api, logged)  # type: ignore[arg-type]

    monkeypatch.setattr(pods, "read_cluster", read)
    waits = []
    for now in (0.0, 18.0, 79.9, 80.0):
        clock.now = now
        reasons.of("default")
        waits.append(clock.now - now)
    assert waits == [8.0, 0.0, 0.0, 8.0]


def test_credentials_are_read_again_after_the_api_server_has_refused_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = Forbidden("log in again", code="cluster-credentials-refused")
    logins = [
        KubeApi({"deployments": refused, "deployments/hpq-worker": refused}),
        KubeApi({"deployments": [workers(0)], "pods": []}),
    ]
    clock = Clock()
    monkeypatch.setattr(pods, "KubernetesApi", lambda context, namespace, timeout_s: logins.pop(0))
    reasons = PodReasons("moon", "apollo", clock)
    assert [why.code for why in reasons.of("default")] == ["cluster-credentials-refused"]
    for _ in range(2):
        clock.now += INTERVAL_S
        assert [why.code for why in reasons.of("default")] == ["scaled-to-0"]


@pytest.mark.parametrize("connects", [True, False])
def test_an_api_server_that_never_answers_is_named_after_one_timeout(
    connects: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=8 if connects else 0) as silent,
        socket.socket() as first,
    ):
        if not connects:  # the one place in the queue of connections is taken
            first.connect(silent.getsockname())
        kubeconfig = tmp_path / "config"
        kubeconfig.write_text(
            f"""
clusters: [{{name: here, cluster: {{server: "http://127.0.0.1:{silent.getsockname()[1]}"}}}}]
users: [{{name: me, user: {{token: t}}}}]
contexts: [{{name: moon, context: {{cluster: here, user: me}}}}]
"""
        )
        monkeypatch.setattr(
            "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig)
        )
        monkeypatch.setattr(pods, "_TIMEOUT_S", 0.1)
        clock = Clock()
        reasons = PodReasons("moon", "apollo", clock)
        (why,) = reasons.of("default")
        assert reasons.of("default") == [why]
        clock.now = INTERVAL_S
        assert reasons.of("default") == [why], "`hpq wait` prints each new text"
    assert why.code == "cluster-unreachable" and "moon" in why.text
    assert "timed out" in why.text and "object" not in why.text and " at 0x" not in why.text
