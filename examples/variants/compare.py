"""Edit a program, run the same sweep again, and compare both: run it in a copy of this folder."""

import subprocess
from pathlib import Path


def hpq(*words: str) -> str:
    return subprocess.run(
        ["hpq", *words], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


def run() -> str:
    """Run the sweep with the code as it is now; return its id."""
    sweep = hpq("enqueue", "sweep.yaml")
    hpq("run", sweep)
    return sweep


before = run()
program = Path("train.py")
program.write_text(
    program.read_text().replace("loss * 0.9", "loss * 0.8")
)  # your edit, or an agent's
after = run()
print(hpq("diff", before, after))  # the lines of code that differ
print(hpq("summary", before, after))  # their trials in one ranking
print(hpq("best", before, after, "--args"))
