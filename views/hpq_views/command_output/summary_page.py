"""Print the page of `hpq summary`, with which `hpq run` ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hpq.access.session import Session
from hpq.domain.sweep import Goal, SweepView
from hpq.domain.trial import TrialView
from hpq.notice import Notice
from hpq_views.analysis.early_termination import describe_target
from hpq_views.analysis.eta import coarse_duration
from hpq_views.analysis.importance import Importance, noun_of
from hpq_views.analysis.output_records import sweep_record, trial_record
from hpq_views.analysis.pareto_front import Front
from hpq_views.analysis.rank_results import Standings, standings_of
from hpq_views.analysis.summary import Effect, Level, SweepSummary, summaries_of
from hpq_views.analysis.winner_evidence import MOST_JUDGED, Winner, judge_winner
from hpq_views.command_output.provenance import describe_versions
from hpq_views.command_output.results_table import show_ranking, standing_lines
from hpq_views.text.charts import Scale, bar, curve, ends_of, scale_of
from hpq_views.text.console import show_lines, stdout_info
from hpq_views.text.output import Format, show_data
from hpq_views.text.style import Line, Span, Style
from hpq_views.text.text import (
    clean,
    duration,
    failure_words,
    measure,
    pad,
    trials_of,
    width,
)
from hpq_views.why.verdict import (
    explain_troubles,
    note_lines,
    state_counts,
    state_span,
)
from hpq_views.why.waiting import explain_waits

_BAR, _LEAST_BAR = 20, 5  # columns
_MOST_EFFECTS = 8  # parameters
_FEW = 3  # finished trials; the median of fewer is a guess


def hours_line(summary: SweepSummary) -> Iterator[Line]:
    """Yield the workers' total training time, and the part spent in restarted attempts."""
    if summary.reused:
        text = f"{trials_of(summary.reused, 'result')} from older sweeps, not trained here"
        other = f"; {summary.of_other_code:,} of other code" if summary.of_other_code else ""
        yield [Span(text + other, Style.DIM)]
    if summary.total_ms:
        all_, before = duration(summary.total_ms), duration(summary.before_ms)
        lost = f"; {before} in attempts that were restarted" if summary.before_ms else ""
        yield [Span(f"total training time: {all_} (all workers{lost})", Style.DIM)]


def rest_line(standings: Standings, summary: SweepSummary, shown: int) -> Iterator[Line]:
    """Yield the number of ranked settings that are not shown, and their range."""
    rest = len(standings.order) - shown
    if rest > 0:
        worst = measure(standings.groups[standings.order[-1]].mean)
        text = f"… and {rest:,} more of {standings}, the worst {worst}"
        if found := summary.typical:
            mean = measure(sum(v / len(found) for v in found))
            text += f"; mean {mean} of {summary.typical_of}"
        yield [Span(text, Style.DIM)]


def winner_lines(
    winner: Winner | None, sid: str, importance: Importance | None = None
) -> Iterator[Line]:
    """Yield one line for each piece of evidence that the winner is real.

    Without importance, as `hpq best` prints it, a verdict that no seed supports is left out.
    """
    if winner is None or winner.of < 2:
        return
    found = dict(winner.lines(sid, importance.negligible if importance else ()))
    if importance is None and not winner.has_verdict:
        found.pop("verdict", None)
    if found:
        yield []
    if "verdict" in found:  # else the lines would be no answer
        yield [Span(f"is {winner.name} really the best?", Style.DIM)]
    for label, text in found.items():
        yield [Span(f"{label:9}", Style.DIM), Span(text)]


def importance_lines(found: Importance, columns: int = 1_000, metric: str = "") -> Iterator[Line]:
    """Yield each parameter's share of the explained variance, with a 90 % interval.

    `metric` is one of several.
    """
    yield []
    which = f"which parameter matters{f' for {clean(metric)}' if metric else ''}"
    yield [Span(f"{which} (permutation importance, 90 % interval)", Style.DIM)]
    yield [Span(found.verdict, Style.BOLD)]
    if found.looked:
        yield [Span(found.looked, Style.YELLOW)]
    shown = found.shares[:_MOST_EFFECTS]
    wide = max((width(clean(one.param)) for one in shown), default=0)
    room = min(_BAR, columns - wide - len("  100%  (100–100%)  "))
    for one in shown:
        figure = f"{one.share:4.0%}  {f'({one.range})':9}"
        drawn = bar(one.share, Scale(low=0, high=1), room) if room >= _LEAST_BAR else ""
        yield [Span(f"{pad(clean(one.param), wide)}  {figure}"), Span(f"  {drawn}", Style.CYAN)]
    if (rest := len(found.shares) - len(shown)) > 0:
        yield [Span(f"… and {rest} more below {shown[-1].share:.0%}", Style.DIM)]


def effect_lines(
    summary: SweepSummary, columns: int = 1_000, importance: Importance | None = None
) -> Iterator[Line]:
    """Yield the median objective for each value of each parameter.

    The most important parameter is first; if no importance is known, the one with the largest
    effect. Bars fill the rest of `columns`; there are none if it is too narrow.
    """
    effects = summary.effects
    if not effects:
        return
    order = "largest effect first"
    if importance and importance.shares:
        places = {clean(share.param): n for n, share in enumerate(importance.shares)}
        effects = sorted(effects, key=lambda e: places.get(e.param, len(places)))
        order = "most important first"
    metric = summary.sweep.metric
    name = clean(metric.name) if metric else "objective"
    if metric and metric.goal is Goal.MINIMIZE:  # the longest bar is the worst
        name += " (lower is better)"
    yield []
    yield [Span(f"median {name} by parameter value, {order}", Style.DIM)]
    if counted := summary.counted:  # a line of its own, which 80 columns do not cut
        yield [Span(counted, Style.DIM)]
    shown = effects[:_MOST_EFFECTS]
    wide = max(width(e.param) for e in shown)
    label = max(width(level.label) for e in shown for level in e.levels)
    scale = scale_of([level.median for e in shown for level in e.levels])
    noun = noun_of(summary.sweep)
    most = max(width(_number_of(level, noun)) for e in shown for level in e.levels)
    medians = max(width(measure(level.median)) for e in shown for level in e.levels)
    room = min(_BAR, columns - wide - label - medians - most - 4 * 2)
    room = room if room >= _LEAST_BAR else 0
    for e in shown:
        yield from _one(e, (wide, label, medians), summary, scale, room)
    if room and (words := ends_of(scale)):
        yield [Span(f"({words})", Style.DIM)]


def _number_of(level: Level, noun: str) -> str:
    shown = trials_of(level.count, noun)
    if level.count > 2:
        shown += f", mean {measure(level.mean)}"
    return shown


def _one(
    effect: Effect, sizes: tuple[int, int, int], summary: SweepSummary, scale: Scale, room: int
) -> Iterator[Line]:
    wide, label, number = sizes
    metric = summary.sweep.metric
    medians = [level.median for level in effect.levels]
    best = max(medians) if metric and metric.goal is Goal.MAXIMIZE else min(medians)
    for i, level in enumerate(effect.levels):
        name = effect.param if i == 0 else ""
        style = Style.BOLD if level.median == best else Style.PLAIN
        yield [
            Span(f"{pad(name, wide)}  {pad(level.label, label)}  "),
            Span(pad(measure(level.median), number, right=True), style),
            *([Span(f"  {pad(bar(level.median, scale, room), room)}", Style.CYAN)] if room else []),
            Span(f"  {_number_of(level, noun_of(summary.sweep))}", Style.DIM),
        ]


def failure_lines(summary: SweepSummary) -> Iterator[Line]:
    """Yield each failure with an example, and what its trials have in common."""
    failures = summary.failures
    if failures:
        yield []
    for f in failures:
        yield [
            Span(f"{failure_words(f.kind)}: {trials_of(f.count)}", Style.RED),
            Span(f"  {f.example}: {f.message}"),
        ]
        yield from ([Span(f"  {words}", Style.BOLD)] for words in f.common)


def saved_lines(summary: SweepSummary) -> Iterator[Line]:
    """Yield the number of trials stopped early, and the estimated time saved."""
    saved = summary.saved
    if saved is None:
        return
    yield []
    text = f"{trials_of(saved.stopped)} stopped early"
    if saved.usual_ms is None:
        text += "; the time saved is known when a trial has finished"
    elif saved.ms >= 1000:
        share = saved.ms / max(1.0, saved.ms + saved.ran_ms)
        text += (
            f": saved about {coarse_duration(saved.ms)} ({share:.0%}), assuming"
            f" {coarse_duration(saved.usual_ms)} for a full trial (median of {saved.finished})"
        )
        text += " (too few for more than a guess)" if saved.finished < _FEW else ""
    yield [Span(text)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepMoment:
    """One read of a sweep's trials, from which all of its summary comes."""

    sweep: SweepView
    summaries: Sequence[SweepSummary]  # one for each metric
    standings: Standings
    best: Sequence[TrialView]  # by one metric: all that `judge_winner` needs; else the front
    why: Notice | None  # why no worker claims its trials
    troubles: Sequence[Notice]  # of its files, its trials and its workers' disks

    @property
    def summary(self) -> SweepSummary:
        """The summary of the first metric."""
        return self.summaries[0]

    @property
    def front(self) -> Front | None:
        """The front of several metrics."""
        return self.standings.front


def read_moment(session: Session, sweep: SweepView, top: int) -> SweepMoment:
    """Read every trial once, and keep few in memory.

    Raises:
        DecodeError: a trial, or the ranking of the sweep, cannot be read.
    """
    reader = session.reader
    summaries = summaries_of(sweep, session.settings.cache, may_lag=True)
    reader.ranking.numbers(sweep, 1)  # an unreadable one is an error, as of `best`

    def added() -> Iterator[TrialView]:
        for trial in reader.trials.begun(sweep.id):
            for summary in summaries:
                summary.add([trial])
            yield trial

    standings = standings_of(sweep, added())
    now = summaries[0].of_moment()
    firsts = standings.order[: max(top, MOST_JUDGED)]
    trials = {trial.id.number: trial for trial in reader.trials.get_many(sweep.id, firsts)}
    best = standings.best(trials, len(firsts))
    workers = reader.workers.live()
    return SweepMoment(
        sweep=now,
        summaries=summaries,
        standings=standings,
        best=standings.front.trials[:top] if standings.front else best,
        why=explain_waits(reader, [now], session, workers).get(now.id),
        troubles=explain_troubles(now, [one for one in workers if one.queue == now.queue]),
    )


def print_summary(session: Session, sweep: SweepView, *, top: int = 20) -> None:
    """Print the page; reads every trial once, and keeps few in memory."""
    reader, columns = session.reader, stdout_info().columns
    it = read_moment(session, sweep, top)
    sweep, summary, best = it.sweep, it.summary, it.best[:top]
    winner = judge_winner(reader, sweep, it.best) if best else None
    head = f"{sweep.id}  {state_span(sweep, it.why).text}  {', '.join(state_counts(sweep))}"
    show_lines([[Span(head)]], whole=True)
    for notice in [*([it.why] if it.why else []), *it.troubles]:
        show_lines(note_lines(notice.text, columns))
    if words := describe_target(sweep):
        print(words)
    if sweep.budget:
        print(sweep.budget)
    show_lines(hours_line(summary), whole=True)
    if apart := describe_versions(map(reader.sweeps.provenance, sorted(summary.ran_on))):
        show_lines([[Span(clean(apart), Style.YELLOW)]], whole=True)
    if best:
        print()
        show_ranking([sweep], best, None if it.front else scale_of(summary.objectives))
    if best and not it.front:
        show_lines(rest_line(it.standings, summary, len(best)), whole=True)
    show_lines(standing_lines(it.standings, len(best)), whole=True)
    if it.front:
        show_lines(hypervolume_line(it.front), whole=True)
    sys.stdout.flush()  # the importance below may take seconds
    for one in it.summaries:
        importance = one.importance
        show_lines(winner_lines(winner, sweep.id, importance), whole=True)
        show_lines(importance_lines(importance, columns, one.metric_name if it.front else ""))
        show_lines(effect_lines(one, columns, importance))
    show_lines(saved_lines(summary), whole=True)
    show_lines(failure_lines(summary), whole=True)


def hypervolume_line(front: Front) -> Iterator[Line]:
    """Yield the share of the space that the front dominates, and how it grew over the trials."""
    if found := front.hypervolumes():
        shares = [share for _, share in found]
        text = f"hypervolume {measure(shares[-1])} after {trials_of(found[-1][0])}  "
        where = "  (of the space between the best and the worst values)"
        drawn = curve(shares, Scale(low=0, high=max(shares)))
        yield [Span(text, Style.DIM), Span(drawn, Style.CYAN), Span(where, Style.DIM)]


def print_summary_data(session: Session, sweep: SweepView, output: Format, *, top: int) -> None:
    """Print the summary as JSON, YAML or CSV."""
    it = read_moment(session, sweep, top)
    sweep, summary, summaries, best = it.sweep, it.summary, it.summaries, it.best[:top]
    winner = judge_winner(session.reader, sweep, it.best) if best else None
    importance = {one.metric_name: asdict(one.importance) for one in summaries}
    effects = {one.metric_name: _effects_record(one) for one in summaries}
    more = {"front": _front_record(it.front)} if it.front else {}
    show_data(
        {
            "sweep": sweep_record(sweep, best[0].objective if best else None, it.why),
            "ranking": [trial_record(t, sweep) for t in best],
            "trained_s": summary.total_ms / 1000,
            "of_earlier_attempts_s": summary.before_ms / 1000,
            "needs_you": [notice.record() for notice in it.troubles],
            "winner": asdict(winner) if winner else None,
            "importance": importance if it.front else importance[summary.metric_name],
            "effects": effects if it.front else effects[summary.metric_name],
            "saved": asdict(summary.saved) if summary.saved else None,
            "failures": [
                {
                    "kind": f.kind,
                    "trials": f.count,
                    "example": f.example,
                    "message": f.message,
                    "common": list(f.common),
                }
                for f in summary.failures
            ],
        }
        | more,
        output,
    )


def _effects_record(summary: SweepSummary) -> list[dict[str, Any]]:
    counted = f"{noun_of(summary.sweep)}s"
    return [
        {
            "param": e.param,
            "levels": [
                {"value": x.label, counted: x.count, "median": x.median, "mean": x.mean}
                for x in e.levels
            ],
        }
        for e in summary.effects
    ]


def _front_record(front: Front) -> dict[str, Any]:
    return {
        "trials": len(front.trials),
        "dominated": front.dominated,
        "infeasible": front.infeasible,
        "unmeasured": front.unmeasured,
        "missing": list(front.missing),
        "hypervolumes": [{"trials": n, "share": share} for n, share in front.hypervolumes()],
    }
