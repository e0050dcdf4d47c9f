"""`hpq doctor` on the store of files: whether there is one, and whether it can be written."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from hpq.domain.attempt import WorkerPresence
from hpq.settings import read
from hpq.store.trials import TrialStore
from hpq_ops.doctor.checkup import checkup
from tests.support.data_files import mnist_files

Hpq = Callable[..., subprocess.CompletedProcess[str]]
Found = dict[str, dict[str, str]]


def findings(done: subprocess.CompletedProcess[str]) -> Found:
    """The findings of `hpq doctor --json` by their ids."""
    return {one["code"]: one for one in json.loads(done.stdout)}


def test_doctor_says_whether_there_is_a_store(hpq: Hpq, redis: Redis) -> None:
    done = hpq("doctor", "--json")
    found = findings(done)["no-store"]
    assert done.returncode == 0 and found["level"] == "note"
    assert "HPQ_STORE=/a/directory/that/all/workers/see" in found["remedy"]


def test_doctor_of_a_private_server_needs_no_store(hpq: Hpq, environ: dict[str, str]) -> None:
    found = findings(hpq("doctor", "--json", HPQ_REDIS_URL=""))["no-store"]
    assert found["level"] == "good" and "home/store" in found["what"]


def test_doctor_writes_to_the_store_and_leaves_nothing(
    hpq: Hpq, redis: Redis, tmp_path: Path
) -> None:
    shelf = tmp_path / "shelf"
    found = findings(hpq("doctor", "--json", HPQ_STORE=str(shelf)))["store-works"]
    mark = (shelf / ".hpq-store").read_text().strip()
    assert found["level"] == "good" and str(shelf) in found["what"] and mark in found["what"]
    assert [p.name for p in shelf.rglob("*")] == [".hpq-store"]
    # A file stands where the folder of the prefix would: root may write any directory.
    (shelf / "hpq").touch()
    done = hpq("doctor", "--json", HPQ_STORE=str(shelf))
    found = findings(done)["store-unwritable"]
    assert (done.returncode, found["level"]) == (2, "wrong") and found["remedy"]
    assert "in place of a folder" in found["what"]


def test_a_data_directory_that_does_not_exist_is_a_wrong_setting(hpq: Hpq, redis: Redis) -> None:
    done = hpq("doctor", "--json", HPQ_DATA="/no/such/directory")
    found = findings(done)["no-data"]
    assert (done.returncode, found["level"]) == (2, "wrong")
    assert "/no/such/directory" in found["what"] and "hpq data" in found["remedy"]


def test_doctor_names_the_data_sets_of_this_machine(hpq: Hpq, redis: Redis, tmp_path: Path) -> None:
    found = findings(hpq("doctor", "--json"))["no-data"]
    assert found["level"] == "note" and "hpq data mnist" in found["remedy"]
    raw = tmp_path / "home" / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, content in mnist_files().items():
        (raw / name).write_bytes(content)
    found = findings(hpq("doctor", "--json"))["data-found"]
    assert found["level"] == "good" and "mnist" in found["what"] and "cifar10" not in found["what"]
    assert str(tmp_path / "home" / "data") in found["what"]


def test_doctor_breaks_no_word_on_a_narrow_terminal(hpq: Hpq, redis: Redis) -> None:
    lines = hpq("doctor", COLUMNS="44").stdout.splitlines()
    assert all(len(line) <= 44 for line in lines)
    said = "".join("".join(lines).split())
    for found in findings(hpq("doctor", "--json")).values():
        assert "".join(found["what"].split()) in said


def test_doctor_names_workers_without_a_store(hpq: Hpq, store: TrialStore) -> None:
    for name, has in (("w1", "yes"), ("w2", "no")):
        fields = {"state": "idle", "store": has}
        who = WorkerPresence(name=name, host="h", queue="default", fields=fields)
        store.present(who, idle=True, lifetime_ms=600_000)
    found = findings(hpq("doctor", "--json"))["workers-without-store"]
    assert found["what"].startswith("1 ") and "w2" in found["what"]
    assert "hpq manifests" not in found["remedy"]
    fields = {"state": "idle", "store": "no", "pod": "hpq-worker-1"}
    who = WorkerPresence(name="w3", host="h", queue="default", fields=fields)
    store.present(who, idle=True, lifetime_ms=600_000)
    found = findings(hpq("doctor", "--json"))["workers-without-store"]
    assert found["what"].startswith("2 ") and "`store: {}` in cluster.yaml" in found["remedy"]


def test_doctor_names_acl_users_that_a_restart_would_lose(
    hpq: Hpq, redis: Redis, redis_url: str
) -> None:
    rules = ("on", ">x", "~*", "+@all", "-acl", "-config")
    redis.execute_command("ACL", "SETUSER", "hpq-worker", *rules)
    try:
        ours = findings(hpq("doctor", "--json"))
        theirs = hpq("doctor", "--json", HPQ_REDIS_URL=redis_url.replace("://", "://hpq-worker:x@"))
    finally:
        redis.execute_command("ACL", "DELUSER", "hpq-worker")
    assert ours["acl-unsaved"]["level"] == "poor"
    assert "`hpq redis-acl --aclfile`" in ours["acl-unsaved"]["remedy"]
    found = findings(theirs)
    assert "redis-answers" in found and "acl-unsaved" not in found  # it may not ask
    assert "acl-unsaved" not in findings(hpq("doctor", "--json"))


def test_of_a_cluster_without_workers_only_the_checks_of_the_cluster_say_what_to_do(
    redis: Redis, redis_url: str
) -> None:
    settings = read({"HPQ_REDIS_URL": redis_url, "HPQ_PREFIX": "nobody"})
    found = checkup(settings, in_cluster=True)
    assert [one.remedy for one in found if one.code == "no-worker"] == [""]
    assert not any("HPQ_STORE" in one.what for one in found)


@pytest.mark.torch
def test_doctor_compares_the_driver_with_torch(
    hpq_process: Hpq, redis: Redis, tmp_path: Path
) -> None:
    """On a machine with GPUs, by an nvidia-smi of the test's own; the tests' torch is for CPUs."""
    import torch  # noqa: PLC0415

    told = tmp_path / "nvidia-smi"
    told.write_text("""#!/bin/sh
case "$*" in *query-gpu*) echo "NVIDIA A100, 470.57.02";; *) echo "| CUDA Version: 11.4 |";; esac
""")
    told.chmod(0o755)
    found = findings(hpq_process("doctor", "--json", PATH=f"{tmp_path}:/usr/bin:/bin"))
    assert "NVIDIA A100" in str(found)
    built = torch.version.cuda
    assert (built.split(".")[0] if built else "CUDA") in found["cuda-mismatch"]["what"]
