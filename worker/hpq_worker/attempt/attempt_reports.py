"""What one attempt reports: by messages, and by what a program prints."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from hpq.domain.metric_spelling import missing_metric
from hpq.domain.sweep import RunnableSweep
from hpq.domain.trial import Params
from hpq.reporting import MAX_NAMES, bounded
from hpq.store.wire.fields import dumps_in_order
from hpq_worker.attempt.outcome import too_late_words, unread_words
from hpq_worker.attempt.printed_metrics import LONGEST_BYTES, PrintedMetrics, plain, text_of
from hpq_worker.lease.report_buffer import ReportBuffer
from hpq_worker.process.protocol import LineBuffer
from hpq_worker.process.secrets import Mask

_TAIL_BYTES = 65_536  # of the log, to make a failure's line from; each of many ranks has its stack
_HELD_LINES = 10_000  # that report metrics
_MOST_ALERTS = 10  # of an attempt that are sent
_AGENT_BEGINS = "wandb.agent begins the trial's run"


class AttemptReports:
    """Decides what of an attempt's messages and printed lines counts, and buffers it.

    A call of wandb.init ends the reading of printed lines. A program that has imported wandb or hpq
    may report, and need not do so: what it prints is held until the end. So it is of an agent.
    """

    def __init__(
        self,
        sweep: RunnableSweep,
        params: Params,
        buffer: ReportBuffer,
        mask: Mask,
        on_warning: Callable[[str], object],
        on_alert: Callable[[str], object],
    ) -> None:
        """Prepare the reports of an attempt.

        Args:
            on_warning: gets what may be wrong with the reports, each once.
            on_alert: gets the first ten different alerts of the script.
        """
        self.exit_code = 0  # that a program has reported, besides its exit status
        self.dropped: dict[str, str] = {}  # names of declared metrics, and why
        self._sweep, self._buffer, self._mask = sweep, buffer, mask
        self._on_warning, self._on_alert = on_warning, on_alert
        self._alerts: set[str] = set()
        self._warned: set[str] = set()  # kinds of warnings
        self._is_program = not sweep.launch.trainer
        self._reads_printed = self._is_program
        self._may_report = sweep.launch.is_function
        self._reported: set[str] = set()  # a name from the socket is not read from the output
        own = [sweep.metric.name] if sweep.metric else []
        self._declared = (*own, *sweep.further_metrics)
        self._metrics = PrintedMetrics(self._declared, params)
        self._printed = LineBuffer(longest_bytes=LONGEST_BYTES + 1)
        self._held = deque[dict[str, float]](maxlen=_HELD_LINES)
        self._has_released = False
        self._tail = bytearray()
        self._drained_at = 0.0  # the last read of the output; what is printed later comes after it

    @property
    def come_by_messages(self) -> bool:
        """True if a program reports by messages, so that its printed lines do not count."""
        return self._is_program and not self._reads_printed

    @property
    def log_tail(self) -> str:
        """The last 64 KiB of the log, without control characters."""
        return plain(self._tail.decode("utf-8", "replace"))

    def receive(self, message: Mapping[str, Any]) -> None:
        """Use a message of the runner or the trial, of any kind but `end`."""
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
            self.exit_code = message["exit_code"]
        elif "run_info" in message:
            info = bounded(message["run_info"], self._mask.text)
            self._buffer.describe(dumps_in_order(info))
            self._pass_alerts(info.get("alerts"))
        elif "phase" in message:
            self._buffer.phase(self._mask.text(message["phase"]))

    def read_printed(self, data: bytes) -> None:
        """Log what was printed, and read its metrics if they count."""
        self._log(self._mask.feed(data))
        if self._reads_printed:
            self._parse(self._printed.feed(data))
        self._drained_at = time.time()

    def release(self) -> None:
        """Report what was printed by a trial that could have reported in another way."""
        if not self._reads_printed:
            return
        if self._held and not self._has_released:
            self._has_released = True
            why = "the trial called neither wandb.init nor hpq.report"
            self._buffer.log(f"hpq: {why}: its printed lines are its metrics\n".encode())
        self._warn("too late", too_late_words(self._sweep, self._held))
        while self._held:
            self._report(self._held.popleft(), None, 0.0)
        self._warn_of_unread()

    def close(self) -> None:
        """Read the end of the last line, and report what was held."""
        self._log(self._mask.flush())
        if self._reads_printed:
            self._parse([self._printed.flush()])
        self.release()

    def _log(self, data: bytes) -> None:
        self._buffer.log(data)
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

    def _report(self, metrics: Mapping[str, float], step: int | None, at: float) -> None:
        had_dropped = self._buffer.dropped
        self._buffer.report(metrics, step, at)
        if (dropped := self._buffer.dropped) and not had_dropped:
            why = f"only {MAX_NAMES} metrics of a trial are kept"
            self._buffer.log(f"hpq: {why}; {dropped!r} and other new names are dropped\n".encode())
        if (near := self._buffer.near_miss) and self._sweep.metric:
            self._warn("near", f"this trial {missing_metric(self._sweep.metric.name, near)}")

    def _pass_alerts(self, alerts: object) -> None:
        """Pass on new alerts: a script may repeat one at every step."""
        for text in alerts if isinstance(alerts, list) else ():
            is_new = isinstance(text, str) and text not in self._alerts
            if is_new and len(self._alerts) < _MOST_ALERTS:
                self._alerts.add(text)
                self._on_alert(text)

    def _begin_again(self) -> None:
        """Discard what a run before the trial's own one left: its values and its exit code."""
        self.exit_code = 0
        self._held.clear()
        self.dropped.clear()
        if self._buffer.begin_again(_AGENT_BEGINS):
            self._buffer.log(f"hpq: {_AGENT_BEGINS}; earlier values are discarded\n".encode())

    def _note_dropped(self, message: Mapping[str, Any]) -> None:
        name, why = message["dropped"], message["why"]
        if name not in self._declared:
            return
        self.dropped.setdefault(name, self._mask.text(why))
        if not message["of_process"]:
            self._warn(f"dropped {name}", f"a value of {name} is dropped: {why}")

    def _warn_of_unread(self) -> None:
        """Name the first line whose number of a declared metric cannot be read."""
        if self._metrics.unread:
            self._warn("unread", unread_words(*self._metrics.unread))

    def _warn(self, kind: str, text: str) -> None:
        if text and kind not in self._warned:
            self._warned.add(kind)
            text = self._mask.text(text)
            self._buffer.log(f"hpq: warning: {text}\n".encode())
            self._on_warning(text)
