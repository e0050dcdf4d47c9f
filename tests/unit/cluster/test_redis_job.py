"""The Redis server that a Slurm job runs, and the commands that follow it; without Slurm here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpq.connection.client import connect
from hpq_producer.commands.cluster import redis_job
from hpq_producer.connection_record import with_joined
from tests.support.constants import DEADLINE_S
from tests.support.desk import Done, run_here
from tests.support.ids import ids


class Cluster:
    """A home that machines share, and the jobs that run there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        kept = {n: v for n, v in os.environ.items() if not n.startswith("HPQ_")}
        self.env = {**kept, "HPQ_HOME": str(self.home)}
        self.address = redis_job.folder_of(self.home) / "address"
        self.jobs: list[subprocess.Popen[str]] = []

    def hpq(self, *words: str, **env: str) -> Done:
        return run_here(words, self.folder, {**self.env, **env})

    def job(self, **env: str) -> subprocess.Popen[str]:
        """Start a job, and wait until the address is that of its server."""
        words, before = [sys.executable, "-P", "-m", redis_job.__name__], self._line()
        with (self.folder / "log").open("a") as log:
            job = subprocess.Popen(words, env={**self.env, **env}, text=True, stdout=log)
        self.jobs.append(job)
        until = time.monotonic() + DEADLINE_S
        while ":" not in self._line() or self._line() == before:
            assert job.poll() is None and time.monotonic() < until, self._line()
            time.sleep(0.02)
        return job

    def _line(self) -> str:
        return self.address.read_text() if self.address.exists() else ""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path)
    assert found.hpq("slurm", "--redis").returncode == 0
    yield found
    for job in found.jobs:
        job.terminate()
        job.wait()


def test_commands_follow_the_server_from_job_to_job_and_the_newest_job_has_the_data(
    cluster: Cluster,
) -> None:
    away = cluster.hpq("ls")
    assert (away.returncode, ids(away.stderr)) == (3, ["redis-unreachable"])
    assert "hpq slurm --redis | sbatch" in away.stderr
    first = cluster.job()
    assert cluster.hpq("ls").returncode == 0
    assert "hpq slurm | sbatch" in cluster.hpq("workers").stderr
    assert cluster.address.stat().st_mode & 0o077 == 0
    url = with_joined({}, cluster.home)["HPQ_REDIS_URL"]
    password = (cluster.home / "join" / "password").read_text()
    words = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert password not in words
    with connect(f"{url}?password_file={cluster.home}/join/password") as redis:
        redis.set("a", "1")
        second = cluster.job()  # as on another node, while the first one is lost but runs
        assert first.wait(DEADLINE_S) == 0
        assert redis.get("a") == b"1"
        redis.set("b", "2")
        second.terminate()
        assert second.wait(DEADLINE_S) == 0
        assert cluster.hpq("ls").returncode == 3
        third = cluster.job(HPQ_END=str(time.time() + 30))
        assert redis.mget("a", "b") == [b"1", b"2"]
        third.terminate()
        assert third.wait(DEADLINE_S) == 7  # the script requeues it


def test_a_user_who_left_the_server_of_a_job_joins_it_again_while_it_runs(
    cluster: Cluster,
) -> None:
    cluster.job()
    assert cluster.hpq("leave").returncode == 0
    assert not (cluster.home / "join").exists()
    assert cluster.hpq("slurm", "--redis").returncode == 0
    assert cluster.hpq("ls").returncode == 0
    assert (cluster.address.parent / "password").stat().st_mode & 0o077 == 0


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_the_server_of_a_killed_job_ends(cluster: Cluster) -> None:
    cluster.job().kill()
    until = time.monotonic() + DEADLINE_S
    while cluster.hpq("ls").returncode == 0:
        assert time.monotonic() < until
    with cluster.address.open() as file:
        assert ":" in file.read()  # the job did not sign off
    cluster.job()
    assert cluster.hpq("ls").returncode == 0


def test_no_job_opens_the_data_while_a_server_that_does_not_yield_has_them_open(
    cluster: Cluster,
) -> None:
    first = cluster.job()
    first.send_signal(signal.SIGSTOP)  # it cannot see the line of another job
    words = [sys.executable, "-P", "-m", redis_job.__name__]
    try:
        for _ in range(2):
            done = subprocess.run(
                words, env=cluster.env, text=True, capture_output=True, timeout=DEADLINE_S,
                check=False,
            )  # fmt: skip
            assert (done.returncode, ids(done.stderr)) == (3, ["private-redis-orphaned"])
            assert cluster.hpq("ls").returncode == 0  # with the first server
    finally:
        first.send_signal(signal.SIGCONT)


def test_a_job_without_its_home_ends_and_names_the_command(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    words = [sys.executable, "-P", "-m", redis_job.__name__]
    done = subprocess.run(words, env=cluster.env, text=True, capture_output=True, check=False)
    assert (done.returncode, ids(done.stderr)) == (2, ["setting-missing"])


def test_the_redis_job_is_refused_beside_another_server(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    refused = cluster.hpq("slurm", "--redis", HPQ_REDIS_URL="redis://srv:6379/0")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert ids(refused.stderr) == ["connected-already"]
    assert not (cluster.home / "join").exists()
