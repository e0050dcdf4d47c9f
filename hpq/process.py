"""A container's first process: to the kernel it has no default answer to a signal.

Until it has handlers of its own, SIGTERM is lost on it: a pod that is deleted while Python still
imports would go on, take trials, and be killed with them at the end of its grace.
Standard library only.

Keeps variables out of /proc/PID/environ, which shows a process's first environment for good.

Root and the same user read it, training code therefore, too, whatever the process does to its
variables later. So their text is overwritten where it lies. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Collection, Mapping
from types import FrameType

from hpq.connection import credentials
from hpq.settings import SECRETS, variable


def end_on_sigterm() -> None:
    """Until something else is installed, end as any other process does."""
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


def _end(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)


_ALWAYS = frozenset(variable(name) for name in SECRETS)
_STORE = variable("store")


def ours(environ: Mapping[str, str]) -> frozenset[str]:
    """The variables of hpq's that hold a secret there; HPQ_STORE where its URL carries one."""
    return _ALWAYS | ({_STORE} if credentials.carried(environ.get(_STORE, "")) else set())


def overwrite(names: Collection[str] | None = None) -> None:
    """Blank these variables (`ours`) where /proc shows them (Linux); `os.environ` keeps them."""
    if sys.platform != "linux":
        return
    wanted = {os.fsencode(name) for name in (ours(os.environ) if names is None else names)}
    entries = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
    i = 0
    while (at := entries[i]) is not None:
        text = ctypes.string_at(at)
        if text.partition(b"=")[0] in wanted:
            ctypes.memset(at, 0, len(text))
        i += 1
