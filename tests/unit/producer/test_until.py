"""`until` of a budget: the next such time of day here, or a date with a zone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from hpq.domain.budget import clock
from hpq_producer.sweepfile.key_types import BudgetKeys


@pytest.fixture(params=["Europe/Berlin", "America/Los_Angeles", "UTC"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def until(text: str) -> datetime:
    budget = BudgetKeys.model_validate({"until": text}).budget()
    assert budget.limits == f"until {clock(budget.until_ms)}"
    return datetime.fromtimestamp(budget.until_ms / 1000)


def test_a_time_of_day_is_the_next_one_of_this_machine(zone: str) -> None:
    now = datetime.now()
    for hours in (-2, 2, 23):
        wanted = (now + timedelta(hours=hours)).strftime("%H:%M")
        found = until(wanted)
        assert found.strftime("%H:%M:%S") == f"{wanted}:00"
        assert timedelta(0) < found - now <= timedelta(hours=24)


def test_a_date_has_its_own_zone(zone: str) -> None:
    budget = BudgetKeys.model_validate({"until": "2090-01-31T08:00+01:00"}).budget()
    assert budget.until_ms == 3789529200000
    assert BudgetKeys.model_validate({"until": "2090-01-31T07:00Z"}).budget() == budget


def test_a_time_with_a_plus_is_that_long_from_now() -> None:
    before, wait = time.time(), timedelta(minutes=90)
    found = until("+90m") - wait
    assert before - 1 <= found.timestamp() <= time.time()
