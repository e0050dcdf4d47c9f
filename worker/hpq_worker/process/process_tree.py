"""The process tree: adopt orphans, find and kill descendants. Standard library only.

On Linux a subreaper inherits every orphan below it, also those in sessions of their own, as
torchrun's ranks; other systems have process groups only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection
from pathlib import Path
from types import FrameType

SPARED: set[int] = set()  # children of this process that belong to no runner
_PATIENCE_S = 5.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_WALL = 0x40000000  # also children of clone() that send no SIGCHLD (Linux)


def adopt_orphans() -> None:
    """Make this process the parent of every orphan among its descendants (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent(parent: int | None = None) -> None:
    """Send this process SIGTERM when its parent dies (Linux), or now if that is not `parent`.

    The kernel sends SIGCONT, since a process that is stopped would not get SIGTERM.
    """
    alive = os.getppid()

    def check(_number: int, _frame: FrameType | None) -> None:
        if os.getppid() != alive:
            os.kill(os.getpid(), signal.SIGTERM)

    if sys.platform == "linux":
        signal.signal(signal.SIGCONT, check)
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGCONT), 0, 0, 0)
    if parent not in (None, os.getppid()):  # it died before the call
        os.kill(os.getpid(), signal.SIGTERM)


def children() -> dict[int, list[int]]:
    """Return parent → children, of all visible processes; none on other systems than Linux."""
    tree: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir() if sys.platform == "linux" else ():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name in brackets may hold spaces and brackets; the fields after the last do not.
            after = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            if after[0] != "Z":
                tree.setdefault(int(after[1]), []).append(int(entry.name))
    return tree


def descendants(pid: int, but: Collection[int] = ()) -> list[int]:
    """Return the living processes below one, except `but` and the processes below those."""
    tree = children()
    found = []
    front = [pid]
    while front:
        below = [child for child in tree.get(front.pop(), []) if child not in but]
        found += below
        front += below
    return found


def is_stopped(pid: int) -> bool:
    """Return True if a child of this process was stopped by SIGSTOP, where the system tells."""
    if not hasattr(os, "waitid"):
        return False
    try:
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # it has ended; its status may not be read yet
        return False


def kill_orphans(keep: Collection[int]) -> None:
    """Kill all descendants except `keep` and the processes below those."""
    _kill(descendants(os.getpid(), keep))


def kill_descendants() -> None:
    """Kill and reap all descendants except SPARED, also those that fork meanwhile."""
    end = time.monotonic() + _PATIENCE_S
    while _has_child() and time.monotonic() < end:
        left = [pid for pid in descendants(os.getpid()) if pid not in SPARED]
        _kill(left)
        _reap()
        if not left:
            return
        time.sleep(0.002)  # a killed process needs a moment to die


def _has_child() -> bool:
    """Return False if this process has no child, thus no descendant.

    One call, where `descendants` reads a file of each process of the machine.
    """
    if sys.platform != "linux":
        return True
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT | _WALL)
    except ChildProcessError:
        return False
    return True


def _kill(pids: Collection[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
