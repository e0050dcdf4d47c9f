"""/metrics is what Prometheus reads; alerts and graphs of k8s/ ask for what is on it."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpq.domain.status import Fleet
from hpq_ops.manifests.objects import folder
from tests.support.constants import DATA, ROOT

client = pytest.importorskip("prometheus_client", reason="pip install prometheus-client")
fleet_metrics = pytest.importorskip("hpq_views.page.prometheus")
parser = pytest.importorskip("prometheus_client.parser")

# Each has few values, whatever the number of sweeps, trials and pods; an owner is a person.
LABELS = {"outcome", "kind", "le", "state", "queue", "owner", "host"}
BY_SCRAPE = {"namespace", "pod"}  # labels that Prometheus adds
FLEET = Fleet(
    demand={"big": 3},
    waiting={("big", "ana"): 2},
    running={("big", "ana"): 1},
    held={"big": 1},
    workers={("big", "busy"): 1},
    gpu_util={("big", "node1"): 80.0},
    gpu_ms={"ana": 3_600_000},
    counters={},
    ended={("failed", "user_error", 4): 1, ("finished", "", 4**10): 2},
    memory_ratio=0.5,
    is_aof_ok=True,
)
NAME = re.compile(r"hpq_[a-z_]+")
BY = re.compile(r"(?:by|on) \(([^)]*)\)")
LABEL = re.compile(r'([a-z_]+)(?:=|!=|=~|!~)"')


def page(app: Any, **headers: str) -> str:
    """What /metrics answers."""
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/metrics", **headers}
    return b"".join(app(environ, lambda *_: None)).decode()


class FleetPage:
    def collect(self) -> Any:
        return fleet_metrics.metrics_of(FLEET)


def exporter_page() -> Any:
    registry = client.CollectorRegistry()
    registry.register(FleetPage())
    return client.make_wsgi_app(registry)


@pytest.fixture
def families() -> dict[str, Any]:
    """What the exporter says, as Prometheus reads it."""
    app = exporter_page()
    text = page(app)
    found = {f.name: f for f in parser.text_string_to_metric_families(text)}
    in_openmetrics = page(app, HTTP_ACCEPT="application/openmetrics-text; version=1.0.0")
    openmetrics = importlib.import_module("prometheus_client.openmetrics.parser")
    again = openmetrics.text_string_to_metric_families(in_openmetrics)
    assert {s.name for family in again for s in family.samples} == {
        s.name for family in found.values() for s in family.samples
    }
    for family in found.values():
        assert f"# HELP {family.name}" in text and f"# TYPE {family.name}" in text
    return found


def rules() -> list[dict[str, Any]]:
    file = folder() / "components/monitoring/alerts.yaml"
    (group,) = yaml.safe_load(file.read_text("utf-8"))["spec"]["groups"]
    return list(group["rules"])


def panels() -> list[dict[str, Any]]:
    file = folder() / "components/monitoring/grafana.json"
    return list(json.loads(file.read_text("utf-8"))["panels"])


def check_query(query: str, families: dict[str, Any]) -> None:
    """Assert that a query asks for names and labels that are on the pages."""
    there = {s.name: set(s.labels) for f in families.values() for s in f.samples}
    asked = set(NAME.findall(query))
    assert asked and asked <= set(there), query
    labels = {one.strip() for found in BY.findall(query) for one in found.split(",")}
    labels |= set(LABEL.findall(query))
    assert labels - BY_SCRAPE <= set().union(*(there[name] for name in asked)), query


def test_the_page_has_prometheus_names_types_and_few_labels(families: dict[str, Any]) -> None:
    for name, family in families.items():
        assert NAME.fullmatch(name) and family.documentation and family.type != "unknown", name
        for sample in family.samples:
            assert set(sample.labels) <= LABELS, sample
            if family.type == "counter":
                assert sample.name.endswith(("_total", "_created")), sample
    assert families["hpq_demand"].samples[0].labels == {"queue": "big"}


def test_every_metric_has_its_line_in_the_reference(families: dict[str, Any]) -> None:
    text = (ROOT / "docs/guides/monitoring.md").read_text("utf-8")
    lines = set(re.findall(r"^\| `(hpq_[a-z_]+)", text, re.MULTILINE))
    names = {f.name + "_total" * (f.type == "counter") for f in families.values()}
    assert lines == {name for name in names if not name.endswith("_created")}


def test_every_alert_asks_for_what_is_on_the_page(families: dict[str, Any]) -> None:
    text = (ROOT / "docs/guides/monitoring.md").read_text("utf-8")
    assert re.findall(r"(?m)^\| (Hpq\w+) \|", text) == [rule["alert"] for rule in rules()]
    for rule in rules():
        check_query(rule["expr"], families)
        assert set(rule["annotations"]) == {"summary", "remedy"}


def test_every_graph_asks_for_what_is_on_the_page(families: dict[str, Any]) -> None:
    assert panels()
    for panel in panels():
        for target in panel["targets"]:
            check_query(target["expr"], families)


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
