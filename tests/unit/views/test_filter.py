"""`--where`: what holds, what is unknown, and what is refused; nothing of it is ever run."""

from __future__ import annotations

from typing import Any

import pytest

from hpq.errors import UserError
from hpq_views.analysis.filter import Filter
from tests.support.ids import raises

FACTS: dict[str, Any] = {
    "lr": 0.3, "opt.name": "adam", "val/loss": 2.5, "batch-size": 64, "bn": True, "off": False,
    "empty": None, "lambda": 1, "state": "queued", "queued": 3, "running": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "lr > 0.1",
        "0.1 < lr <= 0.3",
        "lr > 0.1 and opt.name == adam",
        "opt.name == 'adam'",
        "opt.name in [adam, sgd]",
        "batch-size not in (8, 16)",
        "val/loss > 2 or lr > 99",
        "not lr < 0.1",
        "bn",
        "bn == true and not off",
        "empty == null",
        "lr != null",
        "params['lambda'] == 1",
        "lr > -1",
        "lr > lacking or bn",
        "state == queued",
        "state in [queued, running]",  # counts of a sweep, too, have names of states
        "state != running and running > 1",
    ],
)
def test_it_holds(text: str) -> None:
    assert Filter.of(text).matches(FACTS.get)


@pytest.mark.parametrize(
    "text",
    [
        "lr > 0.3",
        "lacking > 1",
        "not (lacking > 1)",  # unknown, and so is its negation
        "lacking != 1",
        "opt.name > 3",
        "lr > lacking",
        "lr < 99 and lacking < 99",
        "bn and off",
    ],
)
def test_it_does_not_hold(text: str) -> None:
    assert not Filter.of(text).matches(FACTS.get)


@pytest.mark.parametrize(
    "text",
    [
        "", "lr >", "lr > 1; import os", "__import__('os').system('x')", "lr.__class__()",
        "lr + 1 > 2", "lr := 3", "[x for x in lr]", "lambda: 1", "lr if bn else 1", "f'{lr}' == 1",
        "lr in 3", "a in b in c", "1 < 2", "lr ** 9", "lr is None", "x" * 3000,
        "(" * 900 + "lr" + ")" * 900, "not " * 480 + "lr", "a" + ".a" * 990,
        "a" + "-a" * 990, "lr == " + "-" * 900 + "1",
    ],
)  # fmt: skip
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UserError) as caught:
        Filter.of(text)
    assert "\n" not in str(caught.value)


def test_a_name_that_nothing_has_is_told_and_a_word_on_the_right_is_none() -> None:
    where = Filter.of("lr > 0 and opt.nam == adam")
    assert not where.matches(FACTS.get)
    with raises("filter-name-unknown", "'opt.nam'", "lr, opt.name"):
        where.check_names(["lr", "opt.name"])
