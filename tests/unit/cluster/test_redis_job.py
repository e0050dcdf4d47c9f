"""The script of `hpq slurm --redis` and the commands that follow its server, without Slurm."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from hpq.redis import address_file, credentials
from hpq.redis.client import connect
from tests.support.constants import DEADLINE_S
from tests.support.desk import Done, run_here
from tests.support.ids import ids

FAKES = {
    "srun": 'cd "${1#--chdir=}" && shift && exec "$@"',
    "scontrol": 'echo "$@" >>"$HPQ_HOME/requeued"',
}
PORT = "$((20000 + RANDOM % 12000)); ! (: </dev/tcp/127.0.0.1/$port) 2>/dev/null"


def until(is_so: Callable[[], object], what: object = "") -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.02)


class Cluster:
    """A home that machines share, and the jobs that run there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "ana's home"
        kept = {n: v for n, v in os.environ.items() if not n.startswith("HPQ_")}
        self.env = {**kept, "HPQ_HOME": str(self.home)}
        self.job_folder = self.home / "redis-job"
        self.address, self.log = self.job_folder / "address", folder / "log"
        self.url = address_file.url_of(self.address)
        self.jobs: list[subprocess.Popen[bytes]] = []
        (folder / "bin").mkdir()
        for name, text in FAKES.items():
            path = folder / "bin" / name
            path.write_text(f"#!/bin/bash\n{text}\n")
            path.chmod(0o755)

    def hpq(self, *words: str, **env: str) -> Done:
        return run_here(words, self.folder, {**self.env, **env})

    def submit(self, changes: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Run the script as a job, with some of its text replaced."""
        done = self.hpq("slurm", "--redis")
        assert done.returncode == 0, done.stderr
        script = done.stdout
        for old, new in {"sleep 5": "sleep 0", **(changes or {})}.items():
            assert script.count(old) == 1
            script = script.replace(old, new)
        path = self.folder / f"job{len(self.jobs)}"
        path.write_text(script)
        path_of_commands = f"{self.folder}/bin{os.pathsep}{os.environ['PATH']}"
        env = {**self.env, "PATH": path_of_commands, "SLURM_JOB_ID": str(len(self.jobs))}
        with self.log.open("ab") as log:
            job = subprocess.Popen(
                ["bash", path], env=env, stdout=log, stderr=log, start_new_session=True
            )
        self.jobs.append(job)
        return job

    def job(self, changes: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a job, and wait until the address is that of its server."""
        before = self.line()
        job = self.submit(changes)
        until(lambda: ":" in self.line() != before or job.poll() is not None)
        assert job.poll() is None, self.log.read_text()
        return job

    def line(self) -> str:
        return self.address.read_text() if self.address.exists() else ""

    def password(self) -> str:
        return credentials.of(self.url)

    def direct(self) -> Redis:
        """Return a client of the server that runs now, whatever the file will say."""
        place, password, _ = credentials.read_address(self.address)
        host, _, port = place.rpartition(":")
        return Redis(host=host, port=int(port), password=password)

    def server(self) -> int:
        """Return the id of the server's process."""
        return int((self.job_folder / "data" / "redis.pid").read_text())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path)
    yield found
    for job in found.jobs:
        try:
            os.killpg(job.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        job.wait()


class Impostor:
    """A program of another user, which answers every command alike and keeps what it receives."""

    def __init__(self, reply: bytes, port: int = 0) -> None:
        self._reply, self.received = reply, b""
        until(lambda: self._bind(port), "the end of another program at the port")
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _bind(self, port: int) -> bool:
        try:
            self._socket = socket.create_server(("", port))
        except OSError:
            return False
        return True

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client:
            while data := client.recv(65_536):
                self.received += data
                client.sendall(self._reply)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def test_commands_follow_the_server_from_job_to_job_and_each_job_has_its_own_copy(
    cluster: Cluster,
) -> None:
    assert cluster.hpq("slurm", "--redis").returncode == 0
    away = cluster.hpq("ls")
    assert (away.returncode, ids(away.stderr)) == (3, ["redis-unreachable"])
    assert "hpq slurm --redis | sbatch" in away.stderr
    first = cluster.job()
    assert cluster.hpq("ls").returncode == 0
    assert "hpq slurm | sbatch" in cluster.hpq("workers").stderr
    with connect(cluster.url) as redis:
        assert redis.config_get("append*")["appendfsync"] == "everysec"
        redis.set("a", "1")
        first_data = (cluster.job_folder / "data").resolve()
        cluster.job()
        assert first.wait(DEADLINE_S) == 0
        assert redis.get("a") == b"1"
        redis.set("b", "2")
        second = cluster.jobs[-1]
        second.terminate()  # as scancel and preemption do
        assert second.wait(DEADLINE_S) == 0
        assert cluster.hpq("ls").returncode == 3
        third = cluster.job()
        assert redis.mget("a", "b") == [b"1", b"2"]
        until(lambda: not first_data.exists())
        assert not (cluster.home / "requeued").exists()
        third.send_signal(signal.SIGUSR1)  # the time is up
        assert third.wait(DEADLINE_S) == 0
    assert (cluster.home / "requeued").read_text() == "requeue 2\n"
    cluster.job()
    with connect(cluster.url) as redis:
        assert redis.mget("a", "b") == [b"1", b"2"]


def test_only_the_owner_can_read_the_password_which_no_log_and_no_process_list_has(
    cluster: Cluster,
) -> None:
    cluster.job()
    password = cluster.password()
    assert len(password) >= 40
    shown = subprocess.run(["ps", "axeo", "args"], capture_output=True, text=True, check=True)
    assert password not in shown.stdout + cluster.log.read_text()
    modes = [path.lstat().st_mode for path in cluster.job_folder.rglob("*") if path.is_file()]
    assert modes and not any(mode & 0o077 for mode in [*modes, cluster.job_folder.stat().st_mode])


def test_a_user_who_left_the_server_of_a_job_joins_it_again_while_it_runs(
    cluster: Cluster,
) -> None:
    cluster.job()
    assert cluster.hpq("leave").returncode == 0
    assert not (cluster.home / "join").exists()
    assert cluster.hpq("slurm", "--redis").returncode == 0
    assert cluster.hpq("ls").returncode == 0


def test_no_job_copies_the_data_while_the_server_of_another_holds_the_lock(
    cluster: Cluster,
) -> None:
    cluster.job().kill()  # its server lives, as without srun
    with cluster.direct() as redis:
        redis.set("a", "1")
    refused = cluster.submit({"flock -w 60": "flock -w 1"})
    assert refused.wait(DEADLINE_S) == 1
    assert cluster.hpq("ls").returncode == 0  # with the first server
    os.kill(cluster.server(), signal.SIGKILL)
    cluster.job()
    with connect(cluster.url) as redis:
        assert redis.get("a") == b"1"


def test_a_server_that_its_successor_cannot_reach_appends_to_a_file_of_its_own(
    cluster: Cluster,
) -> None:
    no_locks = {"flock -w 60 9": "(exit 65)"}  # as flock ends on a disk without locks
    first = cluster.job(no_locks)
    lost = cluster.direct()
    lost.set("a", "1")
    own = (cluster.job_folder / "data").resolve()
    first.send_signal(signal.SIGSTOP)  # it cannot see that another job begins
    cluster.job(no_locks)
    lost.set("b", "2")
    with connect(cluster.url) as redis:
        assert redis.mget("a", "b") == [b"1", None]
    now = (cluster.job_folder / "data").resolve()
    inodes = [{path.stat().st_ino for path in folder.rglob("*")} for folder in (own, now)]
    assert inodes[0] and inodes[1] and not inodes[0] & inodes[1]
    line = cluster.line()
    first.send_signal(signal.SIGCONT)
    assert first.wait(DEADLINE_S) == 0
    assert cluster.line() == line
    lost.close()


def test_a_program_at_the_port_of_a_dead_server_gets_no_command_and_no_password_of_use(
    cluster: Cluster,
) -> None:
    cluster.job().kill()
    os.kill(cluster.server(), signal.SIGKILL)
    place, password, proof = credentials.read_address(cluster.address)
    port = int(place.rpartition(":")[2])
    received = b""
    for reply in (b"+OK\r\n", b"-WRONGPASS no\r\n", b"*-1\r\n", b":1\r\n", b"HTTP/1.1 400 no\r\n"):
        impostor = Impostor(reply, port)
        away = cluster.hpq("ls")
        assert (away.returncode, ids(away.stderr)) == (3, ["redis-unreachable"]), reply
        assert b"AUTH" in impostor.received and password not in away.stderr
        assert not re.search(rb"\r\n(INFO|PING)\r\n", impostor.received)
        received += impostor.received
        impostor.close()
    assert proof.encode() not in received
    cluster.job()
    now = credentials.read_address(cluster.address)
    assert not {password, proof} & set(now)
    assert cluster.hpq("ls").returncode == 0


def test_a_program_that_takes_the_port_before_the_server_receives_nothing(
    cluster: Cluster,
) -> None:
    impostor = Impostor(b"+OK\r\n")
    job = cluster.submit({PORT: f"{impostor.port}"})
    assert job.wait(DEADLINE_S) != 0
    assert not cluster.address.exists() and not impostor.received
    assert cluster.hpq("ls").returncode == 3
    impostor.close()


def test_the_redis_job_is_refused_beside_another_server(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    refused = cluster.hpq("slurm", "--redis", HPQ_REDIS_URL="redis://srv:6379/0")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert ids(refused.stderr) == ["connected-already"]
    assert not (cluster.home / "join").exists()
