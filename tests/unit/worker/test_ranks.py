"""Trials of several processes: whose line it is, whose fault, which port, how many GPUs."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import hpq
from hpq import reporting
from hpq.code.command import argv
from hpq.domain.trial import FailureKind
from hpq_worker.attempt import environment as trial_environment
from hpq_worker.attempt.printed_metrics import PrintedMetrics
from hpq_worker.process import devices
from hpq_worker.runner import failures
from hpq_worker.runner.failures import of_exit

LAUNCHER = """\
W1121 20:49:34.833000 9924 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process
Traceback (most recent call last):
  File "/lib/site-packages/torch/distributed/launcher/api.py", line 383, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\x20
============================================================
ddp.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-21_20:49:35
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 9959)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 9959
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_20:49:34
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : {status} (pid: 9960) {signal}
  error_file: <N/A>
============================================================
"""
RAISED = """\
Traceback (most recent call last):
  File "/home/me/ddp.py", line 8, in <module>
    raise KeyError("missing")
KeyError: 'missing'
"""
FOLLOWS = """\
Traceback (most recent call last):
  File "/home/me/ddp.py", line 10, in <module>
    dist.all_reduce(t)
RuntimeError: Connection closed by peer [127.0.0.1]:17061
"""


def told(text: str, prefix: str) -> str:
    return "".join(prefix + line for line in text.splitlines(keepends=True))


@pytest.mark.parametrize(
    ("line", "rank", "text"),
    [
        ("loss=1", 0, "loss=1"),
        ("[default1]:loss=1", 1, "loss=1"),
        ("[trainer_12]: loss=1", 12, "loss=1"),
        ("[default1]:[rank1]:   File", 1, "  File"),
        ("[default0]:", 0, ""),
        ("[INFO]: 3", 0, "[INFO]: 3"),
    ],
)
def test_a_line_says_whose_it_is(line: str, rank: int, text: str) -> None:
    assert failures.split_rank(line) == (rank, text)


def test_what_rank_0_prints_is_a_metric_once() -> None:
    lines = ["[default0]:loss=0.5", "[default1]:loss=0.6", "[rank1]: loss=0.6", "loss=0.7"]
    assert [PrintedMetrics([], {}).parse(line) for line in lines] == [
        {"loss": 0.5}, {}, {}, {"loss": 0.7},
    ]  # fmt: skip


@pytest.mark.parametrize("prefix", ["[default{}]:[rank{}]: ", "[rank{}]: "])
def test_the_first_rank_to_fail_says_why_and_not_those_that_lost_it(prefix: str) -> None:
    first, then = prefix.replace("{}", "1"), prefix.replace("{}", "0")
    tail = told(RAISED, first) + told(FOLLOWS, then) + LAUNCHER.format(status=1, signal="")
    failure = of_exit(1, tail)
    assert failure.message.startswith("rank 1: ") and "KeyError: 'missing'" in failure.message
    assert (failure.kind, failure.fingerprint) == (FailureKind.USER_ERROR, "KeyError ddp.py:8")


def test_without_prefixes_the_launchers_own_stack_is_no_reason() -> None:
    failure = of_exit(1, RAISED + LAUNCHER.format(status=1, signal=""))
    assert failure.message.startswith("rank 1: ") and "KeyError: 'missing'" in failure.message
    assert failure.fingerprint == "KeyError ddp.py:8"


def test_a_rank_that_was_killed_is_a_trial_that_was_killed() -> None:
    tail = told(FOLLOWS, "[default0]:") + LAUNCHER.format(status=-9, signal=" (SIGKILL)")
    failure = of_exit(1, tail)
    assert (failure.kind, failure.message) == (FailureKind.KILLED, "rank 1: killed by SIGKILL")


def test_a_port_is_given_to_one_attempt_and_its_ranks_may_listen_there() -> None:
    with (
        trial_environment.reserved_port() as one,
        trial_environment.reserved_port() as other,
        socket.socket() as store,
    ):
        assert one != other
        store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        store.bind(("", one))
        store.listen()
        with socket.create_connection((trial_environment.ADDRESS, one), 5.0):
            pass


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", reporting.AGENT])
def test_a_trial_of_a_worker_within_a_rank_or_an_agent_is_neither(
    name: str, tmp_path: Path
) -> None:
    settings: Any = SimpleNamespace(in_pod=False, data=tmp_path, cache=tmp_path)
    env = trial_environment.runner_environment(settings, (), {name: "1", "HOME": "/a"})
    assert name not in env and env["HOME"] == "/a"


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK"])
def test_a_rank_above_0_reports_nothing_and_says_so_once(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reporting, "_has_warned", False)
    monkeypatch.setenv(name, "1")
    hpq.report({"loss": 1})
    hpq.report({"loss": 2})
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("hpq: rank 1: ") and said.err.count("\n") == 1
    monkeypatch.setenv(name, "0")
    hpq.report({"loss": 3})
    assert capsys.readouterr().out == "loss=3.0\n"


def test_gpus_is_a_macro_also_inside_a_word_and_a_parameter_of_that_name_goes_first() -> None:
    def words(params: dict[str, int]) -> tuple[str, ...]:
        command = ("torchrun", "--nproc-per-node=${gpus}", "${gpus}")
        return argv(command, "", params, environ={}, params_file="", interpreter="", gpus=4)

    assert words({"lr": 1}) == ("torchrun", "--nproc-per-node=4", "4")
    assert words({"gpus": 2}) == ("torchrun", "--nproc-per-node=2", "2")


def test_gpus_that_do_not_divide_stay_idle_and_that_is_said() -> None:
    eight, six = [str(i) for i in range(8)], [str(i) for i in range(6)]
    assert devices.slots(eight, 4, 1) == ["0,1,2,3", "4,5,6,7"] and not devices.idle(eight, 4)
    assert devices.slots(six, 4, 1) == ["0,1,2,3"]
    assert devices.idle(six, 4).startswith("2 of 6 GPUs ")
