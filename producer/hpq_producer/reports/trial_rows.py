"""Render a trial as one row of watch: number, parameters, step, objective, duration. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hpq.domain.status import SweepStatus
from hpq.domain.sweep import Sweep
from hpq.domain.trial import OTHER_CODE, Params, TrialState, TrialView
from hpq_producer.analysis.eta import trial_left_ms
from hpq_producer.analysis.scores import flatten, newest_value, spread
from hpq_producer.terminal.style import Span, Style
from hpq_producer.terminal.tables import Column, lay
from hpq_producer.terminal.text import clean, duration, failure_words, measure, planned, value

STATE_STYLE = {
    TrialState.QUEUED: Style.DIM,
    TrialState.RUNNING: Style.GREEN,
    TrialState.FINISHED: Style.PLAIN,
    TrialState.FAILED: Style.RED,
    TrialState.PRUNED: Style.CYAN,
    TrialState.CANCELLED: Style.YELLOW,
}
_FIRST_TO_STAY = (75, 70, 55)  # the first varying parameters outlast curve and step
_CURVES, _CURVES_WIDE = (12, 9, 6), (24, 18, 12, 9, 6)  # columns, the widest that fits
_LEAST_FOR_CURVES = 60  # columns of a terminal
_NARROWEST = 4  # columns of a parameter, with the gap
WIDE = 120  # columns of a terminal that has room for wide curves


def shown_names(
    sweep: Sweep, chosen: Sequence[str], columns: int
) -> tuple[list[str], dict[str, str]]:
    """Return the parameters and metrics that fit, the chosen ones first, and the shown titles.

    The titles fit usual cells, so that they stay while states and values change.
    """
    names = [*chosen, *(name for name in sweep.varying if name not in chosen)]
    names = names[: columns // _NARROWEST]
    number = f"▶●{planned(sweep.counts)}"
    for room in curve_widths(columns):
        curve = "▁" * max(room, len("▁0.1 █0.9")) if room else ""
        heads = trial_columns(sweep, names, chosen, curve, {})
        cells = [number, *["values"] * len(names), "1000", "0.1234", curve, "9m59s", "9m59s left"]
        layout = lay(heads, [[Span(cell) for cell in cells if cell]], columns)
        if layout.is_whole:
            break
    sizes = layout.widths[1 : 1 + len(names)]
    return [name for name, size in zip(names, sizes, strict=True) if size], layout.titles


def trial_columns(
    sweep: Sweep,
    names: Sequence[str],
    chosen: Sequence[str],
    curve_title: str,
    titles: Mapping[str, str],
) -> list[Column]:
    """Return the columns of `trial_row`; the chosen names are dropped last.

    `titles` are the shown titles by the full ones; without them, columns are as narrow as they may
    become.
    """
    metric = clean(sweep.metric.name) if sweep.metric else "objective"
    least = 6 if titles else _NARROWEST
    keeps = [92] * len(chosen) + [*_FIRST_TO_STAY, *range(40, 0, -1)]
    columns = [
        Column(title="#", keep=100, right=True),
        *(
            Column(title=clean(name), keep=keeps[min(i, len(keeps) - 1)], least=least)
            for i, name in enumerate(names)
        ),
        Column(title="step", keep=60, right=True),
        Column(title=metric, keep=95, right=True),
        *([Column(title=curve_title, keep=50)] if curve_title else []),
        Column(title="time", keep=80, right=True),
        Column(title="state", keep=90, least=10),
    ]
    return [replace(column, short=titles.get(column.title, "")) for column in columns]


def curve_widths(columns: int) -> tuple[int, ...]:
    """Return widths of curves to try, from the widest; curves shrink before values are cut."""
    return _CURVES_WIDE if columns >= WIDE else _CURVES if columns >= _LEAST_FOR_CURVES else (0,)


def column_names(sweep: Sweep, metrics: Sequence[str] = ()) -> set[str]:
    """Return the titles that are parameters or metrics."""
    metric = {clean(sweep.metric.name)} if sweep.metric else set[str]()
    return {*metric, *map(clean, sweep.varying), *map(clean, metrics)}


def trial_row(
    trial: TrialView, status: SweepStatus, names: Sequence[str], drawn: str | None, mark: str
) -> list[Span]:
    """Return the cells of one trial; `drawn` is its curve, None without that column."""
    sweep = status.sweep
    running = trial.state is TrialState.RUNNING
    taken = max(0, status.at_ms - trial.claimed_ms) if running else trial.duration_ms
    shown = newest_value(sweep, trial)
    leaves = {**flatten(trial.params), **trial.params}
    return [
        Span(f"{mark}{trial.id.number}", Style.GREEN if mark.strip() else Style.PLAIN),
        *(Span(_cell(trial, leaves, name)) for name in names),
        Span(str(trial.step) if trial.step else ""),
        Span("" if shown is None else measure(shown) + spread(trial.group), Style.BOLD),
        *([Span(drawn, Style.CYAN)] if drawn is not None else []),
        Span(duration(taken) if taken or running else ""),
        _state(trial, status, taken),
    ]


def _cell(trial: TrialView, leaves: Params, name: str) -> str:
    if name in leaves:
        return value(leaves[name])
    return measure(trial.metrics[name]) if name in trial.metrics else ""


def _state(trial: TrialView, status: SweepStatus, taken_ms: float) -> Span:
    if silence := status.silence_ms(trial):
        return Span(f"silent {duration(silence)}", Style.YELLOW)
    return Span(_words(trial, status, taken_ms), STATE_STYLE[trial.state])


def _words(trial: TrialView, status: SweepStatus, taken_ms: float) -> str:
    if trial.failure is not None and trial.state is TrialState.FAILED:
        return failure_words(trial.failure.kind)
    if trial.state is not TrialState.RUNNING:
        words = "other code" if trial.reused.endswith(OTHER_CODE) else "reused"
        return words if trial.reused else trial.state.value
    if not trial.step and trial.phase:
        return clean(trial.phase)
    if status.is_stale:
        return "running"
    mean = status.durations.mean_ms if status.durations.ended else None
    left = trial_left_ms(taken_ms, trial.step, last_step(status), mean)
    return "running" if left is None else f"{duration(left)} left"


def last_step(status: SweepStatus) -> int | None:
    """Return the step at which all known trials ended; None if they differ."""
    ended = (*status.recent, *status.best)
    steps = {t.step for t in ended if t.state is TrialState.FINISHED}
    return steps.pop() if len(steps) == 1 else None
