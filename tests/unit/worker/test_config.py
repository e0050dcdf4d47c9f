"""The configuration of a worker process: one JSON value on standard input."""

from __future__ import annotations

import io
import json
import os
import sys

import pytest

from hpq_worker.process.config import CallerConfig, WorkerConfig, receive, start

ECHO = """
import json, os, sys
from dataclasses import asdict
from hpq_worker.process.config import WorkerConfig, receive
found = asdict(receive(WorkerConfig))
left, words = sys.stdin.buffer.read().decode(), sys.argv
os.write(found["exit_report"], json.dumps([found, left, words[1:], dict(os.environ)]).encode())
"""


def test_a_process_gets_its_whole_configuration_and_no_secret_on_its_command_line(tmp_path) -> None:
    (tmp_path / "echoes.py").write_text(ECHO, "utf-8")
    answers, answer = os.pipe()
    config = WorkerConfig(
        secrets={"HPQ_CODE_KEY": "hidden \udcff"},
        exit_report=answer,
        run_budget=(7, 8),
        idle={"demo-00000": "5-1"},
        caller=CallerConfig(commands=3, answers=4, output=5, count=2, stops_sweep=True),
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    process = start("echoes", {**os.environ, "PYTHONPATH": path}, config, (answer,))
    os.close(answer)
    with open(answers, "rb") as file:
        found, left, words, environ = json.loads(file.read())
    assert process.wait() == 0
    assert found["secrets"] == {"HPQ_CODE_KEY": "hidden \udcff"} and "HPQ_CODE_KEY" not in environ
    assert found["caller"]["count"] == 2 and found["caller"]["stops_sweep"] is True
    assert (found["run_budget"], found["idle"]) == ([7, 8], {"demo-00000": "5-1"})
    assert left == "" and words == []  # neither training code nor ps reads it again


@pytest.mark.parametrize("text", ["[1]", '{"parent": "7"}', '{"caller": {"commands": 3}}'])
def test_a_configuration_of_another_shape_is_refused(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    with pytest.raises((ValueError, TypeError)):
        receive(WorkerConfig)
