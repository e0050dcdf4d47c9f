"""A connection in the background, as every other command meets it (its process is this one)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from hpq.access import connection_record
from hpq.access.connection_record import BACKGROUND, ConnectionRecord
from hpq.domain.attempt import Outcome
from hpq.domain.trial import Artifacts, TrialState
from hpq.filestore.base import folder_of
from tests.support.ids import ids, refused


@pytest.fixture
def away(environ: dict[str, str], redis_url: str) -> dict[str, str]:
    """Without HPQ_REDIS_URL."""
    return {"HPQ_REDIS_URL": ""}


@pytest.fixture
def connection(environ: dict[str, str], tmp_path: Path) -> Iterator[ConnectionRecord]:
    """A record whose process lives."""
    home = Path(environ["HPQ_HOME"])
    (tmp_path / "password").write_text("secret")
    lock = connection_record.acquire_lock(home, BACKGROUND)
    assert lock is not None and connection_record.acquire_lock(home, BACKGROUND) is None
    found = ConnectionRecord(
        pid=os.getpid(), port=1, context="moon", namespace="apollo",
        service="hpq-redis", user="team-producer", prefix="team",
        password_file=str(tmp_path / "password"),
    )  # fmt: skip
    connection_record.write_record(home, found)
    yield found
    os.close(lock)


def test_a_connection_stands_for_the_settings_that_are_not_set(hpq, away, connection) -> None:
    told = json.loads(hpq("doctor", "--settings", "--json", **away).stdout)
    assert told["connection"] == connection.where and told["HPQ_PREFIX"] == "team"
    assert told["HPQ_REDIS_URL"].startswith("redis://team-producer@127.0.0.1:1/0")
    assert "Service hpq-redis" in hpq("doctor", "--settings", COLUMNS="300", **away).stdout
    assert connection.url in hpq("connect", "--status", **away).stderr


def test_the_record_of_another_version_of_hpq_is_read(environ, connection) -> None:
    (file,) = Path(environ["HPQ_HOME"]).rglob("background.json")
    file.write_text(json.dumps({"name": BACKGROUND, **json.loads(file.read_text("utf-8"))}))
    assert connection_record.read_record(Path(environ["HPQ_HOME"])) == connection


@pytest.mark.parametrize("words", [["--role", "viewer"], ["--port", "2"], ["--namespace", "b"]])
def test_another_connection_is_not_taken_for_the_one_that_is_asked_for(
    hpq, away, words: list[str], connection
) -> None:
    assert hpq("connect", "--port", 1, **away).returncode == 0
    done = hpq("connect", *words, **away)
    refused(done, "connected-already", "hpq connect --stop")


def test_a_connection_by_tls_names_the_ca_that_it_brought(connection) -> None:
    secure = replace(connection, scheme="rediss", ca_file="/proc/7/fd/8")
    url = "rediss://team-producer@127.0.0.1:1/0?ssl_ca_certs=/proc/7/fd/8"
    assert secure.environ()["HPQ_REDIS_URL"] == url


def test_a_password_that_was_changed_is_told_with_the_connection(
    hpq, environ, away, connection, port: int
) -> None:
    connection_record.write_record(
        Path(environ["HPQ_HOME"]), replace(connection, port=port, user="team-viewer")
    )
    done = hpq("ls", **away)
    refused(done, "redis-password-refused", "team-viewer", exit=4)
    assert "HPQ_REDIS_URL" not in done.stderr


def test_hpq_redis_url_goes_before_a_connection(hpq, redis_url: str, connection) -> None:
    told = json.loads(hpq("doctor", "--settings", "--json").stdout)
    assert told["connection"] is None and told["HPQ_PREFIX"] == "hpq"
    assert urlsplit(told["HPQ_REDIS_URL"]).path == urlsplit(redis_url).path


def test_what_a_connection_knows_of_its_trouble_is_what_a_command_says(
    hpq, environ, away, connection
) -> None:
    trouble = "no ready pod behind Service hpq-redis"
    connection_record.write_record(Path(environ["HPQ_HOME"]), _troubled(connection, trouble))
    done = hpq("ls", **away)
    refused(done, "connection-lost", f"{connection.where}: {trouble}", exit=3)
    status = hpq("connect", "--status", **away)
    assert status.returncode == 3 and trouble in status.stderr


@pytest.mark.parametrize("words", [["worker"], ["run", "sweep.yaml"]])
def test_what_trains_on_this_machine_refuses_beside_a_connection(
    hpq, away, tmp_path: Path, words: list[str], connection
) -> None:
    (tmp_path / "sweep.yaml").write_text(
        "trainer: digits\nmetric: {name: loss, goal: minimize}\nmethod: grid\n"
        "parameters: {epochs: {value: 1}}\n"
    )
    done = hpq(*words, **away)
    assert done.returncode != 0 and "hpq connect --stop" in done.stderr, done.stderr


def test_pods_have_samplers_of_their_own(
    hpq, environ, connection, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection_record.write_record(Path(environ["HPQ_HOME"]), replace(connection, port=port))
    monkeypatch.setitem(sys.modules, "optuna", None)
    (tmp_path / "sweep.yaml").write_text(
        "trainer: digits\nmetric: {name: loss, goal: minimize}\nmethod: bayes\n"
        "parameters: {max_learning_rate: {min: 0.1, max: 1.0}}\n"
    )
    here = hpq("enqueue", "sweep.yaml")
    assert "pip install optuna" in here.stderr, here.stderr
    there = hpq("enqueue", "sweep.yaml", "--new", HPQ_REDIS_URL=f"redis://127.0.0.1:{port}/0")
    assert there.returncode == 0 and "optuna" not in there.stderr, there.stderr


@pytest.mark.parametrize("words", [["worker"], ["worker", "--sweep", "demo-00000"]])
def test_no_worker_starts_with_the_rights_of_a_connections_user(
    hpq, environ, connection, port: int, words: list[str]
) -> None:
    shell = replace(connection, port=port)
    connection_record.write_record(Path(environ["HPQ_HOME"]), shell)
    done = hpq(*words, **shell.environ())
    refused(done, "workers-are-pods", shell.where)
    assert done.stderr.count("\n") == 1


def test_one_that_was_killed_is_never_replaced_by_another_server(
    hpq, environ, away, connection
) -> None:
    home = Path(environ["HPQ_HOME"])
    connection_record.write_record(home, connection)
    other = {**away, "HPQ_HOME": str(home.with_name("other"))}
    record = connection_record.records_folder(Path(other["HPQ_HOME"]))
    record.mkdir(parents=True)
    (record / "background.json").write_text(
        (connection_record.records_folder(home) / "background.json").read_text()
    )
    done = hpq("ls", **other)
    command = "hpq connect --context moon --namespace apollo"
    refused(done, "connection-ended", command, exit=3)
    assert hpq("connect", "--stop", **other).returncode == 0
    assert list(record.glob("*.json")) == []


def test_a_stop_ends_the_process_that_holds_the_lock_and_no_other(
    hpq, environ, away, connection
) -> None:
    home = Path(environ["HPQ_HOME"]).with_name("other")
    other = {**away, "HPQ_HOME": str(home)}
    connection_record.records_folder(home).mkdir(parents=True)
    stranger = subprocess.Popen(["sleep", "600"])
    connection_record.write_record(
        home, replace(connection, pid=stranger.pid)
    )  # killed, and its pid given anew
    words = [sys.executable, "-c", _HOLDS, str(home)]
    starting = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        assert starting.stdout is not None and starting.stdout.readline() == b"held\n"
        seen = hpq("ls", **other)
        done = hpq("connect", "--stop", **other)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
        assert stranger.poll() is None
        assert starting.wait() == -signal.SIGTERM
        refused(seen, "connection-changing", exit=3)
    finally:
        for one in (stranger, starting):
            one.kill()
            one.communicate()


_HOLDS = """
import sys, time
from pathlib import Path
from hpq.domain.attempt import Outcome
from hpq.domain.trial import Artifacts, TrialState
from hpq.access import connection_record

held = connection_record.acquire_lock(Path(sys.argv[1]), connection_record.BACKGROUND)
print("held", flush=True)
time.sleep(600)
"""


def _troubled(found: ConnectionRecord, trouble: str) -> ConnectionRecord:
    return replace(found, trouble=trouble)


@pytest.mark.parametrize("words", [["watch"], ["watch", "--once"], ["wait"]])
def test_where_redis_is_a_clusters_nobody_is_told_to_start_a_worker_here(
    environ: dict[str, str], connection, port: int, sweep_of, tmp_path: Path, words: list[str]
) -> None:
    connection_record.write_record(Path(environ["HPQ_HOME"]), replace(connection, port=port))
    sweep_of(1)
    own = {"HPQ_REDIS_URL": f"redis://127.0.0.1:{port}/0", "PYTHONUNBUFFERED": "1"}
    own |= {"KUBECONFIG": str(tmp_path / "none"), "COLUMNS": "300"}  # its pods are not to be seen
    with subprocess.Popen(
        [sys.executable, "-m", "hpq_producer", *words, "demo-00000"],
        env={**environ, **own},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        said = next(line for line in process.stdout if "'default'" in line)
        process.kill()
    assert (
        "scale deployment/hpq-worker --replicas=N`" in said
        and "hpq worker\n" not in said.replace(" [no-worker]", "")
    )


def test_where_a_trial_in_a_cluster_left_no_files_it_is_told_how_pods_get_a_store(
    hpq, environ: dict[str, str], connection, port: int, sweep_of, store, take
) -> None:
    connection_record.write_record(Path(environ["HPQ_HOME"]), replace(connection, port=port))
    sweep_of(1)
    store.commit(take(), Outcome(state=TrialState.FINISHED, objective=1.0, step=1))
    done = hpq("get", "demo-00000/1", HPQ_REDIS_URL=f"redis://127.0.0.1:{port}/0")
    assert done.returncode == 4 and "`store: {}` in cluster.yaml" in done.stderr, done.stderr
    assert "manifests" not in hpq("get", "demo-00000/1").stderr


def test_a_file_in_the_volume_of_pods_is_copied_by_the_command_that_get_prints(
    hpq, environ: dict[str, str], connection, port: int, sweep_of, store, take, tmp_path: Path
) -> None:
    connection_record.write_record(Path(environ["HPQ_HOME"]), replace(connection, port=port))
    sweep_of(1)
    claim = take()
    at = f"{folder_of('hpq', claim.trial, claim.token)}/artifacts"
    left = Artifacts(store="abcd1234", path=at, files={"my model's": 7})
    store.commit(claim, Outcome(state=TrialState.FINISHED, objective=1.0, step=1, artifacts=left))
    printed = hpq(
        *("get", "demo-00000/1", "my model's", "--out", tmp_path / "a copy"),
        HPQ_REDIS_URL=f"redis://127.0.0.1:{port}/0",
    )
    assert (printed.returncode, ids(printed.stderr)) == (2, ["store-differs"]), printed.stderr
    line = printed.stderr[printed.stderr.index("kubectl ") : printed.stderr.rindex(" [")]
    (tmp_path / "volume" / at).mkdir(parents=True)
    (tmp_path / "volume" / at / "my model's").write_bytes(b"weights")
    kubectl = tmp_path / "kubectl"  # runs the command here, as in a pod
    kubectl.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    kubectl.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HPQ_STORE": str(tmp_path / "volume")}
    subprocess.run(["sh", "-c", line], env=path, check=True)
    assert (tmp_path / "a copy").read_bytes() == b"weights"


def test_what_is_to_be_typed_quotes_the_name_of_a_context_that_needs_it(
    hpq, environ: dict[str, str], away
) -> None:
    of = {"service": "hpq-redis", "user": "team-producer", "prefix": "hpq", "password_file": "p"}
    there = ConnectionRecord(pid=1, port=1, context="my moon", namespace="apollo", **of)
    connection_record.records_folder(Path(environ["HPQ_HOME"])).mkdir(parents=True)
    connection_record.write_record(Path(environ["HPQ_HOME"]), there)  # of a process that has ended
    done = hpq("ls", **away)
    words = "hpq connect --context 'my moon' --namespace apollo)"
    refused(done, "connection-ended", words, exit=3)
    assert (
        connection_record.kubectl_command("my moon", "apollo")
        == "kubectl --context 'my moon' -n apollo"
    )
    plain = "arn:aws:eks:eu-west-1:123456789012:cluster/moon"
    assert (
        connection_record.kubectl_command(plain, "apollo") == f"kubectl --context {plain} -n apollo"
    )
