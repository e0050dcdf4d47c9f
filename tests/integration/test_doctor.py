"""`hpq doctor` on the store of files: whether there is one, and whether it can be written."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from hpq.outcome import Presence
from hpq.settings import read
from hpq.store import Store
from producer.checkup import checkup

Hpq = Callable[..., subprocess.CompletedProcess[str]]


def test_doctor_says_whether_there_is_a_store(hpq: Hpq, redis: Redis) -> None:
    found = hpq("doctor")
    assert found.returncode == 0
    assert "note    HPQ_STORE is not set here" in found.stdout
    assert "HPQ_STORE=/a/directory/that/all/workers/see" in found.stdout


def test_doctor_writes_to_the_store_and_leaves_nothing(
    hpq: Hpq, redis: Redis, tmp_path: Path
) -> None:
    shelf = tmp_path / "shelf"
    found = hpq("doctor", HPQ_STORE=str(shelf))
    mark = (shelf / ".hpq-store").read_text().strip()
    assert f"good    HPQ_STORE={shelf} can be written; its id is {mark}" in found.stdout
    assert [p.name for p in shelf.rglob("*") if p.is_file()] == [".hpq-store"]
    # A file stands where the folder of the prefix would: root may write any directory.
    (shelf / "hpq").rmdir()
    (shelf / "hpq").touch()
    found = hpq("doctor", HPQ_STORE=str(shelf))
    assert f"wrong   HPQ_STORE={shelf} cannot be written: Not a directory\n" in found.stdout
    assert "name a directory that you may write" in found.stdout
    assert found.returncode == 2


def test_doctor_breaks_no_word_on_a_narrow_terminal(hpq: Hpq, redis: Redis) -> None:
    lines = hpq("doctor", COLUMNS="44").stdout.splitlines()
    assert all(len(line) <= 44 for line in lines)
    assert "HPQ_STORE is not set here: checkpoints and artifacts" in " ".join(
        " ".join(lines).split()
    )


def test_doctor_names_workers_without_a_store(hpq: Hpq, store: Store) -> None:
    for name, has in (("w1", "yes"), ("w2", "no")):
        fields = {"state": "idle", "store": has}
        who = Presence(name=name, host="h", worker_class="default", fields=fields)
        store.present(who, idle=True, lifetime_ms=600_000)
    said = " ".join(hpq("doctor").stdout.split())
    assert "1 worker of 2 without HPQ_STORE, such as w2: a trial that loses it starts" in said
    assert "hpq manifests" not in said
    fields = {"state": "idle", "store": "no", "pod": "hpq-worker-1"}
    who = Presence(name="w3", host="h", worker_class="default", fields=fields)
    store.present(who, idle=True, lifetime_ms=600_000)
    said = " ".join(hpq("doctor").stdout.split())
    assert "2 workers of 3 without" in said and "`hpq manifests … --with store`, or a URL" in said


def test_doctor_names_acl_users_that_a_restart_would_lose(
    hpq: Hpq, redis: Redis, redis_url: str
) -> None:
    rules = ("on", ">x", "~*", "+@all", "-acl", "-config")
    redis.execute_command("ACL", "SETUSER", "hpq-worker", *rules)
    try:
        said = hpq("doctor").stdout
        theirs = hpq("doctor", HPQ_REDIS_URL=redis_url.replace("://", "://hpq-worker:x@"))
    finally:
        redis.execute_command("ACL", "DELUSER", "hpq-worker")
    assert "poor    1 ACL user and no aclfile: a restart may lose them" in said
    assert "aclfile PATH in redis.conf, with the lines of `hpq redis-acl --aclfile`" in said
    assert "answers" in theirs.stdout and "ACL user" not in theirs.stdout  # it may not ask
    assert "ACL user" not in hpq("doctor").stdout


def test_of_a_cluster_without_workers_it_is_told_which_scale_starts_some(
    redis: Redis, redis_url: str
) -> None:
    settings = read({"HPQ_REDIS_URL": redis_url, "HPQ_PREFIX": "nobody"})
    found = checkup(settings, in_cluster=" --namespace lab")
    assert [one.remedy for one in found if one.what == "no worker is alive"] == [
        "`hpq scale N --namespace lab` starts some"
    ]
    assert not any("HPQ_STORE" in one.what for one in found)


@pytest.mark.torch
def test_doctor_compares_the_driver_with_torch(hpq: Hpq, redis: Redis, tmp_path: Path) -> None:
    """On a machine with GPUs, by an nvidia-smi of the test's own; the tests' torch is for CPUs."""
    import torch  # noqa: PLC0415

    told = tmp_path / "nvidia-smi"
    told.write_text("""#!/bin/sh
case "$*" in *query-gpu*) echo "NVIDIA A100, 470.57.02";; *) echo "| CUDA Version: 11.4 |";; esac
""")
    told.chmod(0o755)
    said = " ".join(hpq("doctor", PATH=f"{tmp_path}:/usr/bin:/bin").stdout.split())
    built = torch.version.cuda
    assert ("built for CUDA" if built else "torch is a build without CUDA") in said
    assert "NVIDIA A100" in said
