"""What becomes of a signal while a process of hpq still imports, also a container's first one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# A loop: Python notes a signal that comes just before one long sleep only at its end.
STALL = "import time\nprint('up', flush=True)\nwhile True:\n    time.sleep(0.01)\n"
can_unshare = os.geteuid() == 0 and shutil.which("unshare")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("first", [False, pytest.param(True, marks=pytest.mark.skipif(
    not can_unshare, reason="needs root, unshare"))])  # fmt: skip
@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("hpq_producer", "typer"),
        ("hpq_worker", "argparse"),
        ("hpq_worker.terminal_attempt", "redis"),
    ],
)
def test_a_process_that_still_imports_ends_at_a_signal_without_a_word(
    tmp_path: Path, module: str, imported: str, first: bool, number: int
) -> None:
    (tmp_path / f"{imported}.py").write_text(STALL)
    # The child of unshare is process 1 of its own namespace, as in a container.
    words = ["unshare", "--pid", "--fork", "--kill-child"] if first else []
    with subprocess.Popen(
        [*words, sys.executable, "-m", module],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as outer:
        assert outer.stdout is not None and outer.stdout.readline() == b"up\n"
        pid = outer.pid
        if first:
            pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        os.kill(pid, number)
        said = outer.communicate()
        by_default = number == signal.SIGTERM and not first
        assert outer.returncode == (-number if by_default else 128 + number)
        assert said == (b"", b"")
