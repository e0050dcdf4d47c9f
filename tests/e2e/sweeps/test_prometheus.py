"""A real Prometheus scrapes an exporter, and answers every alert and graph of k8s/."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpq_ops.manifests.objects import folder
from hpq_worker.attempt.environment import reserved_port
from tests.support.commands import HPQ
from tests.support.constants import DEADLINE_S
from tests.support.lab import Lab
from tests.support.nvml import GB, FakeNvml

for library in ("prometheus_client", "starlette", "uvicorn", "jinja2", "plotly"):
    pytest.importorskip(library, reason=f"{library} is not installed")

PROMETHEUS = shutil.which("prometheus")
MONITORING = folder() / "components" / "monitoring"
VARIABLES = {"$namespace": ".*", "$queue": ".*", "$__rate_interval": "1m"}


@pytest.fixture
def start(lab: Lab) -> Iterator[Callable[..., object]]:
    """Return a function that starts a process until the end of the test."""
    running: list[subprocess.Popen[bytes]] = []

    def run(*words: object, **env: str) -> None:
        with (lab.folder / f"{Path(str(words[0])).name}.log").open("wb") as log:
            running.append(
                subprocess.Popen([*map(str, words)], env={**lab.env, **env}, stdout=log, stderr=log)
            )

    yield run
    for process in running:
        process.kill()
        process.wait()


@pytest.fixture
def ports() -> Iterator[tuple[int, int]]:
    with ExitStack() as stack:
        yield tuple(stack.enter_context(reserved_port()) for _ in range(2))  # type: ignore[misc]


def queries() -> list[tuple[str, str]]:
    """The title and the query of every graph, with the variables that Grafana fills in."""
    found = []
    for panel in json.loads((MONITORING / "grafana.json").read_text("utf-8"))["panels"]:
        for target in panel["targets"]:
            query = target["expr"]
            for name, value in VARIABLES.items():
                query = query.replace(name, value)
            assert "$" not in query, query
            found.append((panel["title"], query))
    return found


def configure(folder: Path, exporter: int) -> Path:
    """Write the configuration, as an operator of Prometheus labels what it scrapes in a cluster."""
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text("utf-8"))["spec"]
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules), "utf-8")
    labels = {"namespace": "hpq", "pod": "hpq-dashboard-1"}
    targets = [{"targets": [f"127.0.0.1:{exporter}"], "labels": labels}]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": "hpq", "static_configs": targets}],
    }
    path = folder / "prometheus.yaml"
    path.write_text(yaml.safe_dump(config), "utf-8")
    return path


@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not on PATH")
def test_every_graph_has_data_and_every_alert_is_evaluated(
    lab: Lab, start: Callable[..., object], ports: tuple[int, int], tmp_path: Path
) -> None:
    exporter, api = ports
    folder = tmp_path / "nvml"
    folder.mkdir()
    nvml = FakeNvml(folder)
    nvml.set(total=24 * GB, used=30 * GB, util=80, power=300_000)
    lab.write("ends.py", "def train(params, trial):\n    return {'loss': 1 / params['x']}\n")
    lab.env |= nvml.env
    lab.worker(2, CUDA_VISIBLE_DEVICES="0", HPQ_TRIALS_PER_GPU="2")
    start(HPQ, "dashboard", "--port", "0", "--no-token", HPQ_PORT=str(exporter))
    config = configure(tmp_path, exporter)
    start(
        *(PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}"),
        f"--web.listen-address=127.0.0.1:{api}",
    )
    ended = lab.enqueue(
        "trainer: ends:train\nmethod: grid\nmetric: {name: loss}\n"
        "parameters: {x: {values: [0, 1]}}\n"
    )
    lab.wait_over(ended)
    lab.ok("user", "*", "--limit", "running=100")  # from now on GPU time is counted
    lab.steered(1)  # it runs on one worker; the other is idle
    lab.wait_for("began-1-1")

    def ask(path: str, **words: str) -> Any:
        url = f"http://127.0.0.1:{api}/api/v1/{path}?{urllib.parse.urlencode(words)}"
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            found = json.loads(answer.read())
        assert found["status"] == "success", found
        return found["data"]

    def is_up() -> bool:
        try:
            return len(ask("query", query="up == 1")["result"]) == 1
        except OSError:
            return False

    lab.wait_until(is_up, "Prometheus to scrape it")
    for title, query in queries():
        lab.wait_until(
            lambda query=query: ask("query", query=query)["result"],  # type: ignore[misc]
            f"data of the graph {title!r}: {query}",
        )

    def rules() -> list[dict[str, Any]]:
        return [rule for group in ask("rules")["groups"] for rule in group["rules"]]

    lab.wait_until(lambda: all(rule["health"] == "ok" for rule in rules()), "all alerts")
    assert rules()
    active = {rule["name"] for rule in rules() if rule["alerts"]}
    assert "HpqNoExporter" not in active and "HpqNoWorker" not in active
    lab.go()
