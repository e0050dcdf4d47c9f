"""`hpq summary` as a page: ranking with bars, effects of the parameters, failures.

`hpq run` ends with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from hpq.domain.sweep import Goal, Sweep
from hpq.store.reader import StoreReader
from hpq_producer.analysis.early_termination import describe_target, saved_lines
from hpq_producer.analysis.records import sweep_record, trial_record
from hpq_producer.analysis.summary import Effect, Level, SweepSummary
from hpq_producer.diagnosis.verdict import state_counts
from hpq_producer.reports.ranking import show_ranking
from hpq_producer.terminal.charts import Scale, bar, scale_of
from hpq_producer.terminal.console import show_json, show_lines, stdout_info
from hpq_producer.terminal.style import Line, Span, Style
from hpq_producer.terminal.text import clean, duration, measure, pad, trials_of, width

_BAR, _LEAST_BAR = 20, 5  # columns
_MOST_EFFECTS = 8  # parameters


def hours_line(summary: SweepSummary) -> Iterator[Line]:
    """How long the workers trained in all, where attempts were repeated; what was not trained."""
    if summary.reused:
        text = f"{trials_of(summary.reused, 'result')} of older sweeps, never trained here"
        yield [Span(text, Style.DIM)]
    if summary.before_ms:
        all_, before = duration(summary.total_ms), duration(summary.before_ms)
        text = f"trained {all_} in all, {before} of it in attempts that another followed"
        yield [Span(text, Style.DIM)]


def rest_line(sweep: Sweep, summary: SweepSummary, shown: int) -> Iterator[Line]:
    """How many ranked trials are below those shown, and where they lie."""
    rest = len(summary.objectives) - shown
    if rest > 0:
        low, high = min(summary.objectives), max(summary.objectives)
        mean = sum(v / len(summary.objectives) for v in summary.objectives)
        worst = low if sweep.metric and sweep.metric.goal is Goal.MAXIMIZE else high
        text = f"… and {rest} more down to {measure(worst)}; mean of all {measure(mean)}"
        yield [Span(text, Style.DIM)]


def effect_lines(summary: SweepSummary, columns: int = 1_000) -> Iterator[Line]:
    """The mean objective for each value of each parameter, the largest effect first.

    Bars take what is left of so many columns; where that is next to nothing there are none.
    """
    effects = summary.effects
    if not effects:
        return
    name = clean(summary.sweep.metric.name) if summary.sweep.metric else "objective"
    yield []
    among = f", {trials_of(summary.pruned, 'pruned trial')} among them" if summary.pruned else ""
    yield [Span(f"mean {name} by value{among}, the widest spread first", Style.DIM)]
    shown = effects[:_MOST_EFFECTS]
    wide = max(width(e.param) for e in shown)
    label = max(width(level.label) for e in shown for level in e.levels)
    scale = scale_of([level.mean for e in shown for level in e.levels])
    most = max(width(_number_of(level)) for e in shown for level in e.levels)
    means = max(width(measure(level.mean)) for e in shown for level in e.levels)
    room = min(_BAR, columns - wide - label - means - most - 4 * 2)
    room = room if room >= _LEAST_BAR else 0
    for e in shown:
        yield from _one(e, (wide, label, means), summary, scale, room)
    if room and not scale.is_from_zero:
        yield [Span(f"(bars begin at {measure(scale.low)})", Style.DIM)]


def _number_of(level: Level) -> str:
    return trials_of(level.count)


def _one(
    effect: Effect, sizes: tuple[int, int, int], summary: SweepSummary, scale: Scale, room: int
) -> Iterator[Line]:
    wide, label, number = sizes
    metric = summary.sweep.metric
    means = [level.mean for level in effect.levels]
    best = max(means) if metric and metric.goal is Goal.MAXIMIZE else min(means)
    for i, level in enumerate(effect.levels):
        name = effect.param if i == 0 else ""
        style = Style.BOLD if level.mean == best else Style.PLAIN
        yield [
            Span(f"{pad(name, wide)}  {pad(level.label, label)}  "),
            Span(pad(measure(level.mean), number, right=True), style),
            *([Span(f"  {pad(bar(level.mean, scale, room), room)}", Style.CYAN)] if room else []),
            Span(f"  {_number_of(level)}", Style.DIM),
        ]


def failure_lines(summary: SweepSummary) -> Iterator[Line]:
    """The kinds of failure with an example each."""
    if summary.failures:
        yield []
    for f in summary.failures:
        yield [Span(f"{f.count} {f.kind}", Style.RED), Span(f"  {f.example}: {f.message}")]


def print_summary(reader: StoreReader, sweep: Sweep, *, top: int = 20) -> None:
    """Print the page; reads every trial once, keeps few of them."""
    summary = SweepSummary(sweep).add(reader.trials.all(sweep.id))
    best = reader.trials.best(sweep, top)
    head = f"{sweep.id}  {sweep.state}  {', '.join(state_counts(sweep))}"
    show_lines([[Span(head)]], whole=True)
    if words := describe_target(sweep):
        print(words)
    show_lines(hours_line(summary), whole=True)
    if best:
        print()
        show_ranking(sweep, best, scale_of(summary.objectives))
        shown = sum(len(t.group.objectives) if t.group else 1 for t in best)
        show_lines(rest_line(sweep, summary, shown), whole=True)
    show_lines(effect_lines(summary, stdout_info().columns))
    show_lines(saved_lines(summary), whole=True)
    show_lines(failure_lines(summary), whole=True)


def print_summary_json(reader: StoreReader, sweep: Sweep, *, top: int = 20) -> None:
    """Print the same as data."""
    summary = SweepSummary(sweep).add(reader.trials.all(sweep.id))
    best = reader.trials.best(sweep, top)
    effects: list[dict[str, Any]] = [
        {
            "param": e.param,
            "levels": [{"value": x.label, "trials": x.count, "mean": x.mean} for x in e.levels],
        }
        for e in summary.effects
    ]
    show_json(
        {
            "sweep": sweep_record(sweep, best[0].objective if best else None),
            "ranking": [trial_record(t, sweep) for t in best],
            "trained_s": summary.total_ms / 1000,
            "of_earlier_attempts_s": summary.before_ms / 1000,
            "effects": effects,
            "saved": asdict(summary.saved) if summary.saved else None,
            "failures": [
                {"kind": f.kind, "trials": f.count, "example": f.example, "message": f.message}
                for f in summary.failures
            ],
        }
    )
