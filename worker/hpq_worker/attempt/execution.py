"""One attempt, from the request to the runner to its outcome: reads messages, output and signals.

Runs in the main thread of a worker and never calls Redis: the heartbeat thread does, so a slow
server never keeps this thread from reading the runner's pipes. The thread of checkpoints calls
`read_arrived`; a lock lets one of the two read at a time.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Lock
from typing import Any

from hpq.domain.sweep import RunnableSweep
from hpq.domain.trial import Claim, Failure, FailureKind
from hpq_worker.attempt.attempt_reports import AttemptReports
from hpq_worker.attempt.halt import Halting
from hpq_worker.attempt.outcome import (
    Result,
    at_memory_limit,
    outcome_of,
    with_peak,
)
from hpq_worker.attempt.report_socket import ReportSocket
from hpq_worker.health.usage import TrialUsage, host_memory_gb
from hpq_worker.lease.heartbeat import Heartbeat
from hpq_worker.lease.report_buffer import ReportBuffer
from hpq_worker.process.protocol import (
    AttemptEnd,
    Halt,
    RunRequest,
    read_end,
    read_message,
)
from hpq_worker.process.secrets import Mask, masked
from hpq_worker.process.signals import Signals
from hpq_worker.process.watchdog import TURN_S, Progress
from hpq_worker.runner.agent_caller import Caller
from hpq_worker.runner.failures import ruins_process
from hpq_worker.runner.runner_process import RunnerProcess

_PIPE_READS = 16  # of 64 KiB: what the largest pipe holds that an ordinary user may have
_KILLED = 128  # a shell exits with this and the number of the signal that ended its command
_CORRUPT = "the training code wrote to the pipe of hpq's runner; print or write to a file instead"
_CORRUPT_END = AttemptEnd(
    failure=Failure(kind=FailureKind.USER_ERROR, message=_CORRUPT, fingerprint=_CORRUPT)
)


class Execution:
    """Runs one attempt in a runner that is ready for it."""

    def __init__(
        self,
        claim: Claim,
        sweep: RunnableSweep,
        runner: RunnerProcess | Caller,
        usage: TrialUsage,
        reports: ReportBuffer,
        socket: ReportSocket | None,
        mask: Mask,
        grace_s: float,
        progress: Progress,
        on_warning: Callable[[str], object] = lambda _: None,
        on_alert: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Prepare an attempt.

        Args:
            socket: where a program reports; None for a trainer function of a worker.
            on_warning: gets what may be wrong with a trial's reports, each once.
            on_alert: gets what the script tells by `wandb.alert`.
        """
        self._sweep, self._runner, self._socket = sweep, runner, socket
        self._usage, self._mask, self._progress = usage, mask, progress
        self._buffer = reports
        self._reports = AttemptReports(sweep, claim.params, reports, mask, on_warning, on_alert)
        self._halting = Halting(sweep, runner, usage, reports, grace_s)
        self._reading, self._is_running = Lock(), False
        self._end: AttemptEnd | None = None
        self._run_id = ""
        self._argv: tuple[str, ...] = ()
        self._in_terminal = False
        self._has_exited = self._is_corrupt = False
        self._started_at = time.monotonic()

    def run(self, run: RunRequest, heartbeat: Heartbeat, signals: Signals) -> Result:
        """Run until the attempt ends or is halted."""
        self._started_at = time.monotonic()
        self._halting.begin(self._started_at)
        self._run_id, self._argv, self._in_terminal = run.id, run.argv, run.in_terminal
        self._runner.run(run)
        self._notify, self._wake, self._is_running = heartbeat.notify, signals.wake, True
        runner = self._runner
        read_of: dict[int, Callable[[], object]] = {
            runner.answers: self._read_answers,
            runner.output: self._read_output,
        }
        with selectors.DefaultSelector() as selector:
            for fd in (*read_of, self._socket, signals.wake_fd):
                if fd is not None:
                    selector.register(fd, selectors.EVENT_READ)
            while self._end is None and not self._has_exited:
                self._progress.stamp()
                now = time.monotonic()
                if self._halting.must_kill(now):
                    break
                if curves := self._usage.news():
                    self._buffer.use(curves)
                self._halting.check_limits(now)
                for key, _ in selector.select(min(TURN_S, self._halting.wait_s(now))):
                    if key.fd == signals.wake_fd:
                        os.read(key.fd, 512)
                        self._halting.check_requests(signals, heartbeat.reply)
                    else:
                        with self._reading:
                            read_of.get(key.fd, self._read_socket)()
                        heartbeat.notify()
        return self._result(signals)

    def read_arrived(self) -> None:
        """Read what the trial has reported and printed by now; from any thread."""
        with self._reading:
            if not self._is_running:
                return
            for _ in range(_PIPE_READS):
                if not self._read():
                    break
            self._reports.release()  # a checkpoint counts what was printed before it
        self._notify()
        self._wake()  # `run` may wait for an end that was read here

    # --- events -------------------------------------------------------------------------------

    def _read(self) -> bool:
        """Read each source once; return False if the pipes had nothing."""
        had_output = self._read_output()
        return self._read_answers() or had_output

    def _read_answers(self) -> bool:
        if self._end is not None:  # nothing counts after the end, above all not after garbage
            return False
        data = _read(self._runner.answers)
        if data is None:
            return False
        if not data:
            self._has_exited = True
        for line in self._runner.lines.feed(data):
            message = read_message(line)
            if message is None:
                self._end, self._is_corrupt = _CORRUPT_END, True
                return False
            if message.get("of") == self._run_id:
                self._receive(message)
        return bool(data)

    def _receive(self, message: Mapping[str, Any]) -> None:
        if "end" in message:
            self._end = masked(read_end(message["end"]), self._mask)
        else:
            self._reports.receive(message)
        self._halting.active()

    def _read_output(self) -> bool:
        data = _read(self._runner.output)
        # After the output: what the program reported before it printed a line decides whether the
        # line is a metric.
        self._read_socket()
        if not data:
            return False
        self._halting.active()
        self._reports.read_printed(data)
        return True

    def _read_socket(self) -> None:
        for message in self._socket.read() if self._socket else ():
            self._receive(message)

    # --- the end ------------------------------------------------------------------------------

    def _result(self, signals: Signals) -> Result:
        with self._reading:
            self._is_running = False  # from here on this thread alone reads
        has_ended = self._end is not None
        status = 0
        if self._has_exited:
            status = self._runner.end()
            if isinstance(self._runner, Caller):  # the caller has left: another may go on
                self._halting.reason = self._halting.reason or Halt.STOPPING
        elif not has_ended:
            self._runner.end(timeout_s=0.5)
        was_signalled = self._end.stopped if self._end else status == -signal.SIGTERM
        if was_signalled and not self._in_terminal:
            self._halting.await_signal(signals)
        # The runner flushes before it reports the end, so the pipe holds all of it, and the socket
        # all reports of a program; hpq does not wait for a thread or a daemon that still prints.
        for _ in range(_PIPE_READS):
            if not self._read_output():
                break
        self._reports.close()
        ran_ms = round(1000 * (time.monotonic() - self._started_at))
        end = self._end or AttemptEnd(status=status, has_last_message=False)
        end = replace(
            end,
            status=end.status or (self._reports.exit_code if end.has_last_message else 0),
            halt=self._halting.reason,
            tail=self._reports.log_tail,
            silent_s=self._halting.stall_limit_s,
            argv=self._argv,
            in_terminal=self._in_terminal,
            dropped=self._reports.dropped,
            reports=self._reports.come_by_messages,
        )
        usage = self._usage.figures()
        if curves := self._usage.news(is_last=True):
            self._buffer.use(curves)
        outcome = outcome_of(end, self._sweep, self._buffer)
        if outcome:
            outcome = replace(outcome, ran_ms=ran_ms, usage=usage)
            outcome = at_memory_limit(outcome, self._usage.is_out_of_memory, host_memory_gb)
            outcome = with_peak(outcome, host_memory_gb)
        failure = outcome.failure if outcome else None
        is_clean = failure is None or not ruins_process(failure)
        return Result(
            outcome=outcome,
            halt=self._halting.reason,
            keep_runner=has_ended and is_clean and not self._is_corrupt,
            is_whole=end.has_last_message and 0 <= end.status < _KILLED,
            status=end.status or int(end.failure is not None),
        )


def _read(fd: int) -> bytes | None:
    """Read what a pipe holds now; None if it is empty, b"" at its end."""
    try:
        return os.read(fd, 65_536)
    except BlockingIOError:
        return None
