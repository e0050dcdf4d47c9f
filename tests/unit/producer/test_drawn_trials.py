"""Which trials' curves a page draws."""

from __future__ import annotations

import random

from hpq.domain.sweep import Goal, Launch, Metric, SweepView
from hpq.domain.trial import TrialId, TrialState, TrialView
from hpq_producer.query.selection import drawn_trials


def test_of_many_trials_the_best_and_always_the_same_sample_are_drawn() -> None:
    metric = Metric(name="loss", goal=Goal.MINIMIZE)
    sweep = SweepView(id="s", name="s", digest="", launch=Launch(), metric=metric)
    values = random.Random(1).sample(range(700), 700)
    trials = [
        TrialView(
            id=TrialId(sweep="s", number=number),
            params={},
            state=TrialState.FINISHED,
            objective=float(value),
        )
        for number, value in enumerate(values, 1)
    ]
    drawn = drawn_trials(sweep, trials)
    assert len(drawn) == 320 and drawn == drawn_trials(sweep, trials)
    assert {float(value) for value in range(20)} <= {trial.objective for trial in drawn}
    assert drawn_trials(sweep, trials[:500]) == trials[:500]
