"""The child that runs training code: `python -P -m hpq_worker.runner IN OUT` (file descriptors).

It is started by exec, never by fork, since a forked child cannot use CUDA. It adopts every orphan
below it; when the parent's pipe closes it kills its descendants and itself. A trainer runs in the
main thread; a second thread reads the parent's commands, so that a stop arrives during a step.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from types import FrameType
from typing import Any

from hpq.domain.trainer_specs import BUILT_IN
from hpq.domain.trial import Failure
from hpq.errors import HpqError, UserError
from hpq.reporting import set_sink
from hpq_worker.process.process_tree import SPARED, adopt_orphans, kill_descendants
from hpq_worker.process.protocol import (
    AttemptEnd,
    LineBuffer,
    RunRequest,
    encode,
    end_message,
    read_run,
)
from hpq_worker.runner.failures import of_exception
from hpq_worker.runner.preload import PreloadClient
from hpq_worker.runner.program import Program
from hpq_worker.runner.stall import dump_on_signal
from hpq_worker.runner.trial_api import Send, Trial

_START_S = 20


class ProcessState:
    """The working directory and the output of this process, which training code may change.

    Whether a write blocks belongs to the open pipe, which the programs of all attempts share.
    """

    def __init__(self) -> None:
        self._cwd = os.getcwd()
        self._outputs = {number: os.dup(number) for number in (1, 2)}

    def enter(self) -> None:
        """Enter the working directory, which may be a new one of the same path.

        The output blocks again: most programs lose what they print into a full pipe that does not.
        """
        for number in self._outputs:
            os.set_blocking(number, True)
        with suppress(OSError):
            os.chdir(self._cwd)

    def restore(self) -> None:
        """Flush the output, and restore it for the next attempt."""
        for number, stream in ((1, sys.stdout), (2, sys.stderr)):
            with suppress(AttributeError, OSError, ValueError):
                stream.flush()
            os.dup2(self._outputs[number], number)
        if getattr(sys.stdout, "closed", True):
            sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
        if getattr(sys.stderr, "closed", True):
            sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115


class Runner:
    """Runs the attempts that the parent sends, one after another."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._runs: queue.Queue[RunRequest] = queue.Queue()
        self._stop = threading.Event()
        self._why = ""
        self._status = 0  # of a trainer: -SIGINT after Ctrl-C
        self._writing = threading.Lock()
        self._program: Program | None = None
        self._preload = PreloadClient()

    def main(self) -> None:
        """Serve until the parent ends."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_START_S)  # `start` never returns if there is no memory for the thread
        threading.Thread(target=self._read_commands, daemon=True).start()
        signal.alarm(0)
        self._survive_sigterm()
        state = ProcessState()
        while True:
            run = self._runs.get()
            state.enter()
            end = self._run(run)
            state.restore()
            self._write(end_message(run.id, end))

    def _survive_sigterm(self) -> None:
        """Outlive a SIGTERM to all processes of a job or cgroup: the worker stops the trial."""
        pid = os.getpid()

        def survive(number: int, _frame: FrameType | None) -> None:
            if os.getpid() != pid:  # training code forked it, and ends it
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            elif (program := self._program) is not None:
                program.signalled()

        signal.signal(signal.SIGTERM, survive)

    def _read_commands(self) -> None:
        lines = LineBuffer()
        while data := os.read(self._commands, 65_536):
            for line in lines.feed(data):
                message = json.loads(line)
                if "run" in message:
                    self._stop.clear()
                    self._runs.put(read_run(message["run"]))
                else:
                    self._why = message["stop"]
                    self._stop.set()
                    if (program := self._program) is not None:
                        program.stop(message["stop"])
        SPARED.clear()
        kill_descendants()
        os._exit(1)

    def _run(self, run: RunRequest) -> AttemptEnd:
        if not run.argv:
            return self._train(run)
        self._program = program = Program(run, self._preload, self._sender(run))
        if self._stop.is_set():
            program.stop(self._why)
        try:
            return program.run()
        finally:
            self._program = None

    def _train(self, run: RunRequest) -> AttemptEnd:
        send, pid = self._sender(run), os.getpid()
        trial = Trial(run, send, self._stop.is_set)
        set_sink(trial.report, send)
        if run.in_terminal:
            self._stop_on_interrupt()
        os.environ.update(run.env or {})
        try:
            if run.code_dir and run.code_dir not in sys.path:
                sys.path.insert(0, run.code_dir)
            module, function = _split(run.trainer)
            if module not in sys.modules:
                trial.phase(f"importing {run.trainer}")
            train = _function(module, function)
            returned = train(dict(run.params), trial)
            if os.getpid() == pid and isinstance(returned, Mapping):
                trial.report(returned)
        except BaseException as error:  # a trainer may also call sys.exit
            if not (run.in_terminal and isinstance(error, HpqError)):  # `hpq try` prints its text
                traceback.print_exc()
            stopped = self._stop.is_set()
            return AttemptEnd(failure=_failure_of(error), stopped=stopped, status=self._status)
        finally:
            if os.getpid() != pid:  # a child that training code forked and let come back here
                os._exit(0)
            set_sink(None)
        # A trainer that never read the stop has finished by itself.
        return AttemptEnd(stopped=trial.has_seen_stop, status=self._status)

    def _stop_on_interrupt(self) -> None:
        """Let the first Ctrl-C stop the trainer at its next step, and the second interrupt it."""
        pid = os.getpid()

        def stop(number: int, _frame: FrameType | None) -> None:
            if os.getpid() != pid:  # training code forked it, as a DataLoader does, and ends it
                return
            signal.signal(number, signal.default_int_handler)
            self._status = -number
            self._stop.set()
            line = b"hpq: the trainer stops at its next step; a second Ctrl-C ends it now\n"
            os.write(2, line)  # the signal may have interrupted a print

        signal.signal(signal.SIGINT, stop)

    def _sender(self, run: RunRequest) -> Send:
        of = run.id
        return lambda message: self._write(encode({"of": of, **message}))

    def _write(self, data: bytes) -> None:
        with self._writing:
            view = memoryview(data)
            while view:
                view = view[os.write(self._answers, view) :]


def _split(trainer: str) -> tuple[str, str]:
    if trainer in BUILT_IN:
        return BUILT_IN[trainer].module, "train"
    module, _, function = trainer.partition(":")
    return module, function


def _function(module: str, function: str) -> Callable[..., Any]:
    """Return the function of a trainer.

    Raises:
        UserError: the module has no such function.
    """
    imported = importlib.import_module(module)
    found = getattr(imported, function, None)
    if callable(found):
        return found  # type: ignore[no-any-return]
    close = get_close_matches(function, [n for n, v in vars(imported).items() if callable(v)], n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise UserError(f"{module} has no function {function!r}{hint}", code="trainer-not-found")


def _failure_of(error: BaseException) -> Failure | None:
    if isinstance(error, SystemExit) and error.code in (None, 0):
        return None
    return of_exception(error)


def main() -> None:
    """Serve on the two file descriptors given."""
    commands, answers = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(commands, False)
    os.set_inheritable(answers, False)
    adopt_orphans()
    dump_on_signal()
    with suppress(KeyboardInterrupt, BrokenPipeError):
        Runner(commands, answers).main()


if __name__ == "__main__":
    main()
