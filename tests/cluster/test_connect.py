"""`hpq connect`: the cluster's Redis from a machine that has a kubeconfig and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cluster.kube import wait_for
from tests.cluster.outside import Outside
from tests.cluster.place import Namespace
from tests.commands import HPQ

SWEEP = """
trainer: hello:train
code: .
metric: {name: loss, goal: minimize}
parameters: {x: {values: [1, 2]}}
method: grid
"""


@pytest.fixture
def outside(namespace: Namespace, tmp_path: Path) -> Outside:
    """Somebody with this namespace's cluster in the kubeconfig."""
    return Outside(namespace, tmp_path)


def test_a_connection_in_the_background_serves_every_command_and_outlives_the_pod_of_redis(
    outside: Outside, namespace: Namespace
) -> None:
    outside.ok("connect", "--background", "--namespace", namespace.name)
    (record,) = (outside.home / "connect").glob("*.json")
    assert record.stat().st_mode & 0o777 == 0o600
    told = json.loads(outside.ok("connect", "--status", "--json"))
    os.kill(told["pid"], 0)
    password = namespace.secret("hpq-redis-producer", "password")
    assert password not in record.read_text() and told["namespace"] == namespace.name
    assert f"namespace {namespace.name}" in outside.ok("config")

    (outside.code / "hello.py").write_text("def train(params, trial): return {'loss': 1.0}\n")
    (outside.code / "sweep.yaml").write_text(SWEEP)
    sid = outside.ok("enqueue", "sweep.yaml").strip()  # signed with the cluster's key
    outside.ok("wait", sid)

    namespace.kubectl("delete", "pod", "hpq-redis-0", "--wait=false")
    namespace.rolled_out("statefulset/hpq-redis")
    wait_for(lambda: outside.hpq("audit", sid).returncode == 0, "a connection to the new pod")
    (worker,) = json.loads(outside.ok("workers", "--json"))
    assert worker["pod"]["name"] == namespace.ready()[0] and worker["pod"]["ready"]

    os.kill(told["pid"], signal.SIGKILL)
    lost = outside.hpq("ls")  # never another server in its place
    assert lost.returncode == 3 and "hpq connect --background --context" in lost.stderr
    assert not Path(told["password_file"]).exists()
    outside.ok("connect", "--stop")
    assert outside.left == [] and outside.hpq("connect", "--status").returncode == 3


def test_a_command_has_the_connection_for_its_length_and_nothing_stays_of_it(
    outside: Outside, namespace: Namespace
) -> None:
    words = ("connect", "--namespace", namespace.name, "--")
    done = outside.hpq(*words, "sh", "-c", f"{HPQ} ls --json && exit 7")
    assert done.returncode == 7 and isinstance(json.loads(done.stdout), list)
    wait_for(lambda: outside.left == [], "the end of its connection")
    with subprocess.Popen(
        [HPQ, *words, "sh", "-c", "echo on; exec sleep 100"],
        env=outside.env,
        stdout=subprocess.PIPE,
        text=True,
    ) as shell:
        assert shell.stdout is not None and shell.stdout.readline() == "on\n"
        assert outside.left
        shell.kill()
    wait_for(lambda: outside.left == [], "the end of a connection whose shell was killed")


def test_who_cannot_come_in_is_told_which_object_and_what_to_do(
    outside: Outside, namespace: Namespace
) -> None:
    def refused(*words: object, **env: str) -> tuple[int, str]:
        done = outside.hpq("connect", *words, "--", "true", **env)
        (line,) = done.stderr.splitlines()
        return done.returncode, line

    here = ("--namespace", namespace.name)
    assert refused("--context", "nope") == (
        2,
        "hpq: --context nope: the kubeconfig has testcluster",
    )
    code, line = refused("--namespace", "hpq-nowhere")
    assert code == 4 and "no namespace hpq-nowhere" in line
    scaled = outside.hpq("scale", 1, "--namespace", "hpq-nowhere", HPQ_REDIS_URL="redis://[::1]:1")
    assert scaled.returncode == 4 and "no namespace hpq-nowhere" in scaled.stderr, scaled.stderr
    code, line = refused(*here, KUBECONFIG="/nowhere")
    assert code == 3 and "no cluster" in line

    namespace.kubectl("create", "serviceaccount", "looks")
    namespace.kubectl(
        "create", "rolebinding", "looks", "--role=hpq-viewer",
        f"--serviceaccount={namespace.name}:looks",
    )  # fmt: skip
    theirs = outside.code / "kubeconfig"
    theirs.write_text(Path(outside.env["KUBECONFIG"]).read_text())
    run = namespace.cluster.run
    token = namespace.kubectl("create", "token", "looks").strip()
    run("kubectl", f"--kubeconfig={theirs}", "config", "set-credentials", "admin", "--token", token)
    code, line = refused(*here, KUBECONFIG=str(theirs))
    assert code == 4 and 'secrets "hpq-redis-producer"' in line and "--role viewer" in line
    looks = ("connect", *here, "--role", "viewer", "--", HPQ, "workers")
    assert namespace.ready()[0] in outside.ok(*looks, KUBECONFIG=str(theirs))
