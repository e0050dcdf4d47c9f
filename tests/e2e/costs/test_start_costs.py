"""How many processes a command starts before its first line: each takes some milliseconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.constants import DEADLINE_S

SWEEP = "program: train.py\nmethod: grid\nparameters: {x: {values: [1, 2]}}\n"
# The command line, which names each program that it starts.
NAMED = """
import sys
from hpq_producer.cli import main

def name(event, args):
    if event == "subprocess.Popen":
        print("started", args[0], file=sys.stderr)

sys.addaudithook(name)
main()
"""


def started(lab, *words: object) -> list[str]:
    """Return the names of the programs that a command starts."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", NAMED, *map(str, words)],
        cwd=lab.code,
        env=lab.env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    return [Path(line.split()[1]).name for line in lines if line.startswith("started ")]


def test_outside_git_a_plan_starts_no_process_and_an_enqueue_asks_one_python(lab) -> None:
    """The Python of the trials says which packages are installed from a directory."""
    lab.write("train.py", "")
    file = lab.write("sweep.yaml", SWEEP)
    assert started(lab, "plan", file) == []
    (python,) = started(lab, "enqueue", file)
    assert python.startswith("python")
