"""Start a process of hpq: open its streams, hide its secrets from /proc.

/proc/PID/environ shows a process's first environment to root and to the same user, thus also to
training code, until the process ends. `overwrite` blanks the secrets in place.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import sys
from collections.abc import Collection, Mapping

from hpq.redis import credentials


def open_streams() -> None:
    """Open /dev/null as each standard stream that is closed, as some daemons start programs.

    Otherwise the next file or socket gets its number, and what a child prints goes there. A stream
    that is open for the other direction counts as closed.
    """
    streams = (
        ("stdin", "r", os.O_RDONLY),
        ("stdout", "w", os.O_WRONLY),
        ("stderr", "w", os.O_WRONLY),
    )
    for number, (name, mode, direction) in enumerate(streams):
        if not _is_open(number, direction):
            null = os.open(os.devnull, os.O_RDWR)  # most often it gets the number itself
            os.dup2(null, number)
            if null != number:
                os.close(null)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115


def _is_open(number: int, direction: int) -> bool:
    try:
        return fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE in (direction, os.O_RDWR)
    except OSError:
        return False


def ours(environ: Mapping[str, str]) -> frozenset[str]:
    """Return hpq's variables that hold a secret; HPQ_STORE if its URL carries one."""
    store = {"HPQ_STORE"} if credentials.carried(environ.get("HPQ_STORE", "")) else set()
    return credentials.SECRETS | store


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
