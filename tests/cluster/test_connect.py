"""`hpq connect`: the cluster's Redis from a machine that has a kubeconfig and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.kube import wait_for
from tests.cluster.outside import Outside
from tests.cluster.place import Namespace
from tests.support.commands import HPQ
from tests.support.ids import ids

SWEEP = """
trainer: hello:train
code: .
metric: {name: loss, goal: minimize}
parameters: {x: {values: [1, 2]}}
method: grid
"""


# Every byte, and more than one message of the stream.
LEAVES = """
import os

def train(params, trial):
    with open("model.bin", "wb") as file:
        file.write(bytes(range(256)) * 4 + os.urandom(3 << 20))
    trial.save("model.bin")
    return {"loss": 1.0}
"""


@pytest.fixture
def outside(namespace: Namespace, tmp_path: Path) -> Iterator[Outside]:
    """Somebody with this namespace's cluster in the kubeconfig; no connection of theirs stays."""
    made = Outside(namespace, tmp_path)
    yield made
    made.hpq("connect", "--stop")


def bound_to(role: str, outside: Outside) -> str:
    """The kubeconfig of somebody whom this Role lets into the namespace."""
    namespace, name = outside.namespace, f"has-{role}"
    namespace.kubectl("create", "serviceaccount", name)
    namespace.kubectl(
        "create", "rolebinding", name, f"--role={role}", f"--serviceaccount={namespace.name}:{name}"
    )
    theirs = outside.code / f"kubeconfig-{role}"
    theirs.write_text(Path(outside.env["KUBECONFIG"]).read_text())
    token = namespace.kubectl("create", "token", name).strip()
    config = ("kubectl", f"--kubeconfig={theirs}", "config", "set-credentials", "admin")
    namespace.cluster.run(*config, "--token", token)
    return str(theirs)


def test_a_connection_in_the_background_serves_every_command_and_outlives_the_pod_of_redis(
    outside: Outside, namespace: Namespace
) -> None:
    outside.ok("connect", "--namespace", namespace.name)
    (record,) = (outside.home / "connect").glob("*.json")
    assert record.stat().st_mode & 0o777 == 0o600
    told = json.loads(outside.ok("connect", "--status", "--json"))
    os.kill(told["pid"], 0)
    password = namespace.secret("hpq-redis-producer", "password")
    assert password not in record.read_text() and told["namespace"] == namespace.name
    assert f"namespace {namespace.name}" in outside.ok("doctor", "--settings")

    (outside.code / "hello.py").write_text("def train(params, trial): return {'loss': 1.0}\n")
    (outside.code / "sweep.yaml").write_text(SWEEP)
    sid = outside.ok("enqueue", "sweep.yaml").strip()  # signed with the cluster's key
    outside.ok("wait", sid)

    namespace.kubectl("delete", "pod", "hpq-redis-0", "--wait=false")
    namespace.rolled_out("statefulset/hpq-redis")
    wait_for(lambda: outside.hpq("audit", sid).returncode == 0, "a connection to the new pod")
    (pod,) = namespace.wait_ready(1)  # it may have lost its readiness with Redis
    (worker,) = wait_for(
        lambda: [
            w for w in json.loads(outside.hpq("workers", "--json").stdout or "[]") if w["pod"]
        ],
        "the worker to say again that it is there",
    )
    assert worker["pod"]["name"] == pod

    os.kill(told["pid"], signal.SIGKILL)
    lost = outside.hpq("ls")  # never another server in its place
    assert (lost.returncode, ids(lost.stderr)) == (3, ["connection-ended"]), lost.stderr
    assert not Path(told["password_file"]).exists()
    outside.ok("connect", "--stop")
    assert outside.left == [] and outside.hpq("connect", "--status").returncode == 3


def test_who_cannot_come_in_is_told_which_object_and_what_to_do(
    outside: Outside, namespace: Namespace
) -> None:
    def refused(*words: object, **env: str) -> tuple[int, str]:
        done = outside.hpq("connect", *words, **env)
        (line,) = done.stderr.splitlines()
        return done.returncode, line

    here = ("--namespace", namespace.name)
    code, line = refused("--context", "nope")
    assert (code, ids(line)) == (2, ["context-unknown"]) and "testcluster" in line
    code, line = refused("--namespace", "hpq-nowhere")
    assert (code, ids(line)) == (4, ["cluster-object-missing"]) and "hpq-nowhere" in line
    code, line = refused(*here, KUBECONFIG="/nowhere")
    assert (code, ids(line)) == (3, ["kubeconfig-unusable"])

    theirs = bound_to("hpq-viewer", outside)
    code, line = refused(*here, KUBECONFIG=theirs)
    assert (code, ids(line)) == (4, ["cluster-forbidden"])
    assert 'secrets "hpq-redis-producer"' in line and "--role viewer" in line
    outside.ok("connect", *here, "--role", "viewer", KUBECONFIG=theirs)
    assert namespace.ready()[0] in outside.ok("workers", KUBECONFIG=theirs)


def test_a_file_in_the_clusters_store_is_copied_by_the_command_that_get_prints(
    outside: Outside, namespace: Namespace
) -> None:
    outside.ok("connect", "--namespace", namespace.name)
    (outside.code / "hello.py").write_text(LEAVES)
    (outside.code / "sweep.yaml").write_text(SWEEP)
    sid = outside.ok("enqueue", "sweep.yaml").strip()
    outside.ok("wait", sid)
    printed = outside.hpq("get", f"{sid}/1", "model.bin", "--out", "a model")
    assert (printed.returncode, ids(printed.stderr)) == (2, ["store-differs"]), printed.stderr
    line = printed.stderr[printed.stderr.index("kubectl ") : printed.stderr.rindex(" [")]
    subprocess.run(["sh", "-c", line], env=outside.env, cwd=outside.code, check=True)
    (kept,) = namespace.volume("hpq-store").glob(f"hpq/{sid}/1/*/artifacts/model.bin")
    assert (outside.code / "a model").read_bytes() == kept.read_bytes()


def test_wait_and_watch_in_lines_say_by_the_pods_why_nobody_takes_a_sweep(
    outside: Outside, namespace: Namespace
) -> None:
    outside.ok("connect", "--namespace", namespace.name)
    (outside.code / "hello.py").write_text(LEAVES)
    (outside.code / "sweep.yaml").write_text(f"{SWEEP}queue: big\n")
    sid = outside.ok("enqueue", "sweep.yaml").strip()
    for words in (["wait"], ["watch"]):
        with subprocess.Popen(
            [HPQ, *words, sid],
            env=outside.env | {"PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert any(ids(line) == ["no-deployment"] for line in process.stdout)
            process.kill()
    outside.ok("cancel", sid, "--yes")
