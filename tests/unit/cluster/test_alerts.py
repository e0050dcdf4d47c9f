"""/metrics is what Prometheus reads, and the alerts of k8s/ ask for what is on it."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpq.store.worker_reader import COUNTED
from hpq_producer.manifests.render import manifests_folder
from hpq_worker.health.health import Health, WorkerHealth
from hpq_worker.health.telemetry import TelemetryMessage
from tests.support.constants import DATA

metrics = pytest.importorskip("hpq_worker.health.prometheus", reason="pip install 'hpq[worker]'")
parser = pytest.importorskip("prometheus_client.parser")

# Each has a handful of values, whatever the number of sweeps, trials and pods.
LABELS = {"outcome", "kind", "le", "state", "queue", "version", "schema"}
SERVER = {
    "demand": 3.0,
    "redis_memory_ratio": 0.5,
    "redis_aof_ok": 1.0,
    **dict.fromkeys(COUNTED, 2.0),
}
NAME = re.compile(r"hpq_[a-z_]+")


def page(figures: Any, **headers: str) -> str:
    """What /metrics answers."""
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/metrics", **headers}
    return b"".join(figures.page(environ, lambda *_: None)).decode()


@pytest.fixture
def families() -> dict[str, Any]:
    """What a worker's page says, as Prometheus reads it."""
    health = Health({0: WorkerHealth()})
    figures = metrics.WorkerMetrics(health, "big")
    figures.started()
    health.receive(0, TelemetryMessage(kind="redis", server=SERVER))
    figures.receive(TelemetryMessage(kind="end", status="failed", reason="user_error", seconds=3.0))
    text = page(figures)
    found = {f.name: f for f in parser.text_string_to_metric_families(text)}
    in_openmetrics = page(figures, HTTP_ACCEPT="application/openmetrics-text; version=1.0.0")
    openmetrics = importlib.import_module("prometheus_client.openmetrics.parser")
    again = openmetrics.text_string_to_metric_families(in_openmetrics)
    assert {s.name for family in again for s in family.samples} == {
        s.name for family in found.values() for s in family.samples
    }
    for family in found.values():
        assert f"# HELP {family.name}" in text and f"# TYPE {family.name}" in text
    return found


def rules() -> list[dict[str, Any]]:
    file = manifests_folder() / "components/monitoring/alerts.yaml"
    (group,) = yaml.safe_load(file.read_text("utf-8"))["spec"]["groups"]
    return list(group["rules"])


def test_the_page_has_prometheus_names_types_and_few_labels(families: dict[str, Any]) -> None:
    for name, family in families.items():
        assert NAME.fullmatch(name) and family.documentation and family.type != "unknown", name
        for sample in family.samples:
            assert set(sample.labels) <= LABELS, sample
            if family.type == "counter":
                assert sample.name.endswith(("_total", "_created")), sample
    assert families["hpq_demand"].samples[0].labels == {"queue": "big"}


def test_every_alert_asks_for_what_is_on_the_page(families: dict[str, Any]) -> None:
    there = {s.name: set(s.labels) for f in families.values() for s in f.samples}
    assert len(rules()) == 4
    for rule in rules():
        asked = set(NAME.findall(rule["expr"]))
        assert asked and asked <= set(there), rule["alert"]
        for grouped in re.findall(r"by \(([^)]*)\)", rule["expr"]):
            labels = {label.strip() for label in grouped.split(",")} - {"namespace"}
            assert labels <= set().union(*(there[name] for name in asked)), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "remedy"}


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not on PATH")
def test_promtool_takes_the_alerts_and_each_fires_when_it_should(tmp_path: Path) -> None:
    def promtool(*words: str) -> None:
        done = subprocess.run(
            ["promtool", *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def write(found: list[dict[str, Any]]) -> None:
        group = {"groups": [{"name": "hpq", "rules": found}]}
        (tmp_path / "rules.yaml").write_text(yaml.safe_dump(group), "utf-8")

    write(rules())
    promtool("check", "rules", "rules.yaml")
    write([{n: v for n, v in rule.items() if n != "annotations"} for rule in rules()])
    shutil.copy(DATA / "alerts.yaml", tmp_path / "alerts.yaml")
    promtool("test", "rules", "alerts.yaml")
