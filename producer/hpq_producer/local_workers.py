"""Run the workers of `hpq run`: a supervisor on this machine, for one command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from hpq.access.session import Session, environment
from hpq.domain.sweep import SweepView
from hpq.error_codes import Code
from hpq.filestore.stores import location
from hpq.gpus import device_line
from hpq.notice import print_message
from hpq.private_files import make_private, private_file
from hpq.private_server import keeper

_MAX_CPU_WORKERS = 4
_START_S = 20.0
_LOOK_S = 0.2
_HUNG_S = 30.0  # besides the grace, for a supervisor that was told to end


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Convert SIGTERM and SIGHUP to SystemExit, so that the workers are stopped first.

    Raises:
        SystemExit: a signal arrived; the code is 128 + its number, as in a shell.
    """

    def leave(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = {n: signal.signal(n, leave) for n in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class LocalWorkers:
    """A supervisor for one sweep, which ends with the `with` block; its log is a file.

    Without a count it runs one worker per GPU, or without GPUs one per core, at most four. It also
    ends with this process, even if killed, and keeps the private server running until then. After
    `leave` it continues; another LocalWorkers of the sweep then takes it over.
    """

    def __init__(
        self, session: Session, sweep: SweepView, count: int | None, hint: str = ""
    ) -> None:
        """`hint` is printed when Ctrl-C stops the workers; a second Ctrl-C kills them."""
        settings = session.settings
        self._hint = hint
        self._grace_s = settings.grace_s
        self.log = settings.home / "logs" / f"{sweep.id}.log"
        self._lock = self.log.with_suffix(".lock")
        self._env = {
            **environment(),
            "HPQ_REDIS_URL": session.url,
            "HPQ_QUEUE": sweep.queue,
            "HPQ_SWEEP": sweep.id,
            "HPQ_PORT": "",  # another `hpq worker` may use the port
            "HPQ_STORE": location(settings),  # a store under HPQ_HOME is reachable here
        }
        attached = session.attached
        self._inherited_locks = (attached.keep_across_exec(),) if attached else ()
        self._command_line = [
            sys.executable,
            "-P",
            "-m",
            "hpq_worker",
            "--until-over",
            "--end-with",
            str(os.getpid()),
        ]
        if count is not None:
            self._command_line += ["--workers", str(count)]
        else:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
            self._command_line += ["--workers-on-cpu", str(min(_MAX_CPU_WORKERS, cores))]
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._is_left = False

    def __enter__(self) -> LocalWorkers:
        print_message(device_line(self._env))
        make_private(self.log.parent)
        # The supervisor holds this lock while it lives; the file has its process id.
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not keeper.try_lock(lock):
                self._pid = int(os.pread(lock, 20, 0) or 0)
                print_message(f"workers of this sweep are already running (log: {self.log})")
                return self
            with open(self.log, "ab", opener=private_file) as out:
                # A new session: Ctrl-C must reach only this process, which stops the workers.
                self._supervisor = subprocess.Popen(
                    self._command_line,
                    env=self._env,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    pass_fds=(*self._inherited_locks, lock),
                    start_new_session=True,
                )
            self._pid = self._supervisor.pid
            os.ftruncate(lock, os.pwrite(lock, str(self._pid).encode(), 0))
        finally:
            os.close(lock)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._is_left:
            return
        try:
            self._end()
            if kind is KeyboardInterrupt:
                print_message(self._hint)
            if not self._wait(self._grace_s + 5.0):
                self._end_at_once()
        except (KeyboardInterrupt, SystemExit):
            self._end_at_once()

    def leave(self) -> None:
        """Keep the workers running after this process, until their sweep ends."""
        self._is_left = True
        self._signal(signal.SIGUSR1)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            if self._is_running():
                os.kill(self._pid, number)

    def _is_running(self) -> bool:
        if self._supervisor is not None:
            return self._supervisor.poll() is None
        lock = os.open(self._lock, os.O_RDWR | os.O_CLOEXEC)
        try:
            return not keeper.try_lock(lock)
        finally:
            os.close(lock)

    def _wait(self, patience_s: float) -> bool:
        """Wait for the supervisor's end; False if it still runs after this time."""
        until = time.monotonic() + patience_s
        while is_running := self._is_running():
            if time.monotonic() > until:
                break
            time.sleep(0.05)
        return not is_running

    def _end(self) -> None:
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # a process that is stopped gets no other signal

    def _end_at_once(self) -> None:
        """Send SIGTERM until the supervisor ends: a second one kills; two at once merge to one.

        If it hangs, kill it: its workers end with it.
        """
        until = time.monotonic() + self._grace_s + _HUNG_S
        while self._is_running():
            self._end()
            if not self._wait(1.0) and time.monotonic() > until:
                self._signal(signal.SIGKILL)

    def wait_for_one(self, is_there: Callable[[], bool]) -> None:
        """Return when a worker is live, the supervisor has ended, or 20 s have passed."""
        until = time.monotonic() + _START_S
        while not is_there() and self.ended() is None and time.monotonic() < until:
            time.sleep(0.05)

    def wait_while(self, is_so: Callable[[], bool]) -> None:
        """Return when a condition does not hold any more, or the workers have ended."""
        while is_so() and self._is_running():
            time.sleep(_LOOK_S)

    def logged(self, code: Code) -> str:
        """Return the first line of the log with an id, without its time and trial; "" if none."""
        line = next((line for line in self._lines() if line.endswith(f"[{code}]")), "")
        return line.split(": ", 2)[-1]

    def _lines(self) -> list[str]:
        return self.log.read_text("utf-8", "replace").strip().splitlines()

    def ended(self) -> str | None:
        """Return why the workers have ended; None while they run."""
        if self._is_running():
            return None
        lines = self._lines()
        return f"the workers ended: {lines[-1] if lines else f'see {self.log}'}"
