"""What commands say of a cluster in which no pod runs, or fewer than were asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from hpq.access import connection_record
from hpq.access.connection_record import BACKGROUND, ConnectionRecord
from hpq.access.session import open_session
from hpq.domain.attempt import WorkerPresence
from hpq.errors import OutOfReach
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from hpq_views.text.style import TerminalInfo
from hpq_views.watch.keys import View
from hpq_views.watch.scene import SceneReader
from hpq_views.why import pods
from hpq_views.why.pods import PodReasons
from tests.support.desk import Desk
from tests.support.kube_api import SEEN, KubeApi, pod, workers

SWEEP = "program: train.py\nmetric: {name: loss}\nmethod: grid\nparameters: {x: {values: [1, 2]}}\n"
DIGITS = SWEEP.replace("program: train.py", "trainer: digits").replace("{x:", "{hidden:")
QUOTA = (
    'pods "p" is forbidden: exceeded quota: few, requested: cpu=1,pods=1, used: cpu=2,pods=2,'
    " limited: cpu=8,pods=2"
)
FIELDS = {"pod": "p1", "takes": json.dumps(["digits"])}
READY = pod("p1", conditions=[{"type": "Ready", "status": "True"}])
COMMANDS = (
    ["enqueue", "sweep.yaml", "--new"],
    ["ls"],
    ["show"],
    ["wait", "--timeout", "0"],
    ["watch", "--once"],
    ["workers"],
    ["doctor"],
)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeApi]:
    """An API server with a pod that no node has the GPUs for; time stands still."""
    found = KubeApi({"deployments": [workers(3)], "pods": [SEEN["gpu"]]}, "moon", "apollo")
    monkeypatch.setattr(pods, "KubernetesApi", lambda context, namespace, timeout_s: found)
    reasons = cache(lambda context, namespace: PodReasons(context, namespace, lambda: 0.0))
    monkeypatch.setattr(pods, "_reasons_in", reasons)
    yield found


@pytest.fixture
def connected(
    desk: Desk, api: KubeApi, port: int, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    """A user whose Redis is reached by a connection to the cluster."""
    home = Path(os.environ["HPQ_HOME"])
    lock = connection_record.acquire_lock(home, BACKGROUND)
    assert lock is not None
    record = ConnectionRecord(
        pid=os.getpid(), port=port, context="moon", namespace="apollo", service="hpq-redis",
        user="hpq-producer", prefix="hpq", password_file="/dev/null",
    )  # fmt: skip
    connection_record.write_record(home, record)
    monkeypatch.setenv("HPQ_REDIS_URL", f"redis://127.0.0.1:{port}")
    monkeypatch.setenv("COLUMNS", "400")
    yield desk
    os.close(lock)


def test_every_command_prints_the_words_of_one_reading(connected: Desk, api: KubeApi) -> None:
    sid = connected.sweep(SWEEP)
    (why,) = PodReasons("moon", "apollo").of("default")
    api.asked.clear()
    said = {}
    for words in COMMANDS:
        done = connected.hpq(*words)
        said[words[0]] = done.stdout + done.stderr
    assert [name for name, text in said.items() if why.text not in text] == []
    assert why.text in connected.hpq("watch", sid, "--once", "-o", "json").stdout
    assert api.asked == []  # the first enqueue has read them


def live(store: TrialStore) -> None:
    """Register a worker of queue `default` that claims nothing."""
    who = WorkerPresence(name="w1", host="h", queue="default", fields=FIELDS)
    store.present(who, idle=True, lifetime_ms=600_000)


def test_beside_a_live_worker_only_workers_and_wait_read_the_pods(
    connected: Desk, api: KubeApi, store: TrialStore
) -> None:
    live(store)
    connected.sweep(SWEEP)
    for words in COMMANDS:
        if words[0] not in ("workers", "wait"):
            connected.hpq(*words)
    assert api.asked == []


@pytest.mark.parametrize("command", [["workers"], ["wait", "--timeout", "0"]])
@pytest.mark.parametrize(
    ("ready", "refusal", "names"),
    [
        (2, QUOTA, "pods-refused few 2 of 3"),
        (3, QUOTA, ""),  # an earlier refusal
        (2, "", ""),  # the third starts
    ],
)
def test_a_pod_that_a_quota_refuses_is_named_beside_two_workers(
    command: list[str],
    ready: int,
    refusal: str,
    names: str,
    connected: Desk,
    api: KubeApi,
    store: TrialStore,
) -> None:
    live(store)
    connected.sweep(DIGITS)
    api.has |= {"deployments": [workers(3, ready=ready, refusal=refusal)], "pods": [READY]}
    done = connected.hpq(*command)
    text = done.stdout + done.stderr
    assert "w1" in text or command[0] == "wait"
    assert all(name in text for name in names.split()) and ("pods-" in text) == bool(names), text
    api.has["deployments"] = OutOfReach("away", code="cluster-unreachable")
    assert connected.hpq(*command).returncode == done.returncode


def test_a_live_view_reads_the_pods_once_in_10_s(
    connected: Desk, api: KubeApi, reader: StoreReader
) -> None:
    sid = connected.sweep(SWEEP)
    with open_session() as session:
        scenes = SceneReader(reader, session)
        for _ in range(5):
            scene = scenes.read(View(sweep=sid), TerminalInfo(columns=80, rows=24))
            assert scene.not_taken and scene.not_taken.code == "pod-trouble"
    assert api.asked == ["deployments", "pods"]
