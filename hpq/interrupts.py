"""End a process of hpq at a signal, without a traceback, while it has nothing to end.

A process installs these handlers before the imports that take time.
"""

from __future__ import annotations

import os
import signal


def _end(number: int, _frame: object) -> None:
    os._exit(128 + number)


def end_on_signals() -> None:
    """Exit with 130 on Ctrl-C, and as the first process of a container with 143 on SIGTERM.

    The kernel has no default action for such a process. Without a handler SIGTERM would be lost: a
    deleted pod would still import, claim trials, and be killed with them at the end of its grace.
    A SIGINT that is ignored stays ignored, as in the background jobs of a shell.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


class Interruptible:
    """A `with` block that has something to end: in it, Ctrl-C raises KeyboardInterrupt."""

    def __enter__(self) -> None:
        self._is_active = signal.getsignal(signal.SIGINT) is _end
        if self._is_active:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *_: object) -> None:
        if self._is_active:
            signal.signal(signal.SIGINT, _end)
