"""The status of a sweep in a line or two, what needs the user, and the exit code."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from hpq.domain.metric_spelling import metric_warning
from hpq.domain.status import SweepStatus, Worker, event_ms
from hpq.domain.stored_state import StoredState
from hpq.domain.sweep import Counts, SweepState, SweepView
from hpq.domain.trial import TrialState, TrialView
from hpq.error_codes import ExitCode
from hpq.notice import Notice
from hpq_views.analysis.early_termination import describe_target
from hpq_views.analysis.eta import TimeLeft, sweep_eta
from hpq_views.analysis.output_records import WAITING, state_word
from hpq_views.analysis.pareto_front import Front
from hpq_views.analysis.trial_row import TrialRow
from hpq_views.text.style import Line, Span, Style, flow
from hpq_views.text.text import clean, duration, fit, measure, progress, trials_of
from hpq_views.why.waiting import why_no_trial_starts

STATE_STYLE = {
    SweepState.RUNNING: Style.GREEN,
    SweepState.PAUSED: Style.YELLOW,
    SweepState.HELD: Style.RED,
    SweepState.STOPPING: Style.YELLOW,
    SweepState.FINISHED: Style.BOLD,
    SweepState.CANCELLED: Style.YELLOW,
}
_BAR_WIDTH = 12
_MIN_COLUMNS_FOR_BAR = 60  # a narrower terminal shows no bar


def state_span(sweep: SweepView, why: Notice | None) -> Span:
    """Return the word for a sweep's state; `why` is why no worker claims its trials."""
    word = state_word(sweep, why)
    return Span(word, Style.YELLOW if word == WAITING else STATE_STYLE[sweep.state])


def status_lines(
    status: SweepStatus,
    columns: int,
    why: Notice | None,
    best_rows: int = 2,
    front: Sequence[Line] = (),
) -> list[Line]:
    """Return name, state, counts, elapsed and remaining time; then the best trial so far.

    `why` is why no worker claims the trials. `front` are the `front_items` of several metrics.
    """
    sweep, counts = status.sweep, status.sweep.counts
    has_bar = columns >= _MIN_COLUMNS_FOR_BAR and not counts.is_open_ended
    filled = (
        Span(progress_text(counts.progress[0], int(counts.progress[1]), _BAR_WIDTH), Style.GREEN)
        if has_bar
        else None
    )
    bar = [filled, Span(" ")] if filled else []
    items: list[Line] = [
        [Span(sweep.id, Style.BOLD)],
        [state_span(sweep, why)],
        [*bar, Span(progress(counts))],
        *([Span(text)] for text in state_counts(sweep)),
        [Span(duration(elapsed_ms(status)))],
        *([[Span(sweep.budget.usage)]] if sweep.budget else []),
    ]
    if left := time_left(status):
        items.append([Span(f"{left} left")])
    elif counts.is_open_ended:
        items.append([Span("open-ended")])
    lines = flow(items, columns)
    if front:
        lines += flow(front, columns)[:best_rows]
    elif status.best and sweep.metric and not sweep.objectives:
        lines += flow(best_items(status.best[0], sweep), columns)[:best_rows]
    if words := describe_target(sweep):
        lines += flow([[Span(words, Style.BOLD)]], columns)[:1]
    return lines


def state_counts(sweep: SweepView) -> list[str]:
    """Return `6 queued`, `2 running`, … for each state that has trials."""
    counts, out = sweep.counts, []
    for state in TrialState:
        if n := counts.of(state):
            out.append(_failed_words(counts) if state is TrialState.FAILED else f"{n:,} {state}")
    return out


def _failed_words(counts: Counts) -> str:
    """Return `10 failed (1 diverged)`."""
    diverged = f" ({counts.diverged:,} diverged)" if counts.diverged else ""
    return f"{counts.failed:,} failed{diverged}"


def best_items(trial: TrialView, sweep: SweepView) -> list[Line]:
    """Return `best test/acc 0.9426`, `#7`, `lr=0.4`, … for `flow`."""
    name = clean(sweep.metric.name) if sweep.metric else "objective"
    row = TrialRow(trial=trial, sweep=sweep)
    return [
        [Span(f"best {name} "), Span(row.objective or "-", Style.BOLD)],
        *(
            [Span(f"{clean(m.name)} {row.metric(m.name)}")]
            for m in sweep.objectives[1:]
            if row.metric(m.name)
        ),
        [Span(f"#{trial.id.number}", Style.BOLD)],
        *([Span(row.pairs([varying]))] for varying in sweep.varying),
    ]


def front_items(front: Front) -> list[Line]:
    """Return `front 12 trials`, `hypervolume 0.8`, `150 dominated`, … for `flow`; takes long."""
    volumes = front.hypervolumes()
    rest = {"dominated": front.dominated, "infeasible": front.infeasible}
    return [
        [Span("front "), Span(trials_of(len(front.trials)), Style.BOLD)],
        *([[Span("hypervolume "), Span(measure(volumes[-1][1]), Style.BOLD)]] if volumes else []),
        *([Span(f"{n:,} {word}")] for word, n in rest.items() if n),
    ]


def progress_text(ended: int, total: int, columns: int) -> str:
    """Draw a progress bar of fixed length; it is full only if `ended` equals `total`."""
    filled = columns * ended // total if total else columns
    return "━" * filled + "·" * (columns - filled)


def elapsed_ms(status: SweepStatus) -> int:
    """Return the time from the sweep's creation to now, or to its last event if no trial runs."""
    sweep, end = status.sweep, status.at_ms
    if sweep.state.is_over and status.recent:
        end = status.recent[0].ended_ms
    elif not sweep.counts.running:
        end = event_ms(status.last_event)
    return max(0, end - sweep.created_ms)


def time_left(status: SweepStatus) -> TimeLeft | None:
    """Estimate the remaining time; None if the sweep does not run or no trial has ended."""
    sweep, counts = status.sweep, status.sweep.counts
    if sweep.state in (SweepState.PAUSED, SweepState.HELD) or sweep.state.is_over:
        return None
    if counts.is_open_ended or status.is_stale:
        return None
    live = [t for t in status.running if not status.silence_ms(t)]
    lost = len(status.running) - len(live)  # the reaper will requeue them
    ages = [float(max(0, status.at_ms - t.claimed_ms)) for t in live]
    unread = max(0, counts.running - len(status.running))  # a frame reads only trials it shows
    ages += [status.durations.mean_ms / 2] * min(unread, 1000)
    available = [
        w for w in status.workers
        if w.state in ("idle", "busy") and (not w.trial or w.trial.startswith(f"{sweep.id}/"))
    ]  # fmt: skip
    if not available:
        return None
    slots = min(len(available), sweep.max_parallel or len(available))
    return sweep_eta(status.durations, counts.queued + lost + int(counts.to_come), ages, slots)


def needed_actions(status: SweepStatus, unclaimed: Notice | None) -> list[Notice]:
    """Return what the user must know or do, most urgent first, each with the remedy."""
    sweep = status.sweep
    unmet = explain_unreported_metric(status)
    out: list[Notice] = []
    counts = sweep.counts
    out += why_no_trial_starts(sweep, unclaimed)
    if unmet:
        out.append(unmet)
    elif sweep.constraints and counts.finished and not status.best:
        limits = clean(", ".join(map(str, sweep.constraints)))
        text = f"no finished trial meets the constraints: {limits}; hpq results {sweep.id}"
        out.append(Notice("constraints-unmet", text))
    if counts.failed > counts.diverged:
        seen = [t for t in status.recent if t.failure and t.failure.kind.counts_as_failure]
        if seen and seen[0].failure:
            reason = clean(seen[0].failure.message)
            text = f"{_failed_words(counts)}; hpq logs {seen[0].id}  {reason}"
        else:
            text = f"{_failed_words(counts)}; hpq results {sweep.id} --where 'state == failed'"
        out.append(Notice("trials-failed", text))
    return [*out, *explain_troubles(sweep, status.workers)]


def explain_troubles(sweep: SweepView, workers: Iterable[Worker]) -> list[Notice]:
    """Return what views say of a sweep's files, its trials and the disks of its queue's workers."""
    return [*explain_files(sweep), *explain_returns(sweep), *explain_disks(workers)]


def explain_files(sweep: SweepView) -> list[Notice]:
    """Return a notice each if files of trials wait for their store, or are in no store."""
    found: list[Notice] = []
    if sweep.unstored:
        whose = f"files of {trials_of(sweep.unstored)}"
        later = "their workers' machines store them when the store is back"
        found.append(Notice("files-not-stored", f"{whose} are not stored yet; {later}"))
    if sweep.unkept and sweep.unkept_why:
        whose = f"files of {trials_of(sweep.unkept)} are in no store"
        last = clean(sweep.unkept_why.text)
        found.append(Notice(sweep.unkept_why.code, f"{whose}; the last is {last}"))
    return found


def explain_returns(sweep: SweepView) -> list[Notice]:
    """Return a notice if a trial of an unfinished sweep returns to the queue again and again."""
    if sweep.returned is None or sweep.state.is_over:
        return []
    notice = sweep.returned.notice
    return [Notice(notice.code, f"{notice.text}; hpq show {sweep.id}/{sweep.returned.trial}")]


def explain_disks(workers: Iterable[Worker]) -> list[Notice]:
    """Return a notice for each host on whose disk workers have little space."""
    low = {worker.host: worker.low_disk for worker in workers if worker.low_disk}
    return [
        Notice("disk-low", clean(f"{host}: {text}; free space there"))
        for host, text in sorted(low.items())
    ]


def next_commands(status: SweepStatus, unclaimed: Notice | None) -> list[str]:
    """Return the commands that look into a sweep or go on with it, the most useful first."""
    sweep, found = status.sweep, list[str]()
    failed = [t.id for t in status.recent if t.failure and t.failure.kind.counts_as_failure]
    if sweep.counts.failed:
        found.append(f"hpq logs {failed[0]}" if failed else f"hpq summary {sweep.id}")
        found.append(f"hpq retry {sweep.id}")
    elif sweep.state in (SweepState.PAUSED, SweepState.HELD):
        found.append(sweep.resumed_by)
    if not sweep.state.is_over:
        found += [f"hpq worker --sweep {sweep.id}"] if unclaimed else []
        found.append(f"hpq wait {sweep.id}")
    if status.best:
        best = f"hpq best {sweep.id}" if sweep.objectives else f"hpq best {sweep.id} --yaml"
        found += [best, f"hpq summary {sweep.id}"]
    return list(dict.fromkeys(found))


def explain_unreported_metric(status: SweepStatus) -> Notice | None:
    """Return a notice about a trial that does not report the sweep's metric, if there is one."""
    words = metric_warning(status.sweep, (*status.running, *status.recent), status.best)
    return Notice("metric-unreported", clean(words)) if words else None


def note_lines(text: str, columns: int, most: int | None = None) -> list[Line]:
    """Wrap a notice, in at most `most` lines."""
    width = max(10, columns - 2)
    parts = textwrap.wrap(clean(text), width)
    if most is not None and len(parts) > most:
        parts = [*parts[: most - 1], fit(" ".join(parts[most - 1 :]), width)] if most else []
    return [
        [Span("! " if i == 0 else "  ", Style.YELLOW), Span(part, Style.YELLOW)]
        for i, part in enumerate(parts)
    ]


def exit_code(sweep: SweepView, best: float | None) -> ExitCode:
    """Return 5 if the sweep is held, 6 by its budget; 1 if it is no success, or 0.

    `best` is its best objective. It is no success if a trial failed, of whatever kind; if the sweep
    was cancelled; or if it ended without an objective. Trials that were pruned, or cancelled one by
    one, are no failures.
    """
    if sweep.state is SweepState.HELD:
        return ExitCode.OVER_BUDGET if sweep.is_over_budget else ExitCode.HELD
    is_blank = sweep.state.is_over and sweep.metric is not None and best is None
    if sweep.counts.failed or sweep.stored is StoredState.CANCELLED or is_blank:
        return ExitCode.SOME_FAILED
    return ExitCode.DONE
