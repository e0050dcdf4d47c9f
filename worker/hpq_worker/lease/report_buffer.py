"""Buffers the reports and the output of a trial until Redis has them. Two threads use it.

Batches are numbered; a batch is sent again, unchanged, until it is acknowledged. While Redis is
away the buffer keeps a bounded number of the newest points and log bytes, and training continues.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from threading import Lock
from typing import NamedTuple

from hpq.domain.attempt import ReportBatch, curve_points
from hpq.domain.metric_spelling import ENOUGH_REPORTS, near_miss
from hpq.domain.sweep import Metric, ObjectiveValue
from hpq.domain.trial import Checkpoint, Point
from hpq.domain.usage import UsageCurves
from hpq.notice import Notice
from hpq.reporting import MAX_NAMES, is_metric_name

_BACKLOG_POINTS = 20_000
_BACKLOG_LOG_BYTES = 1_048_576
_BATCH_POINTS = 1_000  # 3 arguments each in one script call
_BATCH_LOG_BYTES = 65_536
_LONGEST_WHY = 300  # characters
_UNDONE = 10_000  # reports that can come between a save and the look that sees it


class _Before(NamedTuple):
    """What a report has changed: the values before it, and the names that it counted."""

    made_s: float
    step: int
    last: float
    best: float
    logged: int
    further: Mapping[str, float]
    names: Collection[str]


class ReportBuffer:
    """The reports and the output of one attempt.

    `further` names metrics beside the sweep's whose last values a result needs.
    """

    def __init__(self, metric: Metric | None, further: Collection[str] = ()) -> None:
        self._metric = metric
        self._further = dict.fromkeys(further, math.nan)
        self._lock = Lock()
        self._points: deque[Point] = deque(maxlen=_BACKLOG_POINTS)
        self._log = bytearray()
        self._before: deque[_Before] = deque(maxlen=_UNDONE)  # of each report, oldest first
        self._named = 0  # metrics whose order Redis has, or that are on their way
        self._sent: ReportBatch | None = None  # handed out, not yet acknowledged
        self._seq = 0
        self._phase = self._run_info = ""
        self._is_new = False
        # Gets the values of each step; returns a line for the log, if any.
        self.keep: Callable[[Mapping[int, Mapping[str, float]]], str] = lambda _: ""
        self.forget: Callable[[], object] = lambda: None  # discards what `keep` got
        self.echo: Callable[[bytes], object] = lambda _: None  # gets the output, too
        self._checkpoint: Checkpoint | None = None  # to be published
        self._restarted = ""
        self._unkept: str | None = None
        self._usage: UsageCurves | None = None
        self.published: Checkpoint | None = None  # by this attempt: Redis points to it
        self._origin = Checkpoint(store="", path="")  # where this attempt began
        self._start: Checkpoint | None = None  # of another trial, at which this trial began
        self._counts: dict[str, int] = {}
        self.dropped = ""  # the first name beyond the limit
        self.step = 0
        self.last = math.nan
        self._best = math.nan
        self._not_finite = 0  # values of the sweep's metric in a row
        self._logged = 0  # finite values of the sweep's metric, one a step
        self._logged_at: int | None = None  # the step of the last one

    def report(self, metrics: Mapping[str, float], step: int | None, made_s: float = 0.0) -> None:
        """Add one report; drops names beyond MAX_NAMES, except those that a result needs.

        `made_s` is when the trial made it, in seconds since 1970; 0 if that is unknown.
        """
        rows: dict[int, dict[str, float]] = {}
        with self._lock:
            names: list[str] = []
            self._before.append(self._before_report(made_s, names))
            for name, value in metrics.items():
                if not is_metric_name(name):
                    continue
                count = self._counts.get(name, 0) + 1
                is_objective = self._metric is not None and name == self._metric.name
                is_needed = is_objective or name in self._further
                if count == 1 and len(self._counts) >= MAX_NAMES and not is_needed:
                    self.dropped = self.dropped or name
                    continue
                if name in self._further:
                    self._further[name] = float(value)
                self._counts[name] = count
                names.append(name)
                at = count if step is None else int(step)
                self._points.append(Point(at, name, float(value)))
                rows.setdefault(at, {})[name] = float(value)
                if at > self.step:
                    self.step = at
                if is_objective:
                    self._log_objective(at, float(value))
            self._phase = ""
            self._is_new = True
            if line := self.keep(rows):
                self._log += f"hpq: {line}\n".encode()

    def _before_report(self, made_s: float, names: Collection[str]) -> _Before:
        return _Before(
            made_s=made_s,
            step=self.step,
            last=self.last,
            best=self._best,
            logged=self._logged,
            further=dict(self._further),
            names=names,
        )

    def _log_objective(self, at: int, value: float) -> None:
        assert self._metric is not None
        self.last = value
        self._not_finite = 0 if math.isfinite(value) else self._not_finite + 1
        if math.isfinite(value):
            self._logged += at != self._logged_at
            self._logged_at = at
        if self._metric.better(value, self._best):
            self._best = value

    def phase(self, text: str) -> None:
        """Set the phase, a short text; the next report clears it."""
        with self._lock:
            # Half a surrogate pair cannot be stored.
            self._phase = text[:80].encode("utf-8", "replace").decode()
            self._is_new = True

    def describe(self, run_info: str) -> None:
        """Set what the script has set beside numbers (JSON)."""
        with self._lock:
            self._run_info = run_info
            self._is_new = True

    def log(self, data: bytes) -> None:
        """Add printed bytes."""
        with self._lock:
            self._log += data
            del self._log[:-_BACKLOG_LOG_BYTES]
            self._is_new = self._is_new or bool(data)
        self.echo(data)

    def resume(self, at: Checkpoint, start: Checkpoint | None = None) -> None:
        """Continue the counts from a checkpoint; this trial began at `start`, of another one."""
        with self._lock:
            self._origin = at
            self._start = start
            self._take_position(at)

    def _take_position(self, at: Checkpoint) -> None:
        self.step = at.step
        self.last = math.nan if at.last is None else at.last
        self._best = math.nan if at.best is None else at.best
        self._counts = dict(at.counts)
        self._further = {name: at.further.get(name, math.nan) for name in self._further}
        self._logged = at.logged
        self._logged_at = None
        self._not_finite = 0
        self.dropped = ""
        self._before.clear()
        self._named = 0

    def restart(self, why: str) -> None:
        """Discard earlier reports: training starts again although a checkpoint existed."""
        with self._lock:
            self._restarted = why
            self._is_new = True

    def files_kept(self, why: Notice | None = None) -> None:
        """Set why files of the trial are in no store; None: they are now."""
        with self._lock:
            self._unkept = f"{why.code} {why.text[:_LONGEST_WHY]}" if why else ""
            self._is_new = True

    def use(self, curves: UsageCurves) -> None:
        """Set what the attempt has used of its machine so far."""
        with self._lock:
            self._usage = curves
            self._is_new = True

    def begin_again(self, why: str) -> bool:
        """Discard what this attempt has reported; return False if it has reported nothing."""
        with self._lock:
            self._run_info = "{}"
            self._is_new = True
            if self._counts == self._origin.counts:
                return False
            self._points.clear()
            self._take_position(self._origin)
            self._restarted = self._restarted or why
            self._phase = ""
            self.forget()
            return True

    def position(self, until_s: float = math.inf) -> Checkpoint:
        """Return where training stood at a time, as a checkpoint without a path.

        `until_s` are seconds since 1970; without it: where training stands now.
        """
        with self._lock:
            counts = Counter(self._counts)
            then = self._before_report(0.0, ())
            for report in reversed(self._before):
                if not report.made_s > until_s:
                    break
                counts.subtract(report.names)
                then = report
            return Checkpoint(
                store="",
                path="",
                step=then.step,
                last=then.last if math.isfinite(then.last) else None,
                best=then.best if math.isfinite(then.best) else None,
                counts=dict(+counts),
                logged=then.logged,
                further={n: v for n, v in then.further.items() if math.isfinite(v)},
            )

    def publish(self, checkpoint: Checkpoint) -> None:
        """Send the pointer to a checkpoint that is in the store."""
        with self._lock:
            self._checkpoint = checkpoint
            self._is_new = True

    @property
    def is_publishing(self) -> bool:
        """True while Redis does not have the last pointer."""
        with self._lock:
            sent = self._sent.checkpoint if self._sent else None
            return self._checkpoint is not None or sent is not None

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics reported so far."""
        with self._lock:
            return tuple(self._counts)

    @property
    def own_names(self) -> tuple[str, ...]:
        """The metrics that this trial has reported, without those of the trial where it began."""
        with self._lock:
            before = self._start.counts if self._start else {}
            return tuple(name for name, n in self._counts.items() if n > before.get(name, 0))

    @property
    def is_at_start(self) -> bool:
        """True if the trial began at another one's checkpoint and has reported nothing since."""
        return self._start is not None and not self.own_names

    @property
    def lasts(self) -> dict[str, float]:
        """The last value of each metric that a result needs; NaN if it was not reported."""
        with self._lock:
            own = {self._metric.name: self.last} if self._metric else {}
            return own | self._further

    @property
    def near_miss(self) -> str:
        """A name like the metric's, if some metric was reported often and the sweep's never."""
        with self._lock:
            if self._metric is None or self._metric.name in self._counts:
                return ""
            if max(self._counts.values(), default=0) < ENOUGH_REPORTS:
                return ""
            return near_miss(self._metric.name, self._counts)

    @property
    def objective(self) -> float | None:
        """The trial's value so far; None if the metric was never reported or is not finite."""
        if self._metric is None:
            return None
        value = self._best if self._metric.take is ObjectiveValue.BEST else self.last
        return value if math.isfinite(value) else None

    @property
    def is_diverged(self) -> bool:
        """True once as many values in a row are not finite as end a trial."""
        return self._metric is not None and 0 < self._metric.terminate_on_nan <= self._not_finite

    @property
    def best(self) -> float | None:
        """The best value of the metric so far."""
        return self._best if math.isfinite(self._best) else None

    @property
    def is_empty(self) -> bool:
        """True if Redis has everything."""
        with self._lock:
            return self._sent is None and not self._is_new

    @property
    def is_last(self) -> bool:
        """True if nothing was reported beside the batch that was handed out."""
        with self._lock:
            return not self._is_new

    def batch(self) -> ReportBatch:
        """Return the batch that was not acknowledged, else a new one."""
        with self._lock:
            if self._sent is None:
                self._seq += 1
                count = self._whole_reports()
                self._sent = ReportBatch(
                    seq=self._seq,
                    step=self.step,
                    objective=self.objective,
                    phase=self._phase,
                    log=bytes(self._log[:_BATCH_LOG_BYTES]),
                    points=tuple(self._points.popleft() for _ in range(count)),
                    checkpoint=self._checkpoint,
                    restarted=self._restarted,
                    kept_step=self._origin.step if self._origin.path else None,
                    metric_order=tuple(self._counts) if len(self._counts) > self._named else (),
                    run_info=self._run_info,
                    unkept=self._unkept,
                    usage=self._usage,
                    curve_points=curve_points(len(self._counts)),
                )
                self._named = len(self._counts)
                self._checkpoint = None
                self._restarted = ""
                self._run_info = ""
                self._unkept = None
                self._usage = None
                del self._log[:_BATCH_LOG_BYTES]
                self._is_new = bool(self._points or self._log)
            return self._sent

    def _whole_reports(self) -> int:
        """Return how many points the next batch has: Redis keeps those of a report together."""
        points = self._points
        most = min(_BATCH_POINTS, len(self._points))
        if most == len(points):
            return most
        ends = range(most, most - MAX_NAMES, -1)
        return next((n for n in ends if points[n].step != points[n - 1].step), most)

    def idle_batch(self) -> ReportBatch:
        """Return a batch that only extends the lease: its number is an old one."""
        with self._lock:
            return replace(ReportBatch(seq=self._seq), step=self.step)

    def acknowledge(self, batch: ReportBatch, accepted: bool = True) -> None:
        """Forget a batch: Redis accepted it, or rejected it for good."""
        with self._lock:
            if batch is not self._sent:  # it only extended the lease, or was sent twice
                return
            if accepted and batch.checkpoint is not None:
                self.published = batch.checkpoint
            self._sent = None
