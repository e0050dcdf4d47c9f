"""A Slurm of two nodes on this machine, and its users: with a Redis server, or with a job of one.

Where ../shared/slurm/testslurm or root is absent everything here is skipped. A Slurm that was up
stays up; all jobs of a test end with it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from hpq.redis import address_file
from hpq.redis.client import connect
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from tests.support.commands import run_hpq, stdout_of
from tests.support.constants import ROOT
from tests.support.server import find_server

TESTSLURM = ROOT.parent / "shared" / "slurm" / "testslurm"
HERE = Path(__file__).parent
DEADLINE_S = 150.0
PASSWORD = "secret-of-this-test"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here waits for Slurm."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(600, func_only=True))


def _run(*words: str, env: Mapping[str, str]) -> str:
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="session")
def slurm() -> Iterator[dict[str, str]]:
    """The environment of a Slurm that is up."""
    if not TESTSLURM.exists():
        pytest.skip("no Slurm: ../shared/slurm/testslurm is not beside the checkout")
    if os.geteuid() != 0:
        pytest.skip("the test Slurm needs root")
    (line,) = _run(str(TESTSLURM), "env", env=os.environ).splitlines()
    name, _, value = line.removeprefix("export ").partition("=")
    found = {name: value}
    try:
        asked = subprocess.run(["sinfo"], env={**os.environ, **found}, capture_output=True)
        was_up = asked.returncode == 0
    except FileNotFoundError:
        was_up = False
    if not was_up:
        _run(str(TESTSLURM), "up", env=os.environ)
    yield found
    if not was_up:
        _run(str(TESTSLURM), "down", env=os.environ)


class Student:
    """A user of the login node."""

    def __init__(self, folder: Path, slurm: Mapping[str, str], url: str = "") -> None:
        self.folder = folder
        self.home, self.go = folder / "home" / ".hpq", folder / "go"
        keep = {n: v for n, v in os.environ.items() if not n.startswith("HPQ_")}
        bins = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.env = {**keep, **slurm, "PATH": bins, "HOME": str(folder / "home"), "USER": "ana"}
        self.env |= {"TMPDIR": str(folder / "tmp")}
        for name in ("home", "tmp", "code"):
            (folder / name).mkdir()
        self.url = url or address_file.url_of(self.home / "redis-job" / "address")
        self.redis: Redis = connect(self.url)
        self.reader = StoreReader(self.redis, Keys("hpq"), 12_000)
        self.jobs: list[str] = []
        self._requeued: dict[str, float] = {}  # since when hurry sees a task wait

    def hpq(self, *words: object, **env: str) -> subprocess.CompletedProcess[str]:
        return run_hpq(words, self.folder / "code", self.env | env, DEADLINE_S)

    def ok(self, *words: object, **env: str) -> str:
        return stdout_of(self.hpq(*words, **env))

    def tool(self, *words: str) -> str:
        """Run a command of Slurm."""
        return _run(*words, env=self.env)

    def submit(self, *words: object) -> str:
        """Type `hpq slurm … | sbatch`; return the job's id."""
        done = subprocess.run(
            ["sbatch", "--parsable"], input=self.ok("slurm", *words), env=self.env,
            cwd=self.folder / "code", capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        self.jobs.append(done.stdout.strip())
        return self.jobs[-1]

    def tasks(self, job: str) -> dict[str, str]:
        """Return the state of each task of an array that has not ended."""
        lines = self.tool("squeue", "-h", "-r", "-j", job, "-o", "%i %t").splitlines()
        return dict(line.split() for line in lines)

    def hurry(self, job: str) -> None:
        """Let requeued tasks start soon: Slurm would wait for two minutes.

        In the second of the requeue it would refuse them, as the credential is revoked.
        """
        now, before = time.monotonic(), self._requeued
        waiting = [task for task, state in self.tasks(job).items() if state == "PD"]
        others = {task: since for task, since in before.items() if task.split("_")[0] != job}
        self._requeued = others | {task: before.get(task, now) for task in waiting}
        for task in waiting:
            if now - self._requeued[task] > 2:  # it may start meanwhile
                words = ["scontrol", "update", f"JobId={task}", "StartTime=now"]
                subprocess.run(words, env=self.env, capture_output=True, check=False)

    def answers(self) -> bool:
        """Return whether Redis answers now."""
        try:
            return bool(self.redis.ping())
        except RedisError:
            return False

    def log(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.home.glob("logs/slurm-*")))

    def wait_until(self, is_so: Callable[[], object], what: str) -> None:
        until = time.monotonic() + DEADLINE_S
        while not is_so():
            assert time.monotonic() < until, f"not in time: {what}\n{self.log()[-6000:]}"
            time.sleep(0.3)

    def end(self) -> None:
        """Cancel all jobs, and wait until none is left."""
        if self.jobs:
            self.tool("scancel", *self.jobs)
            self.wait_until(lambda: not any(map(self.tasks, self.jobs)), "the end of all jobs")
        self.redis.close()


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of a Redis server with a password."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = int(taken.getsockname()[1])
    words = [str(find_server()), "--port", str(found), "--requirepass", PASSWORD, "--save", ""]
    server = subprocess.Popen([*words, "--dir", str(tmp_path)], stdout=subprocess.DEVNULL)
    yield found
    server.terminate()
    server.wait()


@pytest.fixture
def student(tmp_path: Path, slurm: dict[str, str], port: int) -> Iterator[Student]:
    """A user who has joined the server."""
    url = f"redis://:{PASSWORD}@127.0.0.1:{port}/0"
    found = Student(tmp_path, slurm, url)
    try:
        until = time.monotonic() + DEADLINE_S
        while True:
            token = found.hpq("invite", HPQ_REDIS_URL=url)
            if token.returncode == 0:
                break
            assert time.monotonic() < until, token.stderr
        path = tmp_path / "token"
        path.touch(0o600)
        path.write_text(token.stdout)
        found.ok("join", "--no-worker", path)
        yield found
    finally:
        found.end()


@pytest.fixture
def alone(tmp_path: Path, slurm: dict[str, str]) -> Iterator[Student]:
    """A user without a server."""
    found = Student(tmp_path, slurm)
    try:
        yield found
    finally:
        found.end()
