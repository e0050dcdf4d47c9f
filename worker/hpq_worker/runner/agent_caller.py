"""The process that called `hpq.agent`, in place of a runner: it runs a function for each attempt.

It has a runner's pipes and messages. It is the user's own process, so the worker never kills it: an
attempt that outlives its limits is given up, and then this worker ends.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hpq_worker.process.config import CallerConfig
from hpq_worker.process.protocol import Halt, LineBuffer, RunRequest, encode, run_message

_LAST = b'{"last": true}'
# Why a trial is given up that the function still runs, and the agent continues with the next one.
_GOES_ON = (Halt.CANCELLED, Halt.PRUNED, Halt.DIVERGED, Halt.LOST)


class CallerLines(LineBuffer):
    """Splits the caller's bytes into lines, without the announcement of its last trial."""

    def __init__(self) -> None:
        super().__init__()
        self.has_last = False  # the announcement has arrived

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes; return the complete lines, without their ends."""
        lines = super().feed(data)
        if _LAST in lines:
            self.has_last = True
        return [line for line in lines if line != _LAST]


class Caller:
    """The caller's pipes; its interface is that of RunnerProcess."""

    def __init__(self, config: CallerConfig) -> None:
        self.answers = config.answers
        self.output = config.output
        self.count = config.count
        self.lines = CallerLines()
        self.pid = os.getppid()
        self._commands = config.commands
        self._why = ""  # the attempt was stopped
        self._is_given_up = False
        for fd in (self._commands, self.answers, self.output):
            os.set_inheritable(fd, False)
        for fd in (self.answers, self.output):
            os.set_blocking(fd, False)

    @property
    def has_left(self) -> bool:
        """True if the caller runs no further trial."""
        return self._is_given_up or self.lines.has_last

    def run(self, run: RunRequest) -> None:
        """Start an attempt."""
        self._send(run_message(run))

    def stop(self, why: str) -> None:
        """Let the function's next report raise an error."""
        self._why = str(why)
        self.tell({"stop": self._why})

    def dump_stacks(self) -> None:
        """Do nothing: the terminal of the function shows its stack when it is interrupted."""

    def end(self, timeout_s: float = 0.0) -> int:
        """Give the attempt up: the function still runs, or its process has ended."""
        self._is_given_up = True
        goes_on = self._why in _GOES_ON
        self.tell_over("" if goes_on else f"{self._why}; the agent ends", again=goes_on)
        return 0

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send a message; hpq.agent_loop lists them."""
        self._send(encode(message))

    def tell_over(self, error: str = "", *, again: bool = False) -> None:
        """Send the last message; `again`: the agent may start another worker for the next trial."""
        self.tell({"over": error, "again": again})

    def _send(self, data: bytes) -> None:
        with suppress(BrokenPipeError):  # it has ended
            view = memoryview(data)
            while view:
                view = view[os.write(self._commands, view) :]
