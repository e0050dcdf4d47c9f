"""A trial that is a command: start it, stop it, kill its descendants.

Runs inside the runner, which adopts the orphans of all processes that the program starts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable

from hpq.domain.trial import Failure, FailureKind
from hpq_worker.process.process_tree import kill_descendants
from hpq_worker.process.protocol import AttemptEnd, Halt, RunRequest
from hpq_worker.runner.preload import PreloadClient
from hpq_worker.runner.stall import abort_descendants
from hpq_worker.runner.trial_api import Send


class Program:
    """One command of one attempt."""

    def __init__(self, run: RunRequest, preload: PreloadClient, send: Send) -> None:
        self._run = run
        self._preload = preload
        self._send = send
        self._pid = 0
        self._is_stopped, self._why = False, ""
        self._is_signalled = False

    def stop(self, why: str) -> None:
        """Ask the program to end (SIGTERM to its process group); from any thread.

        A stalled program would not react: it and its descendants write their stacks and die.
        """
        self._is_stopped, self._why = True, why
        if self._pid and why == Halt.STALLED:
            abort_descendants()
        elif not self._pid:  # it imports the modules of `preload`, or has not begun
            self._preload.interrupt(why == Halt.STALLED)
        elif not self._is_signalled:  # a second one could end it while it saves
            # In a terminal its process group is also that of the user's shell command.
            kill = os.kill if self._run.in_terminal else os.killpg
            with contextlib.suppress(ProcessLookupError):
                kill(self._pid, signal.SIGTERM)

    def signalled(self) -> None:
        """Note that the program has got SIGTERM with all processes of the job."""
        self._is_stopped = self._is_signalled = True

    def run(self) -> AttemptEnd:
        """Run the command to its end."""
        try:
            return AttemptEnd(status=self._wait(), stopped=self._is_stopped)
        except OSError as error:
            text = f"cannot start {self._run.argv[0]!r}: {error.strerror}"
            kind = FailureKind.USER_ERROR
            return AttemptEnd(failure=Failure(kind=kind, message=text, fingerprint=text))
        finally:
            kill_descendants()

    def _wait(self) -> int:
        if self._run.in_terminal:  # Ctrl-C reaches the program, too, which decides
            signal.signal(signal.SIGINT, lambda *_: None)
        self._pid, wait = self._start()
        if self._is_stopped and self._pid:  # the stop came before the process existed
            self.stop(self._why)
        return wait()

    def _start(self) -> tuple[int, Callable[[], int]]:
        """Start the command; return its pid, and a function that waits for its exit status."""
        server, in_terminal = self._preload, self._run.in_terminal
        if self._run.preload and not in_terminal:
            if server.start(self._run, lambda text: self._send({"phase": text})):
                return server.pid, server.wait
            if self._is_stopped:  # while the modules were imported
                return 0, lambda: -signal.SIGTERM
        process = subprocess.Popen(
            self._run.argv,
            cwd=self._run.cwd,
            env=self._run.env,
            stdin=None if in_terminal else subprocess.DEVNULL,
            start_new_session=not in_terminal,
        )
        return process.pid, process.wait
