"""HPQ_PORT: what a kubelet and a rollout are told."""

from __future__ import annotations

import os
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from hpq_worker.attempt.environment import reserved_port
from tests.support.constants import DEADLINE_S
from tests.support.ids import ids
from tests.support.lab import Lab


@pytest.fixture
def port() -> Iterator[int]:
    """A port that no other process of this machine gets before the worker listens on it."""
    with reserved_port() as port:
        yield port


def ask(port: int, page: str) -> tuple[int, str]:
    """The status and the text; 0 where nobody answers."""
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/{page}", timeout=DEADLINE_S
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_a_pod_is_alive_without_redis_and_ready_only_with_it(lab: Lab, port: int) -> None:
    lab.worker(HPQ_PORT=str(port))
    lab.wait_until(lambda: ask(port, "readyz")[0] == 200, "ready")
    lab.server.kill()
    lab.wait_until(lambda: ids(ask(port, "readyz")[1]) == ["redis-away"], "an error of Redis")
    assert ask(port, "livez") == (200, "ok\n")
    assert ask(port, "elsewhere")[0] == ask(port, "metrics")[0] == 404


def test_a_pod_whose_worker_was_killed_is_ready_again_with_the_next(lab: Lab, port: int) -> None:
    lab.worker(HPQ_PORT=str(port))
    lab.wait_until(lambda: ask(port, "readyz")[0] == 200, "ready")
    os.kill(lab.parent(), 9)
    lab.wait_until(lambda: ids(ask(port, "readyz")[1]) == ["worker-down"], "no worker")
    assert ask(port, "livez")[0] == 200
    lab.wait_until(lambda: ask(port, "readyz")[0] == 200, "ready with another worker")


def test_a_caller_that_hangs_keeps_no_fleet_from_its_end(lab: Lab, port: int) -> None:
    fleet = lab.worker(2, HPQ_PORT=str(port))
    lab.wait_until(lambda: ask(port, "readyz")[0] == 200, "ready")
    with socket.create_connection(("127.0.0.1", port)) as silent:
        silent.sendall(b"GET /livez HTT")
        fleet.terminate()
        assert fleet.wait() == 0
    assert ask(port, "livez")[0] == 0
    assert "Traceback" not in lab.log() and "Exception" not in lab.log()


def test_a_port_that_is_taken_ends_the_worker_with_one_line(lab: Lab) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        worker = lab.worker(HPQ_PORT=str(taken.getsockname()[1]))
        assert worker.wait() == 2
    assert "port-unusable" in ids(lab.log())
    assert "Traceback" not in lab.log()


def test_a_run_beside_a_worker_leaves_the_port_to_that(lab: Lab) -> None:
    path = lab.write("sweep.yaml", "program: x.py\nmethod: grid\nparameters: {x: {value: 1}}\n")
    lab.write("x.py", "print(1)\n")
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        lab.ok("run", path, "--workers", "1", HPQ_PORT=str(taken.getsockname()[1]))
