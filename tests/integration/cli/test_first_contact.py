"""A server that cannot be used: one line soon, and the same exit code whoever meets it."""

from __future__ import annotations

import socket
import socketserver
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from redis import Redis

from tests.support.constants import ROOT
from tests.support.ids import ids, refused

Hpq = Callable[..., subprocess.CompletedProcess[str]]
DIGITS = ROOT / "configs/digits.yaml"


class _Old(socketserver.StreamRequestHandler):
    """Says what a Redis 6.0 says at first; no such server is packaged."""

    info = b"redis_version:6.0.16\r\nredis_mode:standalone\r\n"
    hello = b"%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n"

    def handle(self) -> None:
        while head := self.rfile.readline():
            words = []
            for _ in range(int(head[1:])):
                size = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(size + 2)[:-2].upper())
            info = self.info
            told = {
                b"INFO": b"$%d\r\n%s\r\n" % (len(info), info),
                b"PING": b"+PONG\r\n",
                b"HELLO": self.hello,
            }
            self.wfile.write(told.get(words[0], b"+OK\r\n"))


class _Older(_Old):
    """As a Redis 5 does, which knows no HELLO."""

    hello = b"-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n"


class _Cluster(_Old):
    """As a node of a cluster does."""

    info = b"redis_version:7.2.4\r\nredis_mode:cluster\r\n"


@contextmanager
def speaking(kind: type[_Old]) -> Iterator[str]:
    """The URL of a server that speaks so."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), kind) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"redis://127.0.0.1:{server.server_address[1]}/0"
        server.shutdown()


@pytest.fixture(params=[_Old, _Older], ids=["6.0", "5"])
def old_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a server that is too old."""
    with speaking(request.param) as url:
        yield url


@pytest.mark.parametrize("command", ["ls", f"enqueue {DIGITS}", "doctor"])
def test_a_server_that_is_too_old_is_named_with_what_is_needed(
    hpq: Hpq, old_server: str, command: str
) -> None:
    """F16: servers that speak as Redis 5 and 6.0."""
    answer = hpq(*command.split(), HPQ_REDIS_URL=old_server)
    assert answer.returncode == 3
    said = answer.stderr + answer.stdout
    assert "6.2" in said and "Traceback" not in said
    assert command == "doctor" or ids(answer.stderr)[-1:] == ["redis-too-old"]


def test_a_redis_cluster_is_refused(hpq: Hpq) -> None:
    """F16, R19: a server that says that it is a cluster's."""
    with speaking(_Cluster) as url:
        answer = hpq("ls", HPQ_REDIS_URL=url)
    refused(answer, "redis-cluster-mode", exit=3)
    assert answer.stderr.count("\n") == 1


@pytest.mark.parametrize("kind", [_Older, _Cluster], ids=["5", "cluster"])
def test_workers_on_a_server_that_no_waiting_mends_end_with_one_line(
    hpq_process: Hpq, kind: type[_Old]
) -> None:
    """F16, R19: `hpq worker` with two workers on such servers."""
    with speaking(kind) as url:
        answer = hpq_process("worker", "--workers", "2", HPQ_REDIS_URL=url)
    lines = answer.stderr.splitlines()
    assert (answer.returncode, len(lines)) == (3, 1), answer.stderr
    assert ids(lines[0]) in (["redis-too-old"], ["redis-cluster-mode"])


def test_tls_to_a_port_without_it_asks_about_that_and_soon_gives_up(hpq: Hpq) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:  # says as little to TLS as Redis does
        url = f"rediss://127.0.0.1:{mute.getsockname()[1]}/0"
        answer = hpq("ls", HPQ_REDIS_URL=url)
        assert (answer.returncode, len(answer.stderr.splitlines())) == (3, 1)
        assert "redis://" in answer.stderr.replace(url, "")
        tries = 0
        mute.settimeout(0.1)
        try:
            while True:
                mute.accept()[0].close()
                tries += 1
        except TimeoutError:
            pass
        assert tries == 1  # each takes its whole timeout


def test_a_wrong_password_has_one_exit_code(hpq: Hpq, redis: Redis, redis_url: str) -> None:
    redis.config_set("requirepass", "right")
    try:
        for command in ("ls", "doctor"):
            assert hpq(command, HPQ_REDIS_URL=f"{redis_url}?password=wrong").returncode == 4
            assert hpq(command, HPQ_REDIS_URL="redis://127.0.0.1:1/0").returncode == 3
    finally:
        redis.config_set("requirepass", "")


def test_a_database_that_the_server_lacks_is_a_wrong_setting(hpq: Hpq, redis_url: str) -> None:
    url = f"{redis_url}?db=99"
    for command in ("ls", f"enqueue {DIGITS}"):
        done = hpq(*command.split(), HPQ_REDIS_URL=url)
        refused(done, "redis-url-invalid", "database 0", exit=2)
    assert "database 0" in hpq("doctor", HPQ_REDIS_URL=url).stdout


def test_doctor_says_which_gpus_there_are(hpq: Hpq, redis: Redis) -> None:
    assert "GPU" in hpq("doctor").stdout


def test_a_python_that_is_not_there_is_said_before_anything_is_written(hpq, tmp_path, redis):
    (tmp_path / "train.py").write_text("print('loss=1')\n")
    (tmp_path / "s.yaml").write_text(
        "program: train.py\nmethod: grid\nparameters: {x: {values: [1]}}\n"
    )
    done = hpq("run", "s.yaml", HPQ_PYTHON="nonesuch")
    refused(done, "python-not-found", "nonesuch")
    assert redis.dbsize() == 0
