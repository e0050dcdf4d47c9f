"""What a supervisor sees of its child processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from hpq_worker.process.process_tree import is_stopped


def test_only_a_child_that_was_stopped_is_stopped() -> None:
    """Not one that runs, and not one that has ended, before and after its status was read."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert not is_stopped(child.pid)
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        assert is_stopped(child.pid)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not is_stopped(child.pid)
        child.wait()
        assert not is_stopped(child.pid)
