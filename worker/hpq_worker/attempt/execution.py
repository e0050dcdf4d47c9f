"""One attempt, from the runner's start to its outcome: hears the runner, the beats and the signals.

Runs in the main thread of a worker. Redis is not spoken to here: the beat thread does that, so a
slow server never keeps the runner's pipes from being read.
"""

from __future__ import annotations

import math
import os
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from hpq.domain.attempt import Outcome
from hpq.domain.sweep import Sweep
from hpq.domain.trial import Claim, Failure, FailureKind
from hpq_worker.attempt.outcome import HALT_OF, Ending, Halt, judge
from hpq_worker.lease.heartbeat import Heartbeat
from hpq_worker.lease.report_buffer import ReportBuffer, parse_printed
from hpq_worker.process.protocol import End, Lines, Run, read_end, read_message
from hpq_worker.process.secrets import Mask
from hpq_worker.runner.failures import leaves_ruins
from hpq_worker.runner.process import RunnerProcess
from hpq_worker.runner.stall import Rhythm

_TAIL_BYTES = 65_536  # of the log, to make a failure's line from; each of many ranks has its stack
_PIPE_READS = 16  # of 64 KiB: what the largest pipe holds that an ordinary user may have
_LONGEST_BYTES = 200  # of a printed line that may be a metric
_GARBAGE = "something wrote to the pipe on which hpq's runner reports, where only hpq may write"
_GARBLED = End(failure=Failure(kind=FailureKind.USER_ERROR, message=_GARBAGE, fingerprint=_GARBAGE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """What the process was told; `wake` is readable when something changed."""

    wake: int
    level: Callable[[], int]  # 0 go on, 1 stop within the grace, 2 stop at once
    is_late: Callable[[], bool]  # nothing may be waited for any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How an attempt ended: an outcome to commit, or why there is none."""

    outcome: Outcome | None
    halt: Halt | None
    keep_runner: bool
    is_whole: bool  # nothing was cut short: what the attempt has written is not torn


class Execution:
    """Runs one attempt in a runner that is ready for it."""

    def __init__(
        self,
        claim: Claim,
        sweep: Sweep,
        child: RunnerProcess,
        collector: ReportBuffer,
        mask: Mask,
        grace_s: float,
        strange: Callable[[Sequence[str]], object] = lambda _: None,
    ) -> None:
        """`strange` hears of names that are reported, often, while the sweep's metric is not."""
        self._strange = strange
        self._claim, self._sweep, self._child, self._collector = claim, sweep, child, collector
        self._mask, self._grace_s = mask, grace_s
        self._prints_metrics = not sweep.launch.trainer
        self._reads_printed = self._prints_metrics  # until the program says that it reports
        self._reported: set[str] = set()  # what comes through the socket is not read twice
        self._printed = Lines(longest_bytes=_LONGEST_BYTES + 1)
        self._tail = bytearray()
        self._halt: Halt | None = None
        self._kill_at = math.inf
        self._silent_s = 0.0  # how long it could be silent, when it was told to stop
        self._end: End | None = None
        self._run_id = ""
        self._argv: tuple[str, ...] = ()
        self._is_gone = self._is_garbled = False
        self._started_at = time.monotonic()
        self._rhythm = Rhythm(sweep.stall_s, self._started_at)

    def run(self, run: Run, beats: Heartbeat, signals: Signals) -> Result:
        """Run to the end, whoever brings it."""
        self._started_at = time.monotonic()
        timeout_at = self._started_at + (self._sweep.timeout_s or math.inf)
        self._run_id, self._argv = run.id, run.argv
        self._child.run(run)
        with selectors.DefaultSelector() as selector:
            for fd in (self._child.answers, self._child.output, signals.wake):
                selector.register(fd, selectors.EVENT_READ)
            while self._end is None and not self._is_gone:
                now = time.monotonic()
                if now >= self._kill_at:
                    break
                if now >= timeout_at:
                    self._stop(Halt.TIMEOUT)
                if now >= self._rhythm.stalled_at:
                    self._stop(Halt.STALLED)
                limits = (self._kill_at, timeout_at, self._rhythm.stalled_at)
                nearest = min(t for t in limits if t > now or t == math.inf)
                wait_s = None if nearest == math.inf else max(0.0, nearest - now)
                for key, _ in selector.select(wait_s):
                    self._hear(key.fd, signals, beats)
        return self._result()

    # --- hearing ------------------------------------------------------------------------------

    def _hear(self, fd: int, signals: Signals, beats: Heartbeat) -> None:
        if fd == signals.wake:
            os.read(fd, 512)
            self._look_up(signals, beats)
        elif fd == self._child.output:
            self._read_output()
            beats.nudge()
        else:
            self._read_answers()
            beats.nudge()

    def _look_up(self, signals: Signals, beats: Heartbeat) -> None:
        if beats.verdict in HALT_OF:
            self._stop(HALT_OF[beats.verdict])
        if signals.level() >= 1:
            self._stop(Halt.STOPPING)
        if signals.level() >= 2:
            self._kill_at = time.monotonic()

    def _stop(self, why: Halt) -> None:
        if self._halt is not None:
            return
        self._halt = why
        if why is Halt.STALLED:
            self._silent_s = self._rhythm.limit_s
            line = f"hpq: neither reported nor printed for {self._silent_s:.0f} s; it is ended\n"
            self._collector.log(line.encode())
        if why is Halt.STALLED and not self._prints_metrics:
            self._child.dump()
        self._child.stop(why)
        # A lost attempt has nothing to save; the others get the grace to do so.
        grace_s = 0.0 if why in (Halt.LOST, Halt.UNKNOWN) else max(0.5, self._grace_s - 2.0)
        self._kill_at = time.monotonic() + grace_s

    def _read_answers(self) -> None:
        data = _read(self._child.answers)
        if data is None:
            return
        if not data:
            self._is_gone = True
        for line in self._child.lines.feed(data):
            message = read_message(line)
            if message is None:
                self._end, self._is_garbled = _GARBLED, True
                return
            if message.get("of") != self._run_id:
                continue
            if "report" in message:
                self._take(message["report"], message["step"])
                self._reported.update(message["report"])
            elif "ignore_printed" in message:
                self._reads_printed = False
            elif "phase" in message:
                self._collector.phase(self._mask.text(message["phase"]))
            elif "end" in message:
                self._end = _masked(read_end(message["end"]), self._mask)
            self._rhythm.moved(time.monotonic())

    def _read_output(self) -> bool:
        data = _read(self._child.output)
        if not data:
            return False
        self._rhythm.moved(time.monotonic())
        self._show(self._mask.feed(data))
        if self._reads_printed:
            self._parse(self._printed.feed(data))
        return True

    def _show(self, data: bytes) -> None:
        self._collector.log(data)
        self._tail = (self._tail + data)[-_TAIL_BYTES:]

    def _parse(self, lines: list[bytes]) -> None:
        for line in lines:
            if len(line) > _LONGEST_BYTES:
                continue
            found = parse_printed(line.decode("utf-8", "replace"), self._claim.params)
            if found is not None and found[0] not in self._reported:
                self._take({found[0]: found[1]}, None)

    def _take(self, metrics: Mapping[str, float], step: int | None) -> None:
        self._collector.report(metrics, step)
        if names := self._collector.strangers:
            self._strange(names)

    # --- the end ------------------------------------------------------------------------------

    def _result(self) -> Result:
        is_obeyed = self._end is not None
        status = 0
        if self._is_gone:
            status = self._child.end()
        elif not is_obeyed:
            self._child.end(patience_s=0.5)
        self._drain()
        self._show(self._mask.rest())
        if self._reads_printed:
            self._parse([self._printed.rest()])
        tail = self._tail.decode("utf-8", "replace")
        ran_ms = round(1000 * (time.monotonic() - self._started_at))
        ending = Ending(
            halt=self._halt,
            end=self._end,
            status=status,
            tail=tail,
            ran_ms=ran_ms,
            silent_s=self._silent_s,
            argv=self._argv,
            is_wandb=self._prints_metrics and not self._reads_printed,
        )
        outcome = judge(ending, self._sweep, self._collector)
        failure = outcome.failure if outcome else None
        is_clean = failure is None or not leaves_ruins(failure)
        return Result(
            outcome=outcome,
            halt=self._halt,
            keep_runner=is_obeyed and is_clean and not self._is_garbled,
            is_whole=self._end is not None and self._end.status >= 0,
        )

    def _drain(self) -> None:
        # The runner flushed before it said that it was done, so all of it is in the pipe by now; a
        # thread or a daemon that goes on printing is not waited for.
        for _ in range(_PIPE_READS):
            if not self._read_output():
                return


def _masked(end: End, mask: Mask) -> End:
    failure = end.failure
    if failure is None:
        return end
    message, mark = mask.text(failure.message), mask.text(failure.fingerprint)
    return replace(end, failure=replace(failure, message=message, fingerprint=mark))


def _read(fd: int) -> bytes | None:
    """What is in a pipe now; None for nothing yet, empty at its end."""
    try:
        return os.read(fd, 65_536)
    except BlockingIOError:
        return None
