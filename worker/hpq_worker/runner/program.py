"""A trial that is a command: start it, receive its reports, stop it, kill its descendants.

Runs inside the runner, which adopts the orphans of whatever the program starts.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from threading import Thread

from hpq.domain.trial import Failure, FailureKind
from hpq.reporting import flatten, whole
from hpq_worker.process.process_tree import kill_descendants
from hpq_worker.process.protocol import End, RunRequest
from hpq_worker.runner.stall import STALLED, abort_descendants
from hpq_worker.runner.trial_api import Send

_LARGEST_BYTES = 262_144  # of one report; 50 names and their values fit many times over
# Any process of the user may send any datagram.
_INVALID = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


class Program:
    """One command of one attempt."""

    def __init__(self, run: RunRequest, send: Send) -> None:
        self._run, self._send = run, send
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped, self._why = False, ""
        self._is_over = False
        self._exit_code = 0  # that the program has reported, besides its exit status

    def stop(self, why: str) -> None:
        """Ask the program to end (SIGTERM to its process group); from any thread.

        A stalled program would not react: it and its descendants write their stacks and die.
        """
        self._is_stopped, self._why = True, why
        if self._process is not None and why == STALLED:
            abort_descendants()
        elif self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)

    def run(self) -> End:
        """Run the command to its end."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reports:
            reports.bind(self._run.socket)
            listener = Thread(target=self._listen, args=(reports,), daemon=True)
            listener.start()
            try:
                status = self._wait()
            except OSError as error:
                return End(failure=_cannot_start(self._run.argv[0], error))
            finally:
                kill_descendants()
                # The listener still receives the datagrams sent so far; then recv returns b"".
                self._is_over = True
                reports.shutdown(socket.SHUT_RD)
                listener.join()
        return self._end(status)

    def _wait(self) -> int:
        self._process = subprocess.Popen(
            self._run.argv,
            cwd=self._run.cwd,
            env=self._run.env,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        if self._is_stopped:  # the stop came before there was anything to signal
            self.stop(self._why)
        return self._process.wait()

    def _listen(self, reports: socket.socket) -> None:
        # Datagrams are in order and none is lost. Any process may send an empty one.
        while (data := reports.recv(_LARGEST_BYTES)) or not self._is_over:
            with contextlib.suppress(*_INVALID):
                message = json.loads(data)
                if message.get("ignore_printed") is True:
                    self._send({"ignore_printed": True})
                    continue
                if "exit_code" in message:
                    self._exit_code = int(message["exit_code"])
                    continue
                report, step = flatten(message["metrics"]), whole(message["step"])
                self._send({"report": report, "step": step})

    def _end(self, status: int) -> End:
        return End(stopped=self._is_stopped, status=status or self._exit_code)


def _cannot_start(name: str, error: OSError) -> Failure:
    message = f"cannot start {name!r}: {error.strerror}"
    return Failure(kind=FailureKind.USER_ERROR, message=message, fingerprint=message)
