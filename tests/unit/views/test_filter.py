"""`--where`: what holds, what is unknown, and what is refused; nothing of it is ever run."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hpq.errors import UserError
from hpq_views.analysis.filter import Filter
from tests.support.ids import raises

FACTS: dict[str, Any] = {
    "lr": 0.3, "opt.name": "adam", "val/loss": 2.5, "batch-size": 64, "bn": True, "off": False,
    "empty": None, "lambda": 1, "state": "queued", "queued": 3, "running": 2,
    "failed": math.nan, "seed": 2**60, "model": "resnet-50", "encoder": "vit", "decoder": "vit",
    "adam": {"beta": 0.9}, "loss": "mse", "mse": 0.4, "top 5": 0.9, "tags": ["base", "x y"],
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
        "lr * 2 + 1 > 1.5 and min(queued, running) == 2",
        "queued - running == 1 and queued/running == 1.5",  # there is no such name
        "'batch-size' == 64 and 'top 5' > 0.8 and 'val/loss' > 2 * lr",
        "seed == 1152921504606846976",
        "model == 'resnet-50' and model in ['resnet-50', vit]",
        "encoder == decoder and encoder != 'decoder'",
        "loss == mse and loss == 'mse' and mse < 0.5",  # a metric with the name of a value
        "base in tags and 'x y' in tags and y not in tags",
        "failed == null and failed == nan and lr != nan and -inf < lr < inf",
        "lr != auto and lr != 'auto'",  # of values that are numbers or text
        "empty in [null, 3]",
        "not lr / off > 1 or bn",
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
        "failed < 1",
        "not failed < 1",
        "lr / queued-queued > 0",
        "not lr / (queued - queued) > 0",  # divides by zero
        "host == 'm1'",
        "host != name",
        "loss > 0",
        "lacking not in [1, 2]",
    ],
)
def test_it_does_not_hold(text: str) -> None:
    assert not Filter.of(text).matches(FACTS.get)


@pytest.mark.parametrize(
    "text",
    [
        "", "lr >", "lr > 1; import os", "__import__('os').system('x')", "lr.__class__()",
        "lr + 1", "lr := 3", "[x for x in lr]", "lambda: 1", "lr if bn else 1", "f'{lr}' == 1",
        "lr in 3", "a in b in c", "1 < 2", "lr == [1]", "true", "lr ** 9", "lr is None", "x" * 3000,
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
    with raises("filter-name-unknown", "'opt.nam'", "'opt.name'"):
        where.check_names(["lr", "opt.name"])


def test_a_name_that_needs_quotes_in_a_computation_is_shown_with_them() -> None:
    where = Filter.of("batch-size * 2 > 3")
    assert not where.matches(FACTS.get)
    with raises("filter-name-unknown", "'batch'", "'batch-size' * 2"):
        where.check_names(["lr", "batch-size"])


@pytest.mark.parametrize("text", ["val/los > 2", "lr + 'val/los' > 2", "'val/los' > 2"])
def test_an_unknown_name_is_told_as_it_was_written(text: str) -> None:
    where = Filter.of(text)
    assert not where.matches(FACTS.get)
    with raises("filter-name-unknown", "'val/los'"):
        where.check_names(["lr", "val/loss"])


def test_names_that_are_computed_with_are_known() -> None:
    where = Filter.of("queued-running > 0 and queued/running > 1 and opt.name == ada-m")
    assert not where.matches(FACTS.get)
    where.check_names()
