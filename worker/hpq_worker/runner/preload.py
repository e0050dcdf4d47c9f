"""Start programs as forks of a process that has imported their modules (`preload: [torch]`)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from select import select
from typing import Any

from hpq_worker.process.process_tree import SPARED
from hpq_worker.process.protocol import LineBuffer, RunRequest
from hpq_worker.runner import preload_server
from hpq_worker.runner.stall import abort

_WAKE_S = 5.0  # after which a server that does not answer is continued, if it is stopped
# Variables of one trial. Any other may decide what a module does at its import.
_OF_A_TRIAL = ("HPQ_", "MASTER_", "PET_", "WANDB_")


class PreloadClient:
    """Lets a server fork programs; starts the server, and another if their environment changes."""

    def __init__(self) -> None:
        self.pid = 0  # of the program
        self._status: int | None = None
        self._key: tuple[object, ...] = ()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, run: RunRequest, phase: Callable[[str], None]) -> bool:
        """Start the program of an attempt; False if it cannot be forked.

        The log and the trial's phase say why, once.

        Raises:
            OSError: its Python cannot be started.
        """
        self.pid, self._phase = 0, phase
        argv = run.argv[run.argv[0] == "/usr/bin/env" :]
        env = _environment(run)
        if self._key != (key := (argv[0], run.preload, env)):
            self._close()
            self._key = key
            self._open(argv[0], run.preload, env)
        if self._process is not None:
            self._send({"argv": argv[1:], "env": run.env, "cwd": run.cwd})
            answer = self._answer()  # the status if it was killed at once
            self.pid, self._status = answer.get("pid", 0), answer.get("status")
            if self._process is None:
                self._key = ()  # it had ended: the next program gets another
        return self._process is not None

    def interrupt(self, is_stalled: bool) -> None:
        """End the server while it imports the modules for a program; from any thread."""
        if (process := self._process) is not None:
            self._key = ()
            abort(process.pid) if is_stalled else process.kill()

    def wait(self) -> int:
        """Return the program's exit status; negative: a signal."""
        if self._status is None:
            self._status = self._answer().get("status")
        if self._status is None:  # the server was killed, and this process adopted the program
            self._key, self._status = (), os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def _open(self, python: str, modules: tuple[str, ...], env: Mapping[str, str]) -> None:
        self._channel, theirs = socket.socketpair()
        command = [python, preload_server.__file__, str(theirs.fileno()), *modules]
        with theirs:
            self._process = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),)
            )
        SPARED.add(self._process.pid)
        self._buffer, self._lines = LineBuffer(), list[bytes]()
        self._answer()

    def _send(self, request: Mapping[str, Any]) -> None:
        with suppress(OSError):  # the missing answer shows it
            self._channel.sendall(json.dumps(request).encode() + b"\n")

    def _answer(self) -> dict[str, Any]:
        """Read an answer; end the server if it refuses, or has ended."""
        answer: dict[str, Any] = {"refused": "the process that imported the modules has ended"}
        with suppress(OSError):
            if line := self._line():
                answer = json.loads(line)
        if reason := answer.get("refused"):
            if self._key and not self.pid:  # else it was interrupted, or its program runs on
                print(f"hpq: without preload: {reason}", flush=True)
                self._phase(f"without preload: {reason}")
            self._close()
        return answer

    def _line(self) -> bytes:
        """Wait for a line of the server; b"" if it has ended."""
        assert self._process is not None
        while not self._lines:
            if not select([self._channel], [], [], _WAKE_S)[0]:
                self._process.send_signal(signal.SIGCONT)
            elif data := self._channel.recv(65_536):
                self._lines += self._buffer.feed(data)
            else:
                return b""
        return self._lines.pop(0)

    def _close(self) -> None:
        if self._process is not None:
            SPARED.discard(self._process.pid)
            self._channel.close()
            self._process.kill()
            self._process.wait()
            self._process = None


def _environment(run: RunRequest) -> dict[str, str]:
    """Return the environment of a program without what differs between the trials of a sweep."""
    env = {n: v for n, v in (run.env or {}).items() if not n.startswith(_OF_A_TRIAL)}
    entries = env.get("PYTHONPATH", "").split(os.pathsep)
    shared = (e for e in entries if not e.startswith(os.path.dirname(run.out)))
    return {**env, "PYTHONPATH": os.pathsep.join(shared)}
