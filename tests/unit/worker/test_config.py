"""The configuration of a worker process: one JSON value on standard input."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest

from hpq.agent_loop import PYTHON, AgentError, serve
from hpq_worker.process.config import WORKER, CallerConfig, WorkerConfig, receive, start

ECHO = """
import json, os, sys
from dataclasses import asdict
from hpq_worker.process.config import WORKER, receive
found = asdict(receive(WORKER))
left, words = sys.stdin.buffer.read().decode(), sys.argv
os.write(found["exit_reason"], json.dumps([found, left, words[1:], dict(os.environ)]).encode())
"""

ANSWER_PARENT = """
import json, os, sys
found = json.loads(sys.stdin.readline())
answer = {"over": str(found["parent"])}
os.write(found["caller"]["commands"], json.dumps(answer).encode() + b"\\n")
"""


def test_a_process_gets_its_whole_configuration_and_no_secret_on_its_command_line(tmp_path) -> None:
    (tmp_path / "echoes.py").write_text(ECHO, "utf-8")
    answers, answer = os.pipe()
    config = WorkerConfig(
        secrets={"HPQ_CODE_KEY": "hidden \udcff"},
        exit_reason=answer,
        run_budget=(7, 8),
        caller=CallerConfig(commands=3, answers=4, output=5, count=2),
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    process = start("echoes", {**os.environ, "PYTHONPATH": path}, config, (answer,))
    os.close(answer)
    with open(answers, "rb") as file:
        found, left, words, environ = json.loads(file.read())
    assert process.wait() == 0
    assert found["secrets"] == {"HPQ_CODE_KEY": "hidden \udcff"} and "HPQ_CODE_KEY" not in environ
    assert found["caller"]["count"] == 2
    assert found["run_budget"] == [7, 8]
    assert left == "" and words == []  # neither training code nor ps reads it again


@pytest.mark.parametrize("text", ["[1]", '{"parent": "7"}', '{"caller": {"commands": 3}}'])
def test_a_configuration_of_another_shape_is_refused(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode() + b"\n")))
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    with pytest.raises((ValueError, TypeError)):
        receive(WORKER)


@pytest.mark.parametrize("sent", [b"", b"{}", b'{"parent": 7, "secrets": {"HPQ_CO'])
def test_a_process_whose_starter_was_killed_before_it_had_sent_all_ends(sent: bytes) -> None:
    """Without its configuration, a worker would stay with no process to end with."""
    command = "from hpq_worker.process.config import *; receive(WORKER)"
    done = subprocess.run([sys.executable, "-c", command], input=sent, capture_output=True)
    assert done.returncode == 1 and b"Traceback" not in done.stderr


def test_a_process_does_not_wait_for_a_pipe_that_a_child_of_its_starter_keeps(tmp_path) -> None:
    """Training code of `hpq.agent` may fork at any moment, as a DataLoader does."""
    command = "from hpq_worker.process.config import *; print(receive(WORKER).parent)"
    words = [sys.executable, "-c", command]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b'{"parent": 7}\n')
        process.stdin.flush()
        assert process.stdout.readline() == b"7\n"
        process.stdin.close()


def test_the_worker_of_an_agent_knows_the_process_to_end_with(tmp_path, monkeypatch) -> None:
    """Else a worker whose agent is killed while both start would stay for good."""
    worker = tmp_path / "python"
    worker.write_text(f"#!{sys.executable}\n{ANSWER_PARENT}", "utf-8")
    worker.chmod(0o755)
    monkeypatch.setenv(PYTHON, str(worker))
    with pytest.raises(AgentError, match=f"^{os.getpid()}$"):
        serve("demo-00000", lambda attempt: 0)
