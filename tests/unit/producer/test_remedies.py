"""The flags that a command needs which is told to people: it means their cluster, typed as told."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubernetes.config import kube_config

from hpq_producer.cluster.api import KubernetesApi
from hpq_producer.cluster.objects import deployment_of
from hpq_producer.cluster.pods import ClusterStatus
from hpq_producer.diagnosis.pods import explain_no_pod

_CONTEXTS = """
clusters: [{name: here, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: me, user: {token: t}}]
contexts:
- {name: near, context: {cluster: here, user: me}}
- {name: far side, context: {cluster: here, user: me}}
current-context: near
"""


@pytest.mark.parametrize(
    ("context", "namespace", "beside", "flags"),
    [
        (None, "hpq", False, ""),
        ("near", "hpq", False, ""),
        (None, "lab", False, " --namespace lab"),
        ("far side", "hpq", False, " --context 'far side'"),
        ("far side", "lab", False, " --context 'far side' --namespace lab"),
        ("near", "hpq", True, " --context near --namespace hpq"),
    ],
)
def test_what_is_not_the_default_is_named_and_beside_a_connection_all(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    context: str | None,
    namespace: str,
    beside: bool,
    flags: str,
) -> None:
    (tmp_path / "config").write_text(_CONTEXTS)
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
    assert KubernetesApi(context, namespace, beside_connection=beside).flags == flags


def test_a_scale_that_is_told_for_a_queue_of_another_namespace_names_both() -> None:
    pod = {"metadata": {"labels": {"hpq/queue": "big"}}, "spec": {"containers": [{"name": "w"}]}}
    raw = {"metadata": {"name": "d"}, "spec": {"replicas": 0, "selector": {}, "template": pod}}
    cluster = ClusterStatus(
        context="c", namespace="lab", deployments=(deployment_of(raw),), pods=(), at=0,
        flags=" --namespace lab",
    )  # fmt: skip
    told = explain_no_pod(cluster, "big")
    assert told is not None and "`hpq scale 1 --queue big --namespace lab`" in told.text
