"""What the end of an attempt means: why it was halted, what it said and left → an outcome. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum

from hpq.domain.attempt import HeartbeatReply, Outcome
from hpq.domain.metric_check import similar_name
from hpq.domain.sweep import Sweep
from hpq.domain.trial import Failure, FailureKind, TrialState
from hpq.report import MAX_NAMES
from hpq_worker.lease.report_buffer import ReportBuffer
from hpq_worker.process.protocol import End
from hpq_worker.runner.failures import of_exit
from hpq_worker.runner.stall import LEAST_S, STALLED, USUAL

_AGAIN = "enqueue the file with --reuse: what was trained is taken"
_SHOWN = 60  # characters of a line of the program's


class Halt(StrEnum):
    """Why an attempt is told to end before it ends by itself."""

    CANCELLED = "cancelled"
    PRUNED = "pruned"
    STOPPING = "stopping"  # this worker was told to go
    LOST = "lost"  # another attempt has the trial
    UNKNOWN = "unknown"  # Redis does not know the trial any more
    TIMEOUT = "timeout"
    STALLED = STALLED


HALT_OF = {
    HeartbeatReply.STOP: Halt.CANCELLED,
    HeartbeatReply.PRUNE: Halt.PRUNED,
    HeartbeatReply.LOST: Halt.LOST,
    HeartbeatReply.UNKNOWN: Halt.UNKNOWN,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What is left of an attempt: its last message, else its exit status, and its last lines."""

    halt: Halt | None
    end: End | None
    status: int
    tail: str
    ran_ms: int
    silent_s: float = 0.0  # how long it was allowed to say nothing
    argv: tuple[str, ...] = ()  # of a program
    is_wandb: bool = False  # the stand-in's init was called: printed lines are no reports

    @property
    def is_finished(self) -> bool:
        """True where the training code came to its own end without a fault."""
        end = self.end
        return end is not None and not (end.stopped or end.failure or end.status)


def judge(ending: Ending, sweep: Sweep, got: ReportBuffer) -> Outcome | None:
    """The outcome to commit; None where the trial is another's or goes back to the queue."""
    outcome = _judge(ending, sweep, got)
    return outcome and replace(outcome, ran_ms=ending.ran_ms)


def _judge(ending: Ending, sweep: Sweep, got: ReportBuffer) -> Outcome | None:
    halt, end = ending.halt, ending.end
    if halt in (Halt.LOST, Halt.UNKNOWN, Halt.STOPPING) and not ending.is_finished:
        return None
    if halt is Halt.CANCELLED and not ending.is_finished:
        return _ended(got, TrialState.CANCELLED)
    if halt is Halt.PRUNED and not ending.is_finished:
        return _ended(got, TrialState.PRUNED)
    if halt is Halt.TIMEOUT:
        limit = f"{sweep.timeout_s:g} s"
        return _failed(got, FailureKind.TIMEOUT, f"not done after {limit}; see `timeout`")
    if halt is Halt.STALLED:
        return _stalled(ending, sweep, got)
    if end is None:
        return _ended(got, TrialState.FAILED, of_exit(ending.status, ending.tail))
    if end.status:
        failure = of_exit(end.status, ending.tail, ending.argv)
        return _ended(got, TrialState.FAILED, failure)
    if end.failure is not None:
        return _ended(got, TrialState.FAILED, end.failure)
    return _by_metric(sweep, got, ending)


def _by_metric(sweep: Sweep, got: ReportBuffer, ending: Ending) -> Outcome:
    metric = sweep.metric
    if metric is None or got.objective is not None:
        return _ended(got, TrialState.FINISHED)
    names = got.names
    if metric.name in names:
        return _failed(got, FailureKind.DIVERGED, f"{metric.name} was {got.last} at its end")
    said = f"it reported {', '.join(names)}" if names else "it reported nothing"
    if got.has_dropped:
        said += f"; of more than {MAX_NAMES} names the rest was dropped"
    what = f"the metric {metric.name!r} was never reported; {said}"
    failure = Failure(
        kind=FailureKind.UNREPORTED,
        message=f"{what}; {_how_to_report(sweep, ending, names)}",
        fingerprint=what,  # without the line that was seen: it differs from trial to trial
    )
    return _ended(got, TrialState.FAILED, failure)


def _how_to_report(sweep: Sweep, ending: Ending, reported: Collection[str]) -> str:
    assert sweep.metric is not None
    name = sweep.metric.name
    if close := similar_name(name, reported):
        return f"did you mean {close!r}? set metric.name and {_AGAIN}"
    if sweep.launch.trainer:
        return f"call trial.report({{{name!r}: …}}), or return {{{name!r}: …}}"
    if ending.is_wandb:
        return f"call wandb.log({{{name!r}: …}}); after wandb.init() printed lines do not count"
    # What looks like a report to people: `Epoch 1 val_loss=0.3 done`, `val_loss: 0.3`.
    near = re.compile(rf"(?<![\w./-]){re.escape(name)}\s*[=:]\s*[-+.\d]")
    seen = [line.strip() for line in ending.tail.splitlines() if near.search(line)]
    remedy = f"print a whole line {name}=0.31, or call hpq.report({{{name!r}: …}})"
    return f"{remedy}; {seen[-1][:_SHOWN]!r} is no such line" if seen else remedy


def _stalled(ending: Ending, sweep: Sweep, got: ReportBuffer) -> Outcome:
    limit = f"{ending.silent_s:.0f} s"
    if not sweep.stall_s:
        limit += f" (the longer of {LEAST_S / 60:.0f} min and {USUAL} times its usual gap)"
    line = (
        f"it neither reported nor printed for {limit}; its log has the stacks; to let it be silent"
        f" longer: hpq set {sweep.id} stall=2h, then hpq retry --failed {sweep.id}"
    )
    mark = "neither reported nor printed"
    failure = Failure(kind=FailureKind.STALLED, message=line, fingerprint=mark)
    return _ended(got, TrialState.FAILED, failure)


def _failed(got: ReportBuffer, kind: FailureKind, message: str) -> Outcome:
    return _ended(got, TrialState.FAILED, Failure(kind=kind, message=message, fingerprint=message))


def _ended(got: ReportBuffer, state: TrialState, failure: Failure | None = None) -> Outcome:
    base = Outcome(state=state, step=got.step, failure=failure)
    return replace(base, objective=got.objective, best=got.best)
