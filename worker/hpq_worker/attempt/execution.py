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
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Lock
from typing import Any

from hpq.domain.metric_spelling import missing_metric
from hpq.domain.sweep import RunnableSweep
from hpq.domain.trial import Claim, Failure, FailureKind
from hpq.reporting import MAX_NAMES, bounded
from hpq.store.wire.fields import dumps_in_order
from hpq_worker.attempt.halt import Halting
from hpq_worker.attempt.outcome import (
    Result,
    at_memory_limit,
    outcome_of,
    too_late_words,
    unread_words,
    with_peak,
)
from hpq_worker.attempt.printed_metrics import LONGEST_BYTES, PrintedMetrics, plain, text_of
from hpq_worker.attempt.report_socket import ReportSocket
from hpq_worker.health.usage import TrialUsage, host_memory_gb
from hpq_worker.lease.heartbeat import Heartbeat
from hpq_worker.lease.report_buffer import ReportBuffer
from hpq_worker.process.protocol import (
    AttemptEnd,
    Halt,
    LineBuffer,
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

_TAIL_BYTES = 65_536  # of the log, to make a failure's line from; each of many ranks has its stack
_PIPE_READS = 16  # of 64 KiB: what the largest pipe holds that an ordinary user may have
_HELD_LINES = 10_000  # that report metrics
_KILLED = 128  # a shell exits with this and the number of the signal that ended its command
_AGENT_BEGINS = "wandb.agent begins the trial's run"
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
    ) -> None:
        """Prepare an attempt.

        Args:
            socket: where a program reports; None for a trainer function of a worker.
            on_warning: gets what may be wrong with a trial's reports, each once.
        """
        self._on_warning, self._socket = on_warning, socket
        self._warned: set[str] = set()  # kinds of warnings
        self._reading, self._is_running = Lock(), False
        self._exit_code = 0  # that a program has reported, besides its exit status
        self._sweep, self._runner, self._reports = sweep, runner, reports
        self._usage = usage
        self._mask, self._progress = mask, progress
        self._halting = Halting(sweep, runner, usage, reports, grace_s)
        self._is_program = not sweep.launch.trainer
        # A call of wandb.init ends the reading. A program that has imported wandb or hpq may
        # report, and need not do so: what it prints is held until the end. So it is of an agent.
        self._reads_printed = self._is_program
        self._may_report = sweep.launch.is_function
        self._held = deque[dict[str, float]](maxlen=_HELD_LINES)
        self._has_released = False
        self._reported: set[str] = set()  # a name from the socket is not read from the output
        self._printed = LineBuffer(longest_bytes=LONGEST_BYTES + 1)
        own = [sweep.metric.name] if sweep.metric else []
        self._declared = (*own, *sweep.further_metrics)
        self._dropped: dict[str, str] = {}  # of these, and why
        self._metrics = PrintedMetrics(self._declared, claim.params)
        self._tail = bytearray()
        self._drained_at = 0.0  # the last read of the output; what is printed later comes after it
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
                    self._reports.use(curves)
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
            if self._reads_printed:  # a checkpoint counts what was printed before it
                self._report_held()
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
        if "report" in message:
            self._report(message["report"], message["step"], message.get("at", 0.0))
            self._reported.update(message["report"])
            self._reads_printed = self._reads_printed and not self._may_report
        elif "may_report" in message:
            self._may_report = True
        elif "ignore_printed" in message:
            self._reads_printed = False
        elif "begin_again" in message:
            self._begin_again()
        elif "dropped" in message:
            self._note_dropped(message)
        elif "exit_code" in message:
            self._exit_code = message["exit_code"]
        elif "run_info" in message:
            info = bounded(message["run_info"], self._mask.text)
            self._reports.describe(dumps_in_order(info))
        elif "phase" in message:
            self._reports.phase(self._mask.text(message["phase"]))
        elif "end" in message:
            self._end = masked(read_end(message["end"]), self._mask)
        self._halting.active()

    def _read_output(self) -> bool:
        data = _read(self._runner.output)
        # After the output: what the program reported before it printed a line decides whether the
        # line is a metric.
        self._read_socket()
        if not data:
            return False
        self._halting.active()
        self._log(self._mask.feed(data))
        if self._reads_printed:
            self._parse(self._printed.feed(data))
        self._drained_at = time.time()
        return True

    def _read_socket(self) -> None:
        for message in self._socket.read() if self._socket else ():
            self._receive(message)

    def _log(self, data: bytes) -> None:
        self._reports.log(data)
        self._tail = (self._tail + data)[-_TAIL_BYTES:]

    def _parse(self, lines: list[bytes]) -> None:
        for line in lines:
            found = self._metrics.parse(text_of(line))
            if printed := {name: v for name, v in found.items() if name not in self._reported}:
                if self._may_report:
                    self._held.append(printed)
                else:
                    self._report(printed, None, self._drained_at)
        if not self._may_report:
            self._warn_of_unread()

    def _warn_of_unread(self) -> None:
        """Name the first line whose number of a declared metric cannot be read."""
        if self._metrics.unread:
            self._warn("unread", unread_words(*self._metrics.unread))

    def _warn(self, kind: str, text: str) -> None:
        if text and kind not in self._warned:
            self._warned.add(kind)
            text = self._mask.text(text)
            self._reports.log(f"hpq: warning: {text}\n".encode())
            self._on_warning(text)

    def _note_dropped(self, message: Mapping[str, Any]) -> None:
        name, why = message["dropped"], message["why"]
        if name not in self._declared:
            return
        self._dropped.setdefault(name, self._mask.text(why))
        if not message["of_process"]:
            self._warn(f"dropped {name}", f"a value of {name} is dropped: {why}")

    def _begin_again(self) -> None:
        """Discard what a run before the trial's own one left: its values and its exit code."""
        self._exit_code = 0
        self._held.clear()
        self._dropped.clear()
        if self._reports.begin_again(_AGENT_BEGINS):
            self._reports.log(f"hpq: {_AGENT_BEGINS}; earlier values are discarded\n".encode())

    def _report_held(self) -> None:
        """Report what was printed by a trial that could have reported in another way."""
        if self._held and not self._has_released:
            self._has_released = True
            why = "the trial called neither wandb.init nor hpq.report"
            self._reports.log(f"hpq: {why}: its printed lines are its metrics\n".encode())
        self._warn("too late", too_late_words(self._sweep, self._held))
        while self._held:
            self._report(self._held.popleft(), None, 0.0)
        self._warn_of_unread()

    def _report(self, metrics: Mapping[str, float], step: int | None, at: float) -> None:
        had_dropped = self._reports.dropped
        self._reports.report(metrics, step, at)
        if (dropped := self._reports.dropped) and not had_dropped:
            why = f"only {MAX_NAMES} metrics of a trial are kept"
            self._reports.log(f"hpq: {why}; {dropped!r} and other new names are dropped\n".encode())
        if (near := self._reports.near_miss) and self._sweep.metric:
            self._warn("near", f"this trial {missing_metric(self._sweep.metric.name, near)}")

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
        self._log(self._mask.flush())
        if self._reads_printed:
            self._parse([self._printed.flush()])
            self._report_held()
        tail = plain(self._tail.decode("utf-8", "replace"))
        ran_ms = round(1000 * (time.monotonic() - self._started_at))
        end = self._end or AttemptEnd(status=status, has_last_message=False)
        end = replace(
            end,
            status=end.status or (self._exit_code if end.has_last_message else 0),
            halt=self._halting.reason,
            tail=tail,
            silent_s=self._halting.stall_limit_s,
            argv=self._argv,
            in_terminal=self._in_terminal,
            dropped=self._dropped,
            reports=self._is_program and not self._reads_printed,
        )
        usage = self._usage.figures()
        if curves := self._usage.news(is_last=True):
            self._reports.use(curves)
        outcome = outcome_of(end, self._sweep, self._reports)
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
