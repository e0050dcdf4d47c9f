"""What counts as a trial's value: by goal, by the file's words, and while it runs."""

from __future__ import annotations

import math

import pytest

from hpq.domain.status import Event
from hpq.domain.sweep import ObjectiveValue
from hpq.search.samplers import Impute, Search
from hpq_worker.suggest.trial_results import TrialResults
from tests.support.spaces import SPACE

BOTH = {"objective": "3.0", "best": "1.0"}


def told(what: str, n: int = 1, **fields: str) -> Event:
    return Event(id="1-0", what=what, trial=n, attempt=1, fields=fields)


def results(**more: object) -> TrialResults:
    return TrialResults(Search(space=SPACE, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keys", "what", "fields", "value"),
    [
        ({}, "finished", BOTH, 1.0),  # as W&B: the best that it ever reported
        ({"take": ObjectiveValue.LAST}, "finished", BOTH, 3.0),
        ({"maximize": True}, "finished", BOTH, -1.0),
        ({}, "pruned", BOTH, 1.0),
        ({}, "pruned", {}, math.inf),
        ({}, "failed", BOTH, math.inf),
        ({"maximize": True}, "failed", BOTH, math.inf),
        ({"impute": Impute.BEST}, "failed", BOTH, 1.0),
        ({"impute": Impute.LATEST}, "failed", BOTH, 3.0),
        ({"impute": Impute.LATEST, "maximize": True}, "failed", BOTH, -3.0),
        ({"impute": Impute.BEST}, "failed", {}, math.inf),
        ({}, "finished", {"objective": "nan"}, math.inf),
        ({}, "cancelled", BOTH, None),
        ({}, "reused", {"objective": "3.0", "from": "old-00000/7"}, 3.0),
    ],
)
def test_a_trials_value(keys: dict, what: str, fields: dict, value: float | None) -> None:
    assert results(**keys).apply(told(what, **fields)) == (1, value, ())


def test_who_waits_and_who_runs() -> None:
    books = results()
    books.waiting |= {1, 2}
    for event in (told("claimed"), told("claimed", 2), told("requeued"), told("finished", 2)):
        books.apply(event)
    assert (books.waiting, books.running) == ({1}, set())
    books.apply(told("retried", 2))
    assert books.waiting == {1, 2}
    books.apply(told("cancelled", 2))
    assert books.waiting == {1}


@pytest.mark.parametrize(
    ("how", "now", "value"),
    [
        (None, 3.0, None),
        (Impute.LATEST, 3.0, 3.0),
        (Impute.BEST, 3.0, 3.0),
        (Impute.BEST, None, None),
        (Impute.WORST, 3.0, math.inf),
    ],
)
def test_a_running_trials_value(how: Impute | None, now: float | None, value: float | None) -> None:
    assert results(impute_while_running=how).imputed(now) == value


SEVERAL = {"maximizes": (True, False), "constraints": 1}
SCORES = {"values": "0.9 7.0", "violations": "0.5"}
UNKNOWN = ((math.inf, math.inf), (math.inf,))


@pytest.mark.parametrize(
    ("what", "fields", "value", "violations"),
    [
        ("finished", SCORES, (-0.9, 7.0), (0.5,)),
        ("reused", SCORES, (-0.9, 7.0), (0.5,)),
        ("pruned", {"violations": "-1.0"}, (math.inf, math.inf), (-1.0,)),
        ("failed", SCORES, (math.inf, math.inf), (0.5,)),
        ("failed", {}, *UNKNOWN),
        ("finished", {"values": "0.9", "violations": "1.0 2.0"}, *UNKNOWN),
        ("finished", {"values": "nan 7.0"}, (math.inf, 7.0), (math.inf,)),
        ("cancelled", SCORES, None, (0.5,)),
    ],
)
def test_values_of_several_metrics_and_violations(
    what: str, fields: dict, value: tuple | None, violations: tuple
) -> None:
    """A trial without a value of each metric counts as the worst in all of them."""
    assert results(**SEVERAL).apply(told(what, **fields)) == (1, value, violations)
