"""The key dashboard of a cluster file: the pod and its objects."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.manifests import Objects, by_name, rendered

ITS_OWN = "dashboard: {host: hpq.example.org}"
MONITORED = "monitoring: true, tls: true"  # which adds a dashboard


def dashboard(keys: str) -> Objects:
    """Return the objects of a cluster with these keys."""
    return by_name(rendered(f"{{image: 'ours/hpq:7', namespace: team, {keys}}}"))


def container(found: Objects) -> dict[str, Any]:
    (one,) = found["Deployment", "hpq-dashboard"]["spec"]["template"]["spec"]["containers"]
    return dict(one)


def env(found: Objects) -> dict[str, Any]:
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in container(found)["env"]}


def test_one_small_pod_reads_with_the_viewers_password_and_changes_nothing() -> None:
    found = dashboard(ITS_OWN)
    spec = found["Deployment", "hpq-dashboard"]["spec"]
    pod, one = spec["template"]["spec"], container(found)
    assert spec["replicas"] == 1 and one["image"] == "ours/hpq:7"
    assert "--no-token" in one["args"] and one["args"][-1] == "--allow-host=hpq.example.org"
    assert "--allow-actions" not in one["args"] and "nvidia.com/gpu" not in json.dumps(spec)
    secrets = {v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v}
    assert secrets == {"hpq-redis-viewer", "hpq-redis-tls"}
    (ca,) = [v["secret"] for v in pod["volumes"] if v["name"] == "ca"]
    assert ca["optional"] and [item["key"] for item in ca["items"]] == ["ca.crt"]
    assert env(found)["REDIS_USER"]["secretKeyRef"]["name"] == "hpq-redis-viewer"
    assert "HPQ_CODE_KEY" not in env(found)
    # Pod Security "restricted", as the workers have it.
    (worker,) = found["Deployment", "hpq-worker"]["spec"]["template"]["spec"]["containers"]
    assert one["securityContext"] == worker["securityContext"]
    assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
    assert {"requests", "limits"} <= one["resources"].keys()
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= one.keys()


def test_only_a_labelled_pod_and_with_monitoring_prometheus_reach_it() -> None:
    found = dashboard(MONITORED)
    labels = found["Deployment", "hpq-dashboard"]["spec"]["template"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/part-of"] == "hpq" and labels["hpq/reaches-redis"] == "true"
    policy = found["NetworkPolicy", "hpq-dashboard"]["spec"]
    (rule,) = policy["ingress"]
    assert rule["from"] == [{"podSelector": {"matchLabels": {"hpq/reaches-dashboard": "true"}}}]
    assert [port["port"] for port in rule["ports"]] == [8765]
    scraped = found["NetworkPolicy", "hpq-monitoring"]["spec"]
    assert [port["port"] for port in scraped["ingress"][0]["ports"]] == [9108]
    wanted = {"matchLabels": {"app.kubernetes.io/name": "hpq-dashboard"}}
    assert scraped["podSelector"] == wanted
    monitor = found["PodMonitor", "hpq-dashboard"]["spec"]
    assert monitor["selector"] == wanted
    (port,) = monitor["podMetricsEndpoints"]
    assert {"name": port["port"], "containerPort": 9108} in container(found)["ports"]


def test_grafana_finds_its_dashboard_by_the_label_of_the_config_map() -> None:
    made = dashboard(MONITORED)["ConfigMap", "hpq-grafana"]
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(made["data"]["hpq.json"])["uid"] == "hpq"


@pytest.mark.parametrize(
    ("workers", "own"),
    [
        ("redis://hpq-worker@hpq-redis:6379/0", "redis://v@hpq-redis:6379/0"),
        ("rediss://hpq-worker@h:1/0?ssl_ca_certs=/a/b", "rediss://v@h:1/0?ssl_ca_certs=/a/b"),
        ("redis://h:1", "redis://v@h:1"),
    ],
)
def test_it_reads_the_redis_of_the_workers_as_another_user(
    workers: str, own: str, tmp_path: Path
) -> None:
    one = container(dashboard(ITS_OWN))
    (tmp_path / "hpq").write_text('#!/bin/sh\necho "$HPQ_REDIS_URL" "$@"\n')
    (tmp_path / "hpq").chmod(0o755)
    given = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HPQ_REDIS_URL": workers, "REDIS_USER": "v"}
    words = [*one["command"], *one["args"]]
    done = subprocess.run(words, env=given, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [own, "dashboard", *one["args"]]


def test_tls_gives_it_the_authority_where_its_url_names_it() -> None:
    found = dashboard(MONITORED)
    (settings,) = (o for key, o in found.items() if key[1].startswith("hpq-settings"))
    authority = settings["data"]["HPQ_REDIS_URL"].partition("ssl_ca_certs=")[2]
    mounts = {mount["mountPath"] for mount in container(found)["volumeMounts"]}
    assert authority.rpartition("/")[0] in mounts
