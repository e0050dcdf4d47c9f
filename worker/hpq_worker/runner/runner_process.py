"""The parent's end of a runner: start it, send commands, read its pipes, end it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import hpq
import hpq_worker
from hpq_worker.process.process_tree import kill_descendants
from hpq_worker.process.protocol import LineBuffer, RunRequest, encode, run_message
from hpq_worker.runner.stall import DUMP

# The directories that `hpq` and `hpq_worker` are imported from; in a checkout there are two.
_ROOTS = dict.fromkeys(
    str(Path(file).resolve().parents[1]) for file in (hpq.__file__, hpq_worker.__file__)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerKey:
    """Runs with equal keys may share a runner; a run that needs a fresh one sets `attempt`."""

    trainer: str
    code: str
    code_dir: str
    owner: str = ""  # of the user's code, whose modules stay in memory; "" for built-in trainers
    pass_env: tuple[str, ...] = ()
    attempt: str = ""


class RunnerProcess:
    """A runner process: two pipes for messages, one for its output."""

    def __init__(
        self, key: RunnerKey, env: Mapping[str, str], cwd: str, in_terminal: bool = False
    ) -> None:
        self.key = key
        self.lines = LineBuffer()
        commands, self._to_child = os.pipe()
        self.answers, answers = os.pipe()
        self.output, output = os.pipe()
        for fd in (self.answers, self.output):
            os.set_blocking(fd, False)
        command = [sys.executable, "-P", "-u", "-m", "hpq_worker.runner"]
        python_path = os.pathsep.join(p for p in (*_ROOTS, env.get("PYTHONPATH", "")) if p)
        try:
            # -P: the working directory is the user's, and must not shadow installed modules.
            self._process = subprocess.Popen(
                [*command, str(commands), str(answers)],
                env={**env, "PYTHONPATH": python_path},
                cwd=cwd,
                stdin=None if in_terminal else subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(commands, answers),
                start_new_session=not in_terminal,
            )
        except OSError:  # the worker goes on, and would run out of descriptors
            for fd in (self._to_child, self.answers, self.output):
                os.close(fd)
            raise
        finally:
            for fd in (commands, answers, output):
                os.close(fd)

    @property
    def pid(self) -> int:
        """The root of the process tree of its attempts."""
        return self._process.pid

    def run(self, run: RunRequest) -> None:
        """Start an attempt."""
        self._send(run_message(run))

    def stop(self, why: str) -> None:
        """Ask the attempt to end."""
        self._send(encode({"stop": why}))

    def dump_stacks(self) -> None:
        """Let the runner write its Python stacks to its output."""
        self._process.send_signal(DUMP)

    def _send(self, data: bytes) -> None:
        with suppress(BrokenPipeError):  # it has died; the end of `answers` shows it
            view = memoryview(data)
            while view:
                view = view[os.write(self._to_child, view) :]

    def end(self, timeout_s: float = 2.0) -> int:
        """End the runner with its descendants; return its exit status (negative: a signal).

        Its output can still be read.
        """
        self._to_child = _close(self._to_child)
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            status = self._process.wait()
        kill_descendants()  # this process adopts what a killed runner left behind
        return status

    def close(self) -> None:
        """End the runner, if it runs, and close its pipes."""
        self.end()
        self.answers, self.output = _close(self.answers), _close(self.output)

    def status(self) -> int | None:
        """The exit status, or None while it runs."""
        return self._process.poll()


def _close(fd: int) -> int:
    # Once only: by the second time the number may be that of another thread's connection.
    if fd >= 0:
        os.close(fd)
    return -1
