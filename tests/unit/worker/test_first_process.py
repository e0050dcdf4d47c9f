"""What becomes of SIGTERM while a container's first process still starts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root, unshare")
@pytest.mark.parametrize("package", ["hpq_producer", "hpq_worker"])
def test_a_first_process_that_still_imports_ends_at_sigterm(package: str) -> None:
    # A loop: Python notes a signal that comes just before one long sleep only at its end.
    code = f"import {package}, time\nprint('up', flush=True)\nwhile True: time.sleep(0.01)"
    # The child of unshare is process 1 of its own namespace, as in a container.
    words = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", code]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as outer:
        assert outer.stdout is not None and outer.stdout.readline() == b"up\n"
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGTERM)
        assert outer.wait() == 128 + signal.SIGTERM
