"""`hpq summary` as a page: ranking with bars, what the parameters did, what failed.

Also what `hpq run` ends with.

The lower part of `hpq summary`: what is left out, effects of parameters, failures. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from hpq.domain.sweep import Goal, Sweep
from hpq.store.reader import StoreReader
from hpq_producer.analysis.early_termination import saved_lines, target_words
from hpq_producer.analysis.records import sweep_record, trial_record
from hpq_producer.analysis.summary import Effect, Level, Tally
from hpq_producer.diagnosis.verdict import count_words
from hpq_producer.reports.ranking import show_ranking
from hpq_producer.terminal.charts import Scale, bar, scale_of
from hpq_producer.terminal.console import show_json, show_lines, stdout_look
from hpq_producer.terminal.style import Line, Span, Style
from hpq_producer.terminal.text import clean, duration, measure, pad, trials_of, width

_BAR, _LEAST_BAR = 20, 5  # columns
_MOST_EFFECTS = 8  # parameters


def hours_line(tally: Tally) -> Iterator[Line]:
    """How long the workers trained in all, where attempts were repeated; what was not trained."""
    if tally.reused:
        text = f"{trials_of(tally.reused, 'result')} of older sweeps, never trained here"
        yield [Span(text, Style.DIM)]
    if tally.before_ms:
        all_, before = duration(tally.total_ms), duration(tally.before_ms)
        text = f"trained {all_} in all, {before} of it in attempts that another followed"
        yield [Span(text, Style.DIM)]


def rest_line(sweep: Sweep, tally: Tally, shown: int) -> Iterator[Line]:
    """How many ranked trials are below those shown, and where they lie."""
    rest = len(tally.objectives) - shown
    if rest > 0:
        low, high = min(tally.objectives), max(tally.objectives)
        mean = sum(v / len(tally.objectives) for v in tally.objectives)
        worst = low if sweep.metric and sweep.metric.goal is Goal.MAXIMIZE else high
        text = f"… and {rest} more down to {measure(worst)}; mean of all {measure(mean)}"
        yield [Span(text, Style.DIM)]


def effect_lines(tally: Tally, columns: int = 1_000) -> Iterator[Line]:
    """The mean objective for each value of each parameter, the largest effect first.

    Bars take what is left of so many columns; where that is next to nothing there are none.
    """
    effects = tally.effects
    if not effects:
        return
    name = clean(tally.sweep.metric.name) if tally.sweep.metric else "objective"
    yield []
    among = f", {trials_of(tally.pruned, 'pruned trial')} among them" if tally.pruned else ""
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
        yield from _one(e, (wide, label, means), tally, scale, room)
    if room and not scale.is_from_zero:
        yield [Span(f"(bars begin at {measure(scale.low)})", Style.DIM)]


def _number_of(level: Level) -> str:
    return trials_of(level.count)


def _one(
    effect: Effect, sizes: tuple[int, int, int], tally: Tally, scale: Scale, room: int
) -> Iterator[Line]:
    wide, label, number = sizes
    metric = tally.sweep.metric
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


def failure_lines(tally: Tally) -> Iterator[Line]:
    """The kinds of failure with an example each."""
    if tally.failures:
        yield []
    for f in tally.failures:
        yield [Span(f"{f.count} {f.kind}", Style.RED), Span(f"  {f.example}: {f.message}")]


def print_summary(reader: StoreReader, sweep: Sweep, *, top: int = 20) -> None:
    """Print the page; reads every trial once, keeps few of them."""
    tally = Tally(sweep).add(reader.trials.all(sweep.id))
    best = reader.trials.best(sweep, top)
    head = f"{sweep.id}  {sweep.state}  {', '.join(count_words(sweep))}"
    show_lines([[Span(head)]], whole=True)
    if words := target_words(sweep):
        print(words)
    show_lines(hours_line(tally), whole=True)
    if best:
        print()
        show_ranking(sweep, best, scale_of(tally.objectives))
        shown = sum(len(t.group.objectives) if t.group else 1 for t in best)
        show_lines(rest_line(sweep, tally, shown), whole=True)
    show_lines(effect_lines(tally, stdout_look().columns))
    show_lines(saved_lines(tally), whole=True)
    show_lines(failure_lines(tally), whole=True)


def print_summary_json(reader: StoreReader, sweep: Sweep, *, top: int = 20) -> None:
    """Print the same as data."""
    tally = Tally(sweep).add(reader.trials.all(sweep.id))
    best = reader.trials.best(sweep, top)
    effects: list[dict[str, Any]] = [
        {
            "param": e.param,
            "levels": [{"value": x.label, "trials": x.count, "mean": x.mean} for x in e.levels],
        }
        for e in tally.effects
    ]
    show_json(
        {
            "sweep": sweep_record(sweep, best[0].objective if best else None),
            "ranking": [trial_record(t, sweep) for t in best],
            "trained_s": tally.total_ms / 1000,
            "of_earlier_attempts_s": tally.before_ms / 1000,
            "effects": effects,
            "saved": asdict(tally.saved) if tally.saved else None,
            "failures": [
                {"kind": f.kind, "trials": f.count, "example": f.example, "message": f.message}
                for f in tally.failures
            ],
        }
    )
