"""Redis's disk is full, so that it refuses every change: it is told where people look."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from redis import Redis, ResponseError
from redis.exceptions import ConnectionError as NoServer

from hpq.private_server.attach_or_start import answers
from hpq.redis.client import FullServerDisk, connect
from hpq.store.worker_reader import server_memory
from hpq_views.why.waiting import explain_full_server
from tests.support.ids import refused
from tests.support.server import find_server

Hpq = Callable[..., subprocess.CompletedProcess[str]]
SWEEP = "program: train.py\nmethod: grid\nparameters: {a: {values: [1, 2, 3]}}\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A server with an append-only file: its socket and its process."""
    socket = tmp_path / "redis.sock"
    words = ["--port", "0", "--unixsocket", socket, "--appendonly", "yes", "--dir", tmp_path]
    process = subprocess.Popen(
        [find_server(), *map(str, words)],
        stdout=subprocess.DEVNULL,
        restore_signals=False,  # SIGXFSZ stays ignored: a write fails, as on a full disk
    )
    with Redis(unix_socket_path=str(socket)) as redis:
        while True:
            try:
                redis.ping()
                break
            except NoServer:
                assert process.poll() is None
    yield socket, process.pid
    process.kill()
    process.wait()


def test_a_disk_that_is_full_is_told_where_people_look(
    hpq: Hpq, server: tuple[Path, int], tmp_path: Path
) -> None:
    socket, pid = server
    (tmp_path / "train.py").write_text("print('loss=1')\n")
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    here = {"HPQ_REDIS_URL": f"unix://{socket}"}
    assert hpq("enqueue", "sweep.yaml", **here).returncode == 0
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (100, hard))  # of the file that is there
    with Redis(unix_socket_path=str(socket)) as redis:
        with pytest.raises(ResponseError, match="MISCONF"):
            while True:
                redis.set("x", "y")
        assert answers(str(socket))  # though PING says MISCONF, too
        with closing(connect(f"unix://{socket}")) as ours, pytest.raises(FullServerDisk):
            ours.ping()  # of redis-py's check of an idle connection
        why = explain_full_server(server_memory(redis))  # as a watch that was open before says
        assert why and why.code == "redis-disk-full"
    told = hpq("pause", **here)
    refused(told, "redis-disk-full", "File too large", exit=3)
    assert told.stderr.count("\n") == 1
    for words in (["ls"], ["watch", "--once"]):  # what only reads still answers
        told = hpq(*words, **here)
        assert told.returncode == 0, told.stderr
        assert "cannot write to its disk" in told.stdout + told.stderr, told
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
    with Redis(unix_socket_path=str(socket)) as redis:
        while True:
            try:
                redis.set("x", "y")
                break
            except ResponseError:
                continue
        assert explain_full_server(server_memory(redis)) is None
    assert hpq("pause", **here).returncode == 0
