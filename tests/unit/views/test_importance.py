"""Importance against functions whose answer is known, and when it must not answer."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hpq.domain.stored_state import StoredState
from hpq.domain.sweep import Counts, Goal, Launch, Metric, SweepView
from hpq.domain.trial import Json
from hpq_views.analysis import importance
from hpq_views.analysis.importance import UNCLEAR, Importance, Share, importance_of
from tests.support.libraries import needs

pytestmark = needs("sklearn")

INERT = tuple(f"inert_{n}" for n in range(5))


def _sweep(*varying: str, sampler: str = "") -> SweepView:
    return SweepView(
        id="s", name="s", digest="", launch=Launch(trainer="digits"), sampler=sampler,
        metric=Metric(name="acc", goal=Goal.MAXIMIZE), varying=varying,
    )  # fmt: skip


Draw = Callable[[random.Random], dict[str, Json]]


def _lr_dominates(rng: random.Random) -> dict[str, Json]:
    some: dict[str, Json] = {name: rng.random() for name in INERT}
    return {"lr": 10 ** rng.uniform(-4, -1), "width": rng.choice([8, 16, 32]), **some}


def _accuracy(params: dict[str, Json]) -> float:
    lr, width = params["lr"], params["width"]
    assert isinstance(lr, float) and isinstance(width, int)
    return 0.9 - 0.1 * (math.log10(lr) + 2.5) ** 2 + 0.01 * math.log2(width)


@pytest.mark.parametrize(("sets", "least"), [(32, 9), (64, 10)])
def test_the_dominant_parameter_is_first_and_inert_ones_get_little(sets: int, least: int) -> None:
    first, inert = 0, []
    for seed in range(10):
        rng = random.Random(seed)
        rows = [_lr_dominates(rng) for _ in range(sets)]
        values = [_accuracy(row) + rng.gauss(0, 0.02) for row in rows]
        found = importance_of(_sweep("lr", "width", *INERT), rows, values)
        assert found is not None
        if found.shares:
            first += found.shares[0].param == "lr"
            inert.append(sum(one.share for one in found.shares if one.param in INERT))
    assert first >= least and sum(inert) / len(inert) < 0.15


def test_x_squared_plus_a_tenth_of_y_is_about_x_even_if_the_sampler_looked_near_its_best() -> None:
    first = 0
    for seed in range(10):
        rng = random.Random(seed)
        rows: list[dict[str, Json]] = [
            {"x": rng.gauss(0, 3) if n > 20 else rng.uniform(-10, 10), "y": rng.uniform(-10, 10)}
            for n in range(50)
        ]
        values = [float(r["x"]) ** 2 + 0.1 * float(r["y"]) for r in rows]  # type: ignore[arg-type]
        found = importance_of(_sweep("x", "y", sampler="tpe"), rows, values)
        assert "tried mostly" in found.looked
        first += found.shares[0].param == "x"
    assert first == 10


def test_few_sets_and_noise_cannot_tell() -> None:
    rng = random.Random(0)
    rows: list[dict[str, Json]] = [{"x": rng.random(), "y": rng.random()} for _ in range(7)]
    few = importance_of(_sweep("x", "y"), rows, [rng.random() for _ in rows])
    assert few.shares == () and "only 7 " in few.why_none and ":" not in few.why_none
    rows = [{"x": rng.random(), "y": rng.random()} for _ in range(40)]
    noise = importance_of(_sweep("x", "y"), rows, [rng.random() for _ in rows])
    assert noise.shares == () and noise.verdict == noise.why_none
    assert noise.answer.startswith(UNCLEAR)
    assert noise.r2 is not None and noise.r2 < 0.3


def test_intervals_hold_the_share_and_shares_add_up() -> None:
    rng = random.Random(3)
    rows = [_lr_dominates(rng) for _ in range(64)]
    found = importance_of(_sweep("lr", "width", *INERT), rows, [_accuracy(row) for row in rows])
    assert sum(one.share for one in found.shares) == pytest.approx(1)
    assert all(0 <= one.low <= one.share + 0.02 and one.high <= 1 for one in found.shares)
    assert found.shares[0].low > 0.5


def test_a_damaged_file_of_a_kept_answer_is_replaced(tmp_path: Path) -> None:
    rng = random.Random(3)
    rows = [_lr_dominates(rng) for _ in range(20)]
    values = [_accuracy(row) for row in rows]
    sweep = replace(_sweep("lr", "width"), stored=StoredState.CANCELLED)
    found = importance_of(sweep, rows, values, tmp_path)
    (file,) = tmp_path.glob("importance/*")
    whole = file.read_text()
    for text in ("", "[]", "{}", whole.replace('"share"', '"part"'), whole[:-9]):
        file.write_text(text)
        assert importance_of(sweep, rows, values, tmp_path) == found
        assert file.read_text() == whole
    assert importance_of(sweep, rows, values, tmp_path / "file" / "in") == found


def test_an_answer_for_a_running_sweep_serves_until_a_quarter_more_results_or_ten_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(3)
    rows = [_lr_dominates(rng) for _ in range(30)]
    values = [_accuracy(row) for row in rows]
    sweep = replace(_sweep("lr", "width"), counts=Counts(running=1))
    first = importance_of(sweep, rows[:20], values[:20], tmp_path)
    assert first.shares

    def lagging(count: int, of: SweepView = sweep, *, may_lag: bool = True) -> Importance:
        return importance_of(of, rows[:count], values[:count], tmp_path, may_lag=may_lag)

    def no_library(name: str) -> None:
        raise ImportError(name)

    with monkeypatch.context() as patch:
        patch.setattr(importance, "import_module", no_library)
        assert lagging(20) == first
        assert lagging(25) == replace(first, newer=5)
        assert lagging(25).verdict.endswith("20 trials; 5 newer not counted")
        over = replace(sweep, counts=Counts(finished=25))
        others = (
            lagging(26),
            lagging(25, may_lag=False),
            lagging(25, over),
            lagging(25, replace(sweep, varying=("lr", "width", "x"))),
        )
        assert not any(one.shares for one in others)
        (file,) = tmp_path.glob("importance/*")
        os.utime(file, (0, time.time() - 601))
        assert not lagging(25).shares
    assert lagging(25).newer == 0


def test_an_absent_value_is_a_level_and_constants_are_left_out() -> None:
    rows: list[dict[str, Json]] = [{"opt": "adam", "epochs": 9, "width": n} for n in range(20)]
    rows += [{"opt": "sgd", "epochs": 9, "width": n, "momentum": 0.5 + n / 100} for n in range(20)]
    values = [0.9 if "momentum" in row else 0.5 for row in rows]
    found = importance_of(_sweep("opt", "momentum", "epochs", "width"), rows, values)
    assert [one.param for one in found.shares][2:] == ["width"]
    for names in (["epochs"], ["opt"], ["epochs", "opt"]):  # one parameter would explain all
        alone = importance_of(_sweep(*names), rows, values)
        assert alone.shares == () and "2 parameters" in alone.answer


@pytest.mark.parametrize("value", [True, "word", [1, 2], None])
def test_any_kind_of_value_and_what_is_not_finite_is_no_fault(value: Json) -> None:
    rows: list[dict[str, Json]] = [{"x": value if n % 2 else n, "y": n % 5} for n in range(30)]
    values = [math.nan if n == 3 else math.inf if n == 5 else float(n % 2) for n in range(30)]
    found = importance_of(_sweep("x", "y"), rows, values)
    assert found.sets <= 28


def test_replicates_are_one_set() -> None:
    rows: list[dict[str, Json]] = [{"x": n // 5, "y": n // 10} for n in range(35)]
    found = importance_of(_sweep("x", "y"), rows, [float(n // 5) for n in range(35)])
    assert found.sets == 7 and found.shares == ()


def test_an_answer_names_one_parameter_or_says_once_that_there_are_too_few_trials() -> None:
    def answer(*shares: tuple[str, float, float]) -> str:
        some = [Share(param=n, share=(a + b) / 2, low=a, high=b) for n, a, b in shares]
        return Importance(sets=9, shares=tuple(some)).answer

    assert answer(("lr", 0.5, 0.8), ("width", 0.1, 0.3)) == (
        "lr: 65% (50–80%) of the explained variance"
    )
    rivals = answer(("lr", 0.3, 0.8), ("width", 0.1, 0.5))
    assert "lr or width" in rivals and "%" not in rivals
    nothing = answer(("lr", 0.0, 0.86), ("width", 0.0, 0.8))
    assert "lr" not in nothing and "%" not in nothing
    assert all(one.startswith(UNCLEAR) for one in (rivals, nothing))


def test_a_parameter_of_no_importance_is_negligible_also_if_few_trials_leave_it_unsure() -> None:
    some = {"lr": (0.98, 0.77, 1.0), "width": (0.004, 0.0, 0.23), "batch": (0.03, 0.0, 0.2)}
    shares = [Share(param=n, share=s, low=low, high=high) for n, (s, low, high) in some.items()]
    assert Importance(sets=10, shares=tuple(shares)).negligible == {"width"}


@pytest.mark.parametrize("goal", list(Goal))
def test_a_loss_over_decades_is_explained_by_what_orders_it(goal: Goal) -> None:
    """From 0.09 to beyond 100: in squares of such values, a few bad trials are all the variance."""
    clear = 0
    for seed in range(5):
        rng = random.Random(seed)
        rows = [_lr_dominates(rng) for _ in range(40)]
        losses = [
            0.09 * 10 ** (0.5 * abs(math.log10(float(str(row["lr"]))) + 3) ** 1.5)
            + 0.02 * rng.random()
            + (100 * rng.random() if float(str(row["lr"])) > 0.05 and rng.random() < 0.5 else 0)
            for row in rows
        ]
        sign = 1 if goal is Goal.MINIMIZE else -1
        sweep = replace(_sweep("lr", "width", *INERT), metric=Metric(name="loss", goal=goal))
        found = importance_of(sweep, rows, [sign * loss for loss in losses])
        clear += found.is_clear and found.shares[0].param == "lr"
    assert clear == 5


def test_replicates_count_as_settings() -> None:
    rng = random.Random(0)
    rows = [{"lr": rng.random(), "width": rng.random()} for _ in range(32)]
    values = [10.0 * float(str(row["lr"])) for row in rows]
    for replicates, noun in ((1, "trials"), (2, "settings")):
        sweep = replace(_sweep("lr", "width"), replicates=replicates)
        every = ([*rows] * replicates, values * replicates)
        assert f" on 32 {noun}" in importance_of(sweep, *every).verdict
        few = ([*rows[:3]] * replicates, values[:3] * replicates)
        assert f"3 different {noun} have" in importance_of(sweep, *few).verdict
    again = importance_of(_sweep("lr", "width"), [*rows, *rows[:5]], [*values, *values[:5]])
    assert " on 32 different ones of 37 trials" in again.verdict
