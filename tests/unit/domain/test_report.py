"""Which values a report takes as metrics."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hpq.reporting import flatten


def test_nested_reports_are_joined_with_dots() -> None:
    assert flatten({"val": {"loss": 1, "acc": {"top1": 0.5}}, "n": True}) == {
        "val.loss": 1.0,
        "val.acc.top1": 0.5,
        "n": 1.0,
    }


@pytest.mark.parametrize("bad", [{"a": "x"}, {"": 1}, {"a\n": 1}, {"a": None}, {"x" * 65: 1}])
def test_what_is_no_metric_is_refused_by_name(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="metric"):
        flatten(bad)


def test_hpq_is_imported_also_where_the_workers_socket_cannot_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path has 108 bytes
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:  # takes no datagram
        other.bind("report")
        environ = {**os.environ, "HPQ_REPORT": "report"}
        done = subprocess.run([sys.executable, "-c", "import hpq.reporting"], env=environ)
    assert done.returncode == 0
