"""Reports of a program on their way to the worker, whatever else the program does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpq.reporting import note_dropped, report
from hpq_worker.attempt.report_socket import ReportSocket

CLOSES = """
import os
from hpq.reporting import report
report({"loss": 1}, 1)
os.closerange(3, 100)
log = open("log", "w+b", buffering=0)  # has the number of the socket now
report({"loss": 2}, 2)
assert not log.read(), "a report in another file"
if os.fork() == 0:
    report({"loss": 3}, 3)
    os._exit(0)
os.wait()
report({"loss": 4}, 4)
"""


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReportSocket]:
    monkeypatch.chdir(tmp_path)  # a socket's path has 108 bytes
    monkeypatch.setenv("HPQ_REPORT", "report")
    opened = ReportSocket("report")
    yield opened
    opened.close()


def steps(read: ReportSocket) -> list[int]:
    return [message["step"] for message in read.read() if "report" in message]


def test_reports_arrive_after_a_program_closed_all_descriptors_and_from_its_fork(
    read: ReportSocket,
) -> None:
    subprocess.run([sys.executable, "-c", CLOSES], check=True)
    assert steps(read) == [1, 2, 3, 4]


def test_of_each_metric_the_worker_hears_once_why_it_was_dropped_in_an_attempt(
    read: ReportSocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for attempt in ("s/1/1", "s/1/1", "s/2/1"):
        monkeypatch.setenv("HPQ_ATTEMPT_ID", attempt)
        note_dropped(["loss", "acc"], "a text")
    monkeypatch.setenv("RANK", "1")
    report({"loss": 1, "top5": 1})
    found = [(one["dropped"], one["of_process"]) for one in read.read()]
    assert found == [("loss", False), ("acc", False)] * 2 + [("top5", True)]


def test_reports_go_to_the_socket_that_has_the_path_now_and_to_none_after_its_end(
    read: ReportSocket,
) -> None:
    report({"loss": 1}, 1)
    assert steps(read) == [1]
    read.close()
    report({"loss": 2}, 2)
    report({"loss": 3}, 3)
    Path("report").unlink()
    report({"loss": 4}, 4)
    again = ReportSocket("report")
    report({"loss": 5}, 5)
    assert steps(again) == [5]
    again.close()
