"""What a process of a worker sees of its child processes, and how it ends them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

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


def _run(code: str) -> None:
    """Run code in a process of its own, since it ends all of that process's children."""
    head = "import os, subprocess\nfrom hpq_worker.process import process_tree\n"
    subprocess.run([sys.executable, "-P", "-c", head + code], check=True, timeout=60)


@pytest.mark.skipif(sys.platform != "linux", reason="waitid")
def test_a_process_without_children_looks_at_no_other_process() -> None:
    """A program that has ended alone: hundreds of files in /proc would be read between trials."""
    _run("process_tree.children = None\nprocess_tree.kill_descendants()")


@pytest.mark.skipif(sys.platform != "linux", reason="a subreaper")
def test_an_orphan_in_a_session_of_its_own_is_killed_and_reaped() -> None:
    _run(
        "process_tree.adopt_orphans()\n"
        "command = ['sh', '-c', 'setsid sleep 60 >/dev/null & echo $!']\n"
        "orphan = int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)\n"
        "os.kill(orphan, 0)\n"
        "process_tree.kill_descendants()\n"
        "try:\n    os.kill(orphan, 0)\n"
        "except ProcessLookupError:\n    pass\n"
        "else:\n    raise SystemExit('it lives')"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="clone3")
def test_a_child_that_sends_no_signal_at_its_end_is_killed() -> None:
    """`waitid` sees no child of clone() without SIGCHLD unless it is asked for all."""
    _run(
        "import ctypes, time\n"
        "args = (ctypes.c_uint64 * 8)()\n"  # no flags, no exit signal
        "child = ctypes.CDLL(None).syscall(435, args, ctypes.sizeof(args))\n"
        "if child == 0:\n    time.sleep(60)\n    os._exit(0)\n"
        "assert child > 0\n"
        "process_tree.kill_descendants()\n"
        "assert process_tree.descendants(os.getpid()) == []"
    )
