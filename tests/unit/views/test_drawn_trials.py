"""Which trials' curves a page draws."""

from __future__ import annotations

import random

from hpq.domain.sweep import Goal, Metric
from hpq_views.analysis.rank_results import standings_of
from hpq_views.analysis.selection import drawn_trials
from tests.support.views import sweep_view, trial_view


def test_of_many_trials_the_best_and_always_the_same_sample_are_drawn() -> None:
    sweep = sweep_view(metric=Metric(name="loss", goal=Goal.MINIMIZE))
    values = random.Random(1).sample(range(700), 700)
    trials = [trial_view(number, objective=float(value)) for number, value in enumerate(values, 1)]
    drawn = drawn_trials(standings_of(sweep, trials), trials)
    assert len(drawn) == 320 and drawn == drawn_trials(standings_of(sweep, trials), trials)
    assert {float(value) for value in range(20)} <= {trial.objective for trial in drawn}
    assert drawn_trials(standings_of(sweep, trials), trials[:500]) == trials[:500]
