"""The words about a budget."""

from __future__ import annotations

from hpq.domain.budget import Budget


def test_hours_are_written_without_an_exponent() -> None:
    budget = Budget(budget_ms=200_000 * 3_600_000, spent_ms=123_456 * 3_600_000)
    assert budget.usage == "123456 of 200000 GPU-hours used, 123456 wasted"
    assert budget.limits == "200000 GPU-hours"
    assert budget.change("budget.gpu_hours") == "budget.gpu_hours=300000"
    small = Budget(budget_ms=round(40.25 * 3_600_000), spent_ms=18_000)
    assert small.usage == "0.005 of 40.25 GPU-hours used, 0.005 wasted"
