"""`hpq summary` as a page: ranking with bars, what the parameters did, what failed.

Also what `hpq run` ends with.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hpq.sweep import Sweep
from hpq.view import View
from producer.look.bars import scale_of
from producer.look.early_lines import saved_lines, target_words
from producer.look.out import show_json, show_lines, stdout_look
from producer.look.ranking import show_ranking
from producer.look.records import sweep_record, trial_record
from producer.look.style import Span
from producer.look.summary import Tally
from producer.look.summary_lines import effect_lines, failure_lines, hours_line, rest_line
from producer.look.verdict import count_words


def print_summary(view: View, sweep: Sweep, *, top: int = 20) -> None:
    """Print the page; reads every trial once, keeps few of them."""
    tally = Tally(sweep).add(view.all_trials(sweep.id))
    best = view.best(sweep, top)
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


def print_summary_json(view: View, sweep: Sweep, *, top: int = 20) -> None:
    """Print the same as data."""
    tally = Tally(sweep).add(view.all_trials(sweep.id))
    best = view.best(sweep, top)
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
