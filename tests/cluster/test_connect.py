"""`hpq connect`: the cluster's Redis from a machine that has a kubeconfig and nothing else."""

from __future__ import annotations

import base64
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
            w
            for w in json.loads(outside.hpq("workers", "--json").stdout or "[]")
            if w["pod"] and w["pod"].get("ready")
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


def test_people_who_are_invited_at_a_time_lose_no_line_of_the_next_start(
    outside: Outside, namespace: Namespace
) -> None:
    outside.ok("connect", "--namespace", namespace.name)
    people = [f"guest{number}" for number in range(4)]
    words = [[HPQ, "invite", "--user", name] for name in people]
    running = [
        subprocess.Popen(one, env=outside.env, stderr=subprocess.PIPE, text=True) for one in words
    ]
    said = [process.communicate()[1] for process in running]
    done = {process.returncode: ids(text) for process, text in zip(running, said, strict=True)}
    assert done.items() <= {0: [], 2: ["cluster-refused"]}.items() and 0 in done, said
    secret = namespace.get("secret", "hpq-redis-users")
    lines = base64.b64decode(secret["data"]["users.acl"]).decode()
    for name, process in zip(people, running, strict=True):
        assert (f"user hpq-user-{name} " in lines) == (process.returncode == 0), said
    for name, process in zip(people, running, strict=True):
        if process.returncode == 0:
            outside.ok("invite", "--user", name, "--revoke")


def test_a_person_connects_with_a_secret_of_their_own_until_it_is_revoked(
    outside: Outside, namespace: Namespace
) -> None:
    here = ("--namespace", namespace.name)
    theirs = bound_to("hpq-member", outside)
    outside.ok("connect", *here)
    outside.ok("invite", "--user", "ana")
    outside.ok("connect", "--stop")
    done = outside.hpq("connect", *here, "--user", "ana", KUBECONFIG=theirs)
    assert (done.returncode, ids(done.stderr)) == (4, ["cluster-forbidden"])
    role = ("--verb=get", "--resource=secrets", "--resource-name=hpq-user-ana")
    namespace.kubectl("create", "role", "hpq-user-ana", *role)
    account = f"--serviceaccount={namespace.name}:has-hpq-member"
    namespace.kubectl("create", "rolebinding", "ana", "--role=hpq-user-ana", account)
    outside.ok("connect", *here, "--user", "ana", KUBECONFIG=theirs)
    (outside.code / "hello.py").write_text(LEAVES)
    (outside.code / "sweep.yaml").write_text(SWEEP)
    sid = outside.ok("enqueue", "sweep.yaml", KUBECONFIG=theirs).strip()
    outside.ok("wait", sid)
    (mine,) = (one for one in json.loads(outside.ok("ls", "--json")) if one["id"] == sid)
    assert mine["owner"] == "ana"
    outside.ok("connect", "--stop")
    outside.ok("connect", *here)
    outside.ok("invite", "--user", "ana", "--revoke")
    assert namespace.kubectl("get", "secrets", "hpq-user-ana", "--ignore-not-found") == ""
