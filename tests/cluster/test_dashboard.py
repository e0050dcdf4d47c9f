"""The component dashboard: its page and the fleet's metrics, without any worker."""

from __future__ import annotations

import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import yaml

from tests.cluster.conftest import Images
from tests.cluster.kube import DEADLINE_S, tweaked, wait_for
from tests.cluster.place import SETTINGS, WORKER, Laptop, Namespace

DASHBOARD = "app.kubernetes.io/name=hpq-dashboard"
HOST = "hpq.example.org"
SWEEP = "program: t.py\nmethod: grid\nqueue: none\nparameters: {x: {values: [1, 2, 3]}}\n"
# A TCP connection from a pod: 0 open, 124 silent, as a policy leaves it.
TRY = "timeout 3 bash -c '</dev/tcp/{}/{}' 2>/dev/null; echo $?"


@pytest.fixture
def dashboard(namespace: Namespace, images: Images) -> Iterator[Namespace]:
    """The shared namespace with the component, which is removed afterwards."""
    keys = f"store: {{}}\ndashboard: {{host: {HOST}}}"
    words = ("--image", images.worker, "--gpus", 0)
    made = tweaked(namespace.manifests(*words, keys=keys), SETTINGS)
    named = [one for one in made if one["metadata"]["name"] == "hpq-dashboard"]
    assert {one["kind"] for one in named} == {"Deployment", "Service", "NetworkPolicy"}
    # With the settings of `shared`, so that no worker is replaced.
    (there,) = [
        source["configMapRef"]["name"]
        for source in namespace.get("deployment", "hpq-worker")["spec"]["template"]["spec"][
            "containers"
        ][0]["envFrom"]
    ]
    text = re.sub(r"hpq-settings-\w+", there, yaml.safe_dump_all(named))
    namespace.apply(list(yaml.safe_load_all(text)))
    yield namespace
    for one in named:
        namespace.kubectl("delete", one["kind"], "hpq-dashboard", "--ignore-not-found")


@contextmanager
def forward(namespace: Namespace, what: str, port: int) -> Iterator[str]:
    """`kubectl port-forward`; the URL of its local end."""
    process = subprocess.Popen(
        ["kubectl", "-n", namespace.name, "port-forward", what, f":{port}"],
        env=namespace.cluster.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert found, line
        yield f"http://localhost:{found[1]}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


def get(url: str, **headers: str) -> tuple[int, str]:
    try:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_page_and_metrics_are_there_without_a_worker_for_those_who_may_reach_them(
    dashboard: Namespace, laptop: Laptop
) -> None:
    dashboard.rolled_out("deployment/hpq-dashboard")
    (worker,) = dashboard.ready(WORKER)
    (pod,) = dashboard.pods(DASHBOARD)
    address, name = pod["status"]["podIP"], pod["metadata"]["name"]
    for port in (8765, 9108):  # a worker runs other people's code
        tried = dashboard.kubectl("exec", worker, "--", "sh", "-c", TRY.format(address, port))
        assert tried.strip() == "124", port
    dashboard.scale(0)
    laptop.write("t.py", "print(1)\n")
    sid = laptop.enqueue(SWEEP)
    wait_for(lambda: not dashboard.pods(WORKER), "no worker", tell=dashboard.tell)
    with ExitStack() as stack:
        pages = stack.enter_context(forward(dashboard, "svc/hpq-dashboard", 80))
        metrics = stack.enter_context(forward(dashboard, f"pod/{name}", 9108))
        assert get(f"{pages}/")[0] == 200 and sid in get(f"{pages}/")[1]
        assert get(f"{pages}/sweep/{sid}")[0] == 200
        assert get(f"{pages}/", Host=HOST)[0] == 200
        assert get(f"{pages}/", Host="evil.example")[0] == 421
        assert "read-only" in get(f"{pages}/sweep/{sid}")[1]
        found = wait_for(
            lambda: (
                'hpq_demand{queue="none"} 3.0' in (text := get(f"{metrics}/metrics")[1]) and text
            ),
            "the demand of a queue without a worker",
            tell=dashboard.tell,
        )
    assert "hpq_redis_up 1.0" in found
    assert 'hpq_trials_waiting{owner="tester",queue="none"} 3.0' in found
    laptop.ok("rm", sid, "--yes")
