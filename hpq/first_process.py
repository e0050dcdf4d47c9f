"""A container's first process: to the kernel it has no default answer to a signal.

Until it has handlers of its own, SIGTERM is lost on it: a pod that is deleted while Python still
imports would go on, take trials, and be killed with them at the end of its grace.
Standard library only.
"""

from __future__ import annotations

import os
import signal
from types import FrameType


def end_on_sigterm() -> None:
    """Until something else is installed, end as any other process does."""
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)


def _end(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)
