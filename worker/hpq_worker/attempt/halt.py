"""Halt an attempt before its training ends: at SIGTERM, at a reply to a heartbeat, or at a limit.

Whatever the reason, the runner passes SIGTERM on to the training, which has the grace to save a
checkpoint, and is then killed. A second SIGTERM or SIGINT of the worker ends the grace. The first
reason counts; `outcome_of` says what becomes of the trial.
"""

from __future__ import annotations

import math
import time

from hpq.domain.attempt import HeartbeatReply
from hpq.domain.sweep import RunnableSweep
from hpq_worker.attempt.outcome import diverged_words, idle_words
from hpq_worker.health.usage import TrialUsage
from hpq_worker.lease.report_buffer import ReportBuffer
from hpq_worker.process.protocol import Halt
from hpq_worker.process.signals import ShutdownLevel, Signals
from hpq_worker.runner.agent_caller import Caller
from hpq_worker.runner.runner_process import RunnerProcess
from hpq_worker.runner.stall import StallDetector

_ECHO_S = 1.0
_HALT_OF = {
    HeartbeatReply.STOP: Halt.CANCELLED,
    HeartbeatReply.PRUNE: Halt.PRUNED,
    HeartbeatReply.LOST: Halt.LOST,
    HeartbeatReply.UNKNOWN: Halt.UNKNOWN,
}


class Halting:
    """Decides when one attempt is halted, and when it is killed. Times are `time.monotonic()`.

    Attributes:
        reason: why the attempt is halted; None while it is not.
        stall_limit_s: for how long it was silent when it stalled; 0 if its GPUs were idle.
    """

    def __init__(
        self,
        sweep: RunnableSweep,
        runner: RunnerProcess | Caller,
        usage: TrialUsage,
        reports: ReportBuffer,
        grace_s: float,
    ) -> None:
        self.reason: Halt | None = None
        self.stall_limit_s = 0.0
        self._sweep, self._runner = sweep, runner
        self._usage, self._reports = usage, reports
        self._grace_s = grace_s
        self._kill_at = self._timeout_at = math.inf
        self._stall = StallDetector(sweep.stall_s, time.monotonic())

    def begin(self, now: float) -> None:
        """Start the time of `timeout`."""
        self._timeout_at = now + (self._sweep.timeout_s or math.inf)

    def active(self) -> None:
        """Record that the trial reported or printed."""
        self._stall.active(time.monotonic())

    def must_kill(self, now: float) -> bool:
        """Return True once the grace of a halted attempt is over."""
        return now >= self._kill_at

    def wait_s(self, now: float) -> float:
        """Return the seconds until the next limit."""
        limits = (self._kill_at, self._timeout_at, self._stall.stalled_at)
        return min(t for t in limits if t > now or t == math.inf) - now

    def check_limits(self, now: float) -> None:
        """Halt an attempt that exceeds its `timeout`, stalls, diverges or does not use its GPUs."""
        if now >= self._timeout_at:
            self.halt(Halt.TIMEOUT)
        if self._reports.is_diverged:
            self.halt(Halt.DIVERGED, diverged_words(self._sweep, self._reports))
        if 0 < self._sweep.idle_s <= self._usage.idle_s:
            self.halt(Halt.STALLED, idle_words(self._sweep))
        if now >= self._stall.stalled_at:
            self.stall_limit_s = self.stall_limit_s or self._stall.limit_s
            words = f"no report and no output for {self.stall_limit_s:.0f} s"
            self.halt(Halt.STALLED, words)

    def check_requests(self, signals: Signals, reply: HeartbeatReply) -> None:
        """Halt at the reply to a heartbeat, or at SIGTERM or SIGINT; at the second one, kill."""
        if reply in _HALT_OF:
            self.halt(_HALT_OF[reply])
        if signals.is_stopping:
            self.halt(Halt.STOPPING)
        if signals.level is ShutdownLevel.IMMEDIATE:
            self._kill_at = time.monotonic()

    def await_signal(self, signals: Signals) -> None:
        """Wait shortly for the SIGTERM that ended the training: one to a job comes here, too."""
        if self.reason is None and signals.await_shutdown(_ECHO_S):
            self.reason = Halt.STOPPING

    def halt(self, reason: Halt, why: str = "") -> None:
        """Ask the training to end, and start the grace; only the first call counts."""
        if self.reason is not None:
            return
        self.reason = reason
        if why:
            self._reports.log(f"hpq: {why}; ending the trial\n".encode())
        if reason is Halt.STALLED and self._sweep.launch.trainer:
            self._runner.dump_stacks()
        self._runner.stop(reason)
        # A lost attempt has nothing to save; the others get the grace to do so.
        grace_s = 0.0 if reason in (Halt.LOST, Halt.UNKNOWN) else max(0.5, self._grace_s - 2.0)
        self._kill_at = time.monotonic() + grace_s
