"""Run the installed hpq in a directory, with an environment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

HPQ = str(Path(sys.executable).with_name("hpq"))


def run_hpq(
    words: Sequence[object], cwd: Path, env: Mapping[str, str], deadline_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, without a terminal."""
    return subprocess.run(
        [HPQ, *map(str, words)],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=deadline_s,
        check=False,
    )


def stdout_of(done: subprocess.CompletedProcess[str]) -> str:
    """Assert that a command succeeded; return its output."""
    assert done.returncode == 0, (done.args, done.returncode, done.stdout, done.stderr)
    return done.stdout
