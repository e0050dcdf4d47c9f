"""docs/reference/python.md: its blocks, run as one plain script on the private server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.commands import HPQ
from tests.support.constants import DEADLINE_S, ROOT
from tests.support.pages import blocks

PAGE = ROOT / "docs" / "reference" / "python.md"


def test_the_page_of_the_python_api_runs_as_it_is_printed(tmp_path: Path) -> None:
    python = [block for block in blocks(PAGE) if block.language == "python"]
    for block in python:
        if block.words:
            (tmp_path / block.words[0]).write_text(block.text)
    script = "".join(block.text for block in python if not block.words)
    env = {**os.environ, "HPQ_HOME": str(tmp_path / "home"), "HPQ_USER": "ana"}
    worker = subprocess.Popen([HPQ, "worker", "--count", "3"], env=env, cwd=tmp_path)
    try:
        done = subprocess.run(
            [sys.executable, "-W", "error::UserWarning", "-c", script], cwd=tmp_path, env=env,
            capture_output=True, text=True, timeout=DEADLINE_S,
        )  # fmt: skip
        assert worker.wait(DEADLINE_S) == 0
    finally:
        worker.kill()
        worker.wait()
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0] == "finished 3" and said[1].startswith("{'lr': 0.1} 0.33")
    assert said[2].startswith("2 {'lr': 0.1}") and said[-1] == "sweep-not-found"
    assert (tmp_path / "history.html").stat().st_size > 1_000


def test_the_page_names_every_method_and_no_other() -> None:
    import hpq  # noqa: PLC0415

    text = PAGE.read_text("utf-8")
    for kind in (hpq.Sweep, hpq.SweepTrial):
        public = [name for name in vars(kind) if not name.startswith("_")]
        assert [n for n in public if f"`{n}" not in text and f".{n}" not in text] == []


def test_calls_on_the_private_server_leave_no_file_open(tmp_path: Path) -> None:
    """The first call keeps the server running for the process; every other call cleans up."""
    script = (
        "import os, hpq\n"
        "counts = [len(hpq.sweeps()) or len(os.listdir('/dev/fd')) for _ in range(12)]\n"
        "print(len(set(counts[1:])), counts[-1] - counts[0])\n"
    )
    env = {**os.environ, "HPQ_HOME": str(tmp_path / "home"), "HPQ_USER": "ana"}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert done.stdout == "1 0\n", (done.stdout, done.stderr)
