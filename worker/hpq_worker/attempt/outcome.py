"""Decide the outcome of an attempt from why it was halted, how it ended and what it reported.

Pure functions.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from hpq.domain.attempt import HeartbeatReply, Outcome
from hpq.domain.metric_check import near_miss
from hpq.domain.sweep import RunnableSweep
from hpq.domain.trial import Failure, FailureKind, TrialState
from hpq.reporting import MAX_NAMES
from hpq_worker.lease.report_buffer import ReportBuffer
from hpq_worker.process.protocol import AttemptEnd, Halt
from hpq_worker.runner.failures import of_exit
from hpq_worker.runner.stall import LEAST_S, USUAL

_AGAIN = ", then `hpq run FILE --reuse` or `hpq enqueue FILE --reuse`, which reuses the results"
_SHOWN = 60  # characters of a printed line


HALT_OF = {
    HeartbeatReply.STOP: Halt.CANCELLED,
    HeartbeatReply.PRUNE: Halt.PRUNED,
    HeartbeatReply.LOST: Halt.LOST,
    HeartbeatReply.UNKNOWN: Halt.UNKNOWN,
}


def outcome_of(end: AttemptEnd, sweep: RunnableSweep, reports: ReportBuffer) -> Outcome | None:
    """Return the outcome to commit; None if another attempt has the trial, or it is released."""
    halt = end.halt
    if halt in (Halt.LOST, Halt.UNKNOWN, Halt.STOPPING) and not end.is_finished:
        return None
    if halt is Halt.CANCELLED and not end.is_finished:
        return _ended(reports, TrialState.CANCELLED)
    if halt is Halt.PRUNED and not end.is_finished:
        return _ended(reports, TrialState.PRUNED)
    if halt is Halt.TIMEOUT:
        limit = f"{sweep.timeout_s:g} s"
        return _failed(reports, FailureKind.TIMEOUT, f"not finished after `timeout`, {limit}")
    if halt is Halt.STALLED:
        return _stalled(end, sweep, reports)
    if not end.has_last_message:
        return _ended(reports, TrialState.FAILED, of_exit(end.status, end.tail))
    if end.status:
        failure = of_exit(end.status, end.tail, end.argv)
        return _ended(reports, TrialState.FAILED, failure)
    if end.failure is not None:
        return _ended(reports, TrialState.FAILED, end.failure)
    return _by_metric(sweep, reports, end)


def _by_metric(sweep: RunnableSweep, reports: ReportBuffer, end: AttemptEnd) -> Outcome:
    metric = sweep.metric
    if metric is None or reports.objective is not None:
        return _ended(reports, TrialState.FINISHED)
    names = reports.names
    if metric.name in names:
        return _failed(
            reports, FailureKind.DIVERGED, f"the last value of {metric.name} is {reports.last}"
        )
    reported = f"the trial reported {', '.join(names) or 'no metric'}"
    if reports.has_dropped:
        reported += f"; hpq keeps {MAX_NAMES} names and dropped the rest"
    what = f"the metric {metric.name!r} was never reported; {reported}"
    failure = Failure(
        kind=FailureKind.UNREPORTED,
        message=f"{what}; {_how_to_report(sweep, end, names)}",
        fingerprint=what,  # without the line that was seen: it differs from trial to trial
    )
    needed = sweep.method == "bayes" or sweep.early is not None
    return _ended(reports, TrialState.FAILED if needed else TrialState.FINISHED, failure)


def _how_to_report(sweep: RunnableSweep, end: AttemptEnd, reported: Collection[str]) -> str:
    assert sweep.metric is not None
    name = sweep.metric.name
    if near := near_miss(name, reported):
        remedy = f"did you mean {near!r}? write it as metric.name in the sweep file"
        return remedy if end.in_terminal else remedy + _AGAIN
    if sweep.launch.is_function:
        return f"call wandb.log({{{name!r}: …}}), or trial.report with hpq.agent"
    if sweep.launch.trainer:
        return f"call trial.report({{{name!r}: …}}), or return {{{name!r}: …}}"
    if end.is_wandb:
        return f"call wandb.log({{{name!r}: …}}); after wandb.init() printed lines do not count"
    seen = [line.strip() for line in end.tail.splitlines() if name in line]
    remedy = f"print a line {name}=0.31, or call hpq.report({{{name!r}: …}})"
    return f"{remedy}; the line {seen[-1][:_SHOWN]!r} does not count" if seen else remedy


def _stalled(end: AttemptEnd, sweep: RunnableSweep, reports: ReportBuffer) -> Outcome:
    limit = f"{end.silent_s:.0f} s"
    if not sweep.stall_s:
        limit += f" (the longer of {LEAST_S / 60:.0f} min and {USUAL} times its usual gap)"
    line = (
        f"no report and no output for {limit}; its log has the stacks; to allow a longer silence:"
        f" hpq set {sweep.id} stall=2h, then hpq retry {sweep.id}"
    )
    failure = Failure(
        kind=FailureKind.STALLED, message=line, fingerprint="neither reported nor printed"
    )
    return _ended(reports, TrialState.FAILED, failure)


def _failed(reports: ReportBuffer, kind: FailureKind, message: str) -> Outcome:
    return _ended(
        reports, TrialState.FAILED, Failure(kind=kind, message=message, fingerprint=message)
    )


def _ended(reports: ReportBuffer, state: TrialState, failure: Failure | None = None) -> Outcome:
    base = Outcome(state=state, step=reports.step, failure=failure)
    return replace(base, objective=reports.objective, best=reports.best)
