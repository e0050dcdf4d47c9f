"""Run functions for the trials of a sweep in this process: what `hpq.agent` is built of.

A worker process beside this one claims the trials, extends their leases and commits their results;
it outlives neither this process nor the call. Standard library only, Python 3.9 and newer: also
hpq's stand-in for wandb uses it.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from select import select
from typing import Any

from hpq.reporting import AGENT, send_by_socket, set_sink

PYTHON = "HPQ_EXEC"  # `hpq exec` names the Python that has all of hpq
_WAKE_S = 5.0  # after which a worker that says nothing is continued, if it is stopped
_is_active = threading.Lock()


class Stopped(Exception):
    """The trial is cancelled, pruned or past its time limit; each later report raises it."""


class AgentError(RuntimeError):
    """The agent cannot run the trials of the sweep, or cannot continue."""


class Attempt:
    """One attempt at a trial, for the function that runs it."""

    def __init__(self, run: Mapping[str, Any], worker: _Worker) -> None:
        self._id = f"{run['trial']}/{run['attempt']}"
        self._worker, self._pid = worker, os.getpid()
        self.run = run
        self.was_stopped = False

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a report; forked children send it to the worker's socket."""
        if os.getpid() == self._pid:
            self._worker.answer({"of": self._id, **message})
        else:
            send_by_socket(message)

    def report(self, metrics: Mapping[str, float], step: int | None) -> None:
        """Report metrics."""
        self.send({"report": dict(metrics), "step": step, "at": time.time()})

    def is_stopped(self) -> bool:
        """Return True if the trial must end."""
        return bool(self._worker.stop_reason())

    def raise_if_stopped(self) -> None:
        """Raise Stopped if the trial must end."""
        if os.getpid() == self._pid and self.is_stopped():
            self.was_stopped = True
            raise Stopped(f"hpq ends this trial: {self._worker.stop_reason()}")

    def end(self, status: int, *, is_last: bool) -> None:
        """Report the end, with an exit status; `is_last`: the agent runs no further trial."""
        if is_last:
            self._worker.answer({"last": True})
        end = {"stopped": self.was_stopped, "failure": None, "status": status}
        self._worker.answer({"of": self._id, "end": end})


class _Worker:
    """The worker process of this agent and the three pipes to it.

    It sends {"run": …} for each attempt, {"stop": why} if the attempt must end, and as its last
    message {"over": error or "", "again": whether another worker may run the next attempt}.
    """

    def __init__(self, sweep: str, count: int) -> None:
        self._commands, commands = os.pipe()
        answers, self._answers = os.pipe()
        output, self._output = os.pipe()
        fds = (commands, answers, output)
        caller = {
            "commands": commands,
            "answers": answers,
            "output": output,
            "count": count,
        }
        python = os.environ.get(PYTHON) or sys.executable
        words = [python, "-P", "-m", "hpq_producer.agent_worker", sweep]
        # A session of its own: Ctrl-C must reach this process alone.
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, pass_fds=fds, start_new_session=True
        )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError), self._process.stdin as config:
            own = {"parent": os.getpid(), "is_until_over": True, "caller": caller}
            config.write(json.dumps(own).encode() + b"\n")
        for fd in fds:
            os.close(fd)
        for fd in (self._answers, self._output):
            os.set_blocking(fd, False)
        self._rest = b""
        self.stop = ""  # why the current trial must end
        self.last: Mapping[str, Any] = {"over": f"sweep {sweep}: the worker of the agent has ended"}
        self._writing, self._reading = threading.Lock(), threading.Lock()
        self._is_closed = False

    def next_run(self) -> Mapping[str, Any] | None:
        """Wait for the next attempt; None at the worker's end."""
        while (message := self._read()) is not None:
            if "run" in message:
                self.stop = ""
                return message["run"]  # type: ignore[no-any-return]
        return None

    def _read(self) -> Mapping[str, Any] | None:
        while b"\n" not in self._rest:
            self._wait_for([self._commands], [])
            data = os.read(self._commands, 65536)
            if not data:
                self.stop = self.stop or "the worker process of the agent has ended"
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        message: Mapping[str, Any] = json.loads(line)
        self.stop = message.get("stop", self.stop)
        if "over" in message:
            self.last = message
        return message

    def stop_reason(self) -> str:
        """Return why the current trial must end; "" while it may run."""
        with self._reading:  # several threads of the function may report
            while not (self.stop or self._is_closed) and select([self._commands], [], [], 0)[0]:
                self._read()
        return self.stop

    def answer(self, message: Mapping[str, Any]) -> None:
        """Send a report or the end of an attempt."""
        self._write(self._answers, json.dumps(message).encode() + b"\n")

    def print(self, text: str) -> None:
        """Add output to the trial's log."""
        self._write(self._output, text.encode("utf-8", "replace"))

    def _write(self, fd: int, data: bytes) -> None:
        with self._writing, suppress(BrokenPipeError):  # it gave the trial up
            view = memoryview(b"" if self._is_closed else data)  # the number may be another file's
            while view:
                try:
                    view = view[os.write(fd, view) :]
                except BlockingIOError:
                    self._wait_for([], [fd])

    def _wait_for(self, readable: list[int], writable: list[int]) -> None:
        """Wait for a pipe of the worker, which continues if it was stopped."""
        while not any(select(readable, writable, [], _WAKE_S)):
            self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End the worker: it returns a trial that is not over to the queue."""
        with self._writing:
            self._is_closed = True
            for fd in (self._commands, self._answers, self._output):
                os.close(fd)
        self._process.terminate()
        while True:
            self._process.send_signal(signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_WAKE_S)
                return


def serve(
    sweep: str,
    call: Callable[[Attempt], int],
    count: int | None = None,
    *,
    goes_on: Callable[[bool], bool] = lambda failed: True,
) -> None:
    """Call a function for each trial; it returns an exit status.

    `goes_on(failed)` decides after each whether to continue.

    Raises:
        AgentError: the sweep cannot run here, is held, or a trial exceeded its time limit.
        KeyboardInterrupt: Ctrl-C; the trial returns to the queue.
    """
    if not _is_active.acquire(blocking=False):
        raise AgentError("this process runs an agent already; start the script again for another")
    left = count or 0
    last: Mapping[str, Any] = {"again": True}
    folder = tempfile.mkdtemp(prefix="hpq-agent-")
    try:
        while last.get("again") and (left or not count):
            worker = _Worker(sweep, left)
            try:
                while (run := worker.next_run()) is not None:
                    left -= bool(left)
                    attempt = Attempt(run, worker)
                    status = _run(call, attempt, worker, folder)
                    is_last = not goes_on(bool(status) and not attempt.was_stopped)
                    attempt.end(status, is_last=is_last)
                    if is_last:
                        worker.next_run()  # none comes: this waits until the trial is committed
                        return
            finally:
                worker.close()
            last = worker.last
            if last["over"]:
                raise AgentError(last["over"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _is_active.release()


def _run(call: Callable[[Attempt], int], attempt: Attempt, worker: _Worker, folder: str) -> int:
    """Run one attempt; return its exit status."""
    status = 0
    with _environment(attempt.run["env"], folder), _output(worker.print):
        try:
            status = call(attempt)
        except Stopped:
            pass
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
            if status and not isinstance(error.code, int):  # as the interpreter prints it
                print(error.code, file=sys.stderr)
        except Exception:
            traceback.print_exc()
            status = 1
        finally:
            set_sink(None)
    if status:  # the traceback no longer holds the tensors of the trial
        gc.collect()
        if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
            sys.modules["torch"].cuda.empty_cache()
    return status


@contextmanager
def _environment(of_trial: Mapping[str, str], folder: str) -> Iterator[None]:
    """Set the variables of a trial, also in a file: a forkserver's children have older ones."""
    env = {**of_trial, AGENT: os.path.join(folder, "trial.json")}
    with open(f"{env[AGENT]}.new", "w", encoding="utf-8") as file:
        json.dump(env, file)
    os.replace(file.name, env[AGENT])
    before = {name: os.environ.get(name) for name in env}
    os.environ.update(env)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def _output(send: Callable[[str], None]) -> Iterator[None]:
    """Copy what this process writes to its two streams to the trial's log.

    The streams stay the same objects: handlers of logging hold them since before the trial.
    """
    streams = {id(stream): stream for stream in (sys.stdout, sys.stderr)}.values()
    for stream in streams:
        stream.write = _copying(stream.write, send)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for stream in streams:
            del stream.write


def _copying(write: Callable[[str], int], send: Callable[[str], None]) -> Callable[[str], int]:
    def both(text: str) -> int:
        send(text)
        return write(text)

    return both
