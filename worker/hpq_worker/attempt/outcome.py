"""Decide the outcome of an attempt from why it was halted, how it ended and what it reported.

Pure functions. A last value that is NaN or infinite is a failure of the kind `diverged`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from hpq.domain.attempt import Outcome
from hpq.domain.metric_spelling import near_miss
from hpq.domain.printed_line import Unread, mentions, metrics_in_text
from hpq.domain.sweep import RunnableSweep
from hpq.domain.trial import Failure, FailureKind, TrialState
from hpq.domain.usage import short
from hpq.reporting import MAX_NAMES
from hpq_worker.attempt.printed_metrics import printed_lines
from hpq_worker.lease.report_buffer import ReportBuffer
from hpq_worker.process.protocol import AttemptEnd, Halt
from hpq_worker.runner.failures import of_exit
from hpq_worker.runner.stall import LEAST_S, USUAL

_AGAIN = ", then `hpq run FILE --reuse` or `hpq enqueue FILE --reuse`, which reuses the results"
_SHOWN = 60  # characters of a printed line
_LONGEST = 400  # characters of a message that is continued
_KILLED = "killed by SIGKILL"
_OF_A_GPU = re.compile(r"CUDA|GPU|cu[A-Z]|NCCL|HIP")
# torch's account of the GPU's memory after "Tried to allocate 2.00 GiB"; the log keeps all of it.
_ACCOUNT = re.compile(r"\. GPU \d+ has a total capacity of .*")
_IN_USE = re.compile(r"this process has ([\d.]+) GiB memory in use")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How an attempt ended: an outcome to commit, or why there is none."""

    outcome: Outcome | None
    halt: Halt | None
    keep_runner: bool
    is_whole: bool  # not killed: the files that it wrote are complete
    overfilled: str = ""  # why its pod is evicted, if it filled the disk
    status: int = 0  # exit status, 1 if a trainer raised; negative: a signal


def outcome_of(end: AttemptEnd, sweep: RunnableSweep, reports: ReportBuffer) -> Outcome | None:
    """Return the outcome to commit; None if another attempt has the trial, or it is released."""
    outcome = _outcome_of(end, sweep, reports)
    return None if outcome is None else outcome.measured(sweep, reports.lasts)


def _outcome_of(end: AttemptEnd, sweep: RunnableSweep, reports: ReportBuffer) -> Outcome | None:
    halt = end.halt
    if halt in (Halt.LOST, Halt.UNKNOWN, Halt.STOPPING) and not end.is_finished:
        return None
    if halt is Halt.CANCELLED and not end.is_finished:
        return _ended(reports, TrialState.CANCELLED)
    if halt is Halt.PRUNED and not end.is_finished:
        return _ended(reports, TrialState.PRUNED)
    if halt is Halt.DIVERGED and not end.is_finished:
        return _failed(reports, FailureKind.DIVERGED, diverged_words(sweep, reports))
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
    lasts = reports.lasts
    lacking = [n for n in sweep.further_metrics if not math.isfinite(lasts[n])]
    if sweep.metric is not None and reports.objective is None:
        lacking.insert(0, sweep.metric.name)
    if not lacking:
        return _ended(reports, TrialState.FINISHED)
    name, names = lacking[0], reports.own_names
    if name in names:
        return _failed(reports, FailureKind.DIVERGED, f"the last value of {name} is {lasts[name]}")
    reported = f"the trial reported {', '.join(names) or 'no metric'}"
    if reports.dropped:
        reported += f"; hpq keeps {MAX_NAMES} names and dropped the rest"
    what = f"the metric {name!r} was never reported; {reported}"
    remedy = _how_to_report(name, sweep, end, names)
    if reports.is_at_start:
        what = f"it reported nothing after step {reports.step}, where it began"
        remedy = "its checkpoint may be complete; raise what ends the training, e.g. epochs"
    failure = Failure(
        kind=FailureKind.UNREPORTED,
        message=f"{what}; {remedy}",
        fingerprint=what,  # without the line that was seen: it differs from trial to trial
    )
    needed = sweep.method == "bayes" or sweep.early is not None
    return _ended(reports, TrialState.FAILED if needed else TrialState.FINISHED, failure)


def _how_to_report(
    name: str, sweep: RunnableSweep, end: AttemptEnd, reported: Collection[str]
) -> str:
    if why := end.dropped.get(name):
        return f"the script logged it, and it was dropped: {why}"
    if near := near_miss(name, reported):
        remedy = f"did you mean {near!r}? write it as metric.name in the sweep file"
        if sweep.objectives or sweep.constraints:
            remedy = f"did you mean {near!r}? write it in the sweep file"
        return remedy if end.in_terminal else remedy + _AGAIN
    if sweep.launch.is_function:
        return f"call wandb.log({{{name!r}: 0.31}}), or trial.report with hpq.agent"
    if sweep.launch.trainer:
        return f"call trial.report({{{name!r}: 0.31}}), or return {{{name!r}: 0.31}}"
    if end.reports:
        calls = f"wandb.log({{{name!r}: 0.31}}) or hpq.report({{{name!r}: 0.31}})"
        return f"call {calls}; printed lines do not count after wandb.init() or a report"
    remedy = f"print a line {name}=0.31, or call hpq.report({{{name!r}: 0.31}})"
    if reported and not (sweep.objectives or sweep.constraints):
        remedy += "; if one that it reported is meant, write it as metric.name in the sweep file"
        remedy += "" if end.in_terminal else _AGAIN
    seen = [line.strip() for line in printed_lines(end.tail) if mentions(name, line)]
    if not seen:
        return remedy
    _, unread = metrics_in_text([name], seen[-1])
    return f"{remedy}; {unread_words(seen[-1], unread)}"


def unread_words(line: str, unread: Unread | None) -> str:
    """Return that a printed line does not count, and the number in it that cannot be read."""
    words = f"the line {line[:_SHOWN]!r} does not count"
    if unread is None:
        return words
    return f"{words}: hpq reads numbers such as 1002.5 and 1,002.5, not {unread.text[:_SHOWN]!r}"


def too_late_words(sweep: RunnableSweep, held: Iterable[Mapping[str, float]]) -> str:
    """Return why early termination could not see a metric that was held to the end, or ""."""
    metric = sweep.metric
    if sweep.early is None or metric is None or all(metric.name not in line for line in held):
        return ""
    return (
        f"early termination sees {metric.name} only at its checkpoints and its end, since the"
        f" program has imported wandb or hpq; call hpq.report({{{metric.name!r}: 0.31}})"
    )


def diverged_words(sweep: RunnableSweep, reports: ReportBuffer) -> str:
    """Return which values in a row ended a trial."""
    assert sweep.metric is not None
    count = sweep.metric.terminate_on_nan
    in_a_row = f"the last {count} values are" if count > 1 else "the last value is"
    return f"{in_a_row} not finite: {sweep.metric.name} is {reports.last} (terminate_on_nan)"


def idle_words(sweep: RunnableSweep) -> str:
    """Return that the GPUs of a trial were used too little for too long."""
    return f"GPU use stayed below {sweep.idle_below:g} % for {sweep.idle_s:g} s"


def at_memory_limit(
    outcome: Outcome, is_out_of_memory: Callable[[], bool], limit_gb: Callable[[], float]
) -> Outcome:
    """Name the memory limit of the container if the kernel killed the trial at that limit."""
    failure = outcome.failure
    if failure is None or not failure.message.endswith(_KILLED) or not is_out_of_memory():
        return outcome
    message = f"{failure.message} at the memory limit of its container, {short(limit_gb())} GB"
    failure = replace(failure, kind=FailureKind.OUT_OF_MEMORY, message=message)
    return replace(outcome, failure=failure)


def with_peak(outcome: Outcome, host_memory_gb: Callable[[], float]) -> Outcome:
    """Add the trial's peak and the size of the memory to a failure by lack of memory.

    Linux kills with SIGKILL for lack of memory; so may people, if the trial used little.
    """
    failure, usage = outcome.failure, outcome.usage
    if failure is None or "rss_gb" not in usage:
        return outcome
    is_killed = failure.message.endswith(_KILLED)
    if failure.kind is not FailureKind.OUT_OF_MEMORY and not is_killed:
        return outcome
    used = usage["rss_gb"]
    size = host_memory_gb()
    of = "this machine's"
    if not is_killed and _OF_A_GPU.search(failure.message):
        if "gpu.size_gb" not in usage:
            return outcome
        in_use = _IN_USE.search(failure.message)  # at the failure, so after the last read
        used = max(usage["gpu.memory_gb"], float(in_use[1]) if in_use else 0.0)
        usage = {**usage, "gpu.memory_gb": used}
        size, of = usage["gpu.size_gb"], "its GPU's"
    elif is_killed and used < size / 2:
        return outcome
    peak = f"the trial was seen to use {short(used)} of {of} {short(size)} GB"
    message = f"{_ACCOUNT.sub('', failure.message)[:_LONGEST]}; {peak}"
    return replace(outcome, failure=replace(failure, message=message), usage=usage)


def _stalled(end: AttemptEnd, sweep: RunnableSweep, reports: ReportBuffer) -> Outcome:
    if not end.silent_s:
        line = (
            f"{idle_words(sweep)}; its log has the stacks; if that is intended, change `stall` in"
            " the sweep file, then hpq enqueue FILE --reuse"
        )
        failure = Failure(kind=FailureKind.STALLED, message=line, fingerprint="its GPUs were idle")
        return _ended(reports, TrialState.FAILED, failure)
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
