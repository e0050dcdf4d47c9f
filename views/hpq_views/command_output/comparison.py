"""Print sweeps side by side, and the results of one sweep as a column of such a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from hpq.access.session import Session
from hpq.domain.sweep import SweepView
from hpq.domain.trial import TrialView
from hpq_views.analysis.importance import Importance
from hpq_views.analysis.rank_results import merge_ranked
from hpq_views.analysis.summary import SweepSummary
from hpq_views.analysis.trial_row import TrialRow
from hpq_views.command_output.results_table import codes_apart, show_ranking
from hpq_views.command_output.summary_page import read_moment
from hpq_views.text.console import show_lines, show_table, stdout_info
from hpq_views.text.style import Span, Style
from hpq_views.text.tables import Column
from hpq_views.text.text import clean, duration, failure_words, measure
from hpq_views.why.verdict import note_lines, state_counts, state_span


def print_comparison(session: Session, sweeps: Sequence[SweepView], *, top: int) -> None:
    """Print two or more sweeps side by side, and a ranking of their trials.

    Side by side are results, time, what mattered, and the winner of each.
    """
    codes = codes_apart(sweeps)
    moments = [read_moment(session, sweep, top) for sweep in sweeps]
    rows: dict[str, list[str]] = {}
    varying = dict.fromkeys(name for sweep in sweeps for name in sweep.varying)
    for it in moments:
        sweep, best = it.sweep, it.best
        state = state_span(it.sweep, it.why).text
        cells = comparison_cells(it.summary, best, state, it.summary.importance) | {
            "code": codes.get(sweep.id, "")
        }
        cells |= {
            f"best {clean(n)}": TrialRow(trial=best[0], sweep=sweep).param(n) if best else ""
            for n in varying
        }
        for label, text in cells.items():
            rows.setdefault(label, []).append(text)
    columns = [Column(title=""), *(Column(title=s.id, least=12) for s in sweeps)]
    cells_of = ([Span(k, Style.DIM), *map(Span, v)] for k, v in rows.items() if any(v))
    show_table(columns, cells_of, explain=[sweep.id for sweep in sweeps])
    for it in moments:
        for notice in it.troubles:
            show_lines(note_lines(f"{it.sweep.id}: {notice.text}", stdout_info().columns))
    if merged := merge_ranked(sweeps, [it.best for it in moments]):
        print()
        show_ranking(sweeps, merged[:top])


def comparison_cells(
    summary: SweepSummary, best: Sequence[TrialView], state: str, found: Importance
) -> dict[str, str]:
    """Return what a comparison tells of a sweep, by label; `found` takes seconds to compute."""
    matters = found.shares[0] if found.is_clear else None
    words = f"{clean(matters.param)} {matters.share:.0%}" if matters else "unclear"
    return {**result_cells(summary, best, state), "main parameter": words}


def result_cells(summary: SweepSummary, best: Sequence[TrialView], state: str) -> dict[str, str]:
    """Return the results of a sweep, by label."""
    sweep, results = summary.of_moment(), summary.typical
    failed = Counter[str]()
    for group in summary.failures:
        failed[failure_words(group.kind)] += group.count
    return {
        "metric": clean(sweep.metric.name) if sweep.metric else "",
        "best": TrialRow(trial=best[0], sweep=sweep).objective if best else "",
        "median": f"{measure(median(results))} of {summary.typical_of}" if results else "",
        "state": state,
        "trials": ", ".join(state_counts(sweep)),
        "trained": duration(summary.total_ms) if summary.total_ms else "",
        "budget": sweep.budget.usage if sweep.budget else "",
        "failed": ", ".join(f"{kind}: {count}" for kind, count in failed.most_common()),
    }
