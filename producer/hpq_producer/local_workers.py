"""Workers of `hpq run`: a supervisor on this machine, for the length of one command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from hpq.domain.sweep import Sweep
from hpq.filestore.local import location
from hpq_producer.session import Session
from hpq_producer.terminal.console import print_message

_MAX_CPU_WORKERS = 4


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end this process as SystemExit, so that its workers are told to go.

    Raises:
        SystemExit: one of them came; the code is 128 + its number, as shells have it.
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
    """A supervisor for one sweep, which ends with the `with` block; what it logs is in a file.

    Without a count it has one worker a GPU, or on a machine without, one a core up to four. It ends
    with this process, too, however that ends, and holds the private server until it has.
    """

    def __init__(self, session: Session, sweep: Sweep, count: int | None, hint: str = "") -> None:
        """`hint` is said when Ctrl-C has told the workers to end, and another one can be heard."""
        settings, self._hint = session.settings, hint
        self._grace_s = settings.grace_s
        self.log = settings.home / "logs" / f"{sweep.id}.log"
        self._env = {
            **os.environ,
            "HPQ_REDIS_URL": session.url,
            "HPQ_QUEUE": sweep.worker_class,
            "HPQ_SWEEP": sweep.id,
            "HPQ_PORT": "",  # of `hpq worker`, which may run beside; nobody probes a command
            "HPQ_STORE": location(settings),  # they are on this machine, so one under HPQ_HOME does
        }
        attached = session.attached
        self._held_locks = (attached.keep_across_exec(),) if attached else ()
        self._command_line = [
            sys.executable,
            "-P",
            "-m",
            "hpq_worker",
            "--end-with",
            str(os.getpid()),
        ]
        if count is not None:
            self._command_line += ["--workers", str(count)]
        else:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
            self._command_line += ["--workers-on-cpu", str(min(_MAX_CPU_WORKERS, cores))]
        self._supervisor: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> LocalWorkers:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as out:
            # A session of its own: Ctrl-C is ours to answer, by an orderly stop.
            self._supervisor = subprocess.Popen(
                self._command_line,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                pass_fds=self._held_locks,
                start_new_session=True,
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._supervisor is not None
        try:
            self._supervisor.terminate()
            if kind is KeyboardInterrupt:
                print_message(self._hint)
            self._supervisor.wait(self._grace_s + 5.0)
        except (subprocess.TimeoutExpired, KeyboardInterrupt, SystemExit):
            self._end_at_once()

    def _end_at_once(self) -> None:
        """The second signal means that; two that come together are one, so it is sent again."""
        assert self._supervisor is not None
        while self._supervisor.poll() is None:
            self._supervisor.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._supervisor.wait(1.0)

    def wait_for_one(self, is_there: Callable[[], bool], patience_s: float = 20.0) -> None:
        """Return once a worker is there, the supervisor has ended, or the patience has."""
        until = time.monotonic() + patience_s
        while not is_there() and self.ended() is None and time.monotonic() < until:
            time.sleep(0.05)

    def ended(self) -> str | None:
        """Why there are no workers any more; None while there are."""
        assert self._supervisor is not None
        if self._supervisor.poll() is None:
            return None
        lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        return f"the workers ended: {lines[-1] if lines else f'see {self.log}'}"
