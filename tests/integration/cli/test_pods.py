"""What commands say of a cluster in which no pod runs: the same words, read while nothing runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from hpq.access import connection_record
from hpq.access.connection_record import BACKGROUND, ConnectionRecord
from hpq.access.session import open_session
from hpq.domain.attempt import WorkerPresence
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from hpq_views.text.style import TerminalInfo
from hpq_views.watch.keys import View
from hpq_views.watch.scene import SceneReader
from hpq_views.why import pods
from hpq_views.why.pods import PodReasons
from tests.support.desk import Desk
from tests.support.kube_api import SEEN, KubeApi, workers

SWEEP = "program: train.py\nmetric: {name: loss}\nmethod: grid\nparameters: {x: {values: [1, 2]}}\n"
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


def test_while_a_worker_is_live_no_command_reads_the_pods(
    connected: Desk, api: KubeApi, store: TrialStore
) -> None:
    who = WorkerPresence(name="w1", host="h", queue="default", fields={"pod": "p1"})
    store.present(who, idle=True, lifetime_ms=600_000)
    connected.sweep(SWEEP)
    for words in COMMANDS:
        connected.hpq(*words)
    assert api.asked == []


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
