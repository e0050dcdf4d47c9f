"""Figures: what they draw, how much of it, on which axes, and that no name acts in them."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("plotly")

from hpq.domain.sweep import Goal, Launch, Metric, SweepView
from hpq.domain.trial import Curve, Json, TrialId, TrialState, TrialView
from hpq_producer.reports.figures import FIGURES, FigureData, drawn_trials

HOSTILE = '<a href="x">$e^x$&lt;b&gt;</a>'
SPACE: dict[str, Json] = {
    "lr": {"distribution": "log_uniform_values", "min": 0.0001, "max": 1},
    "flat": {"min": 0.0001, "max": 1},
    "opt": {"values": ["adam", "sgd", "<b>x</b>"]},
    "same": {"value": 3},
    HOSTILE: {"values": [1, 2]},
}
DARKEST, DARKEST_HEX = "rgb(68, 1, 84)", "#440154"  # of Viridis
VARYING = ("lr", "flat", "opt", "same", HOSTILE)


def data_of(count: int, **fields: Any) -> FigureData:
    """Return finished trials whose objective is best near lr = 0.01; every fifth lacks `opt`."""
    rng, trials = random.Random(1), []
    for number in range(1, count + 1):
        lr = 10 ** rng.uniform(-4, 0)
        params: dict[str, Json] = {"lr": lr, "flat": rng.random(), "same": 3, HOSTILE: number % 2}
        if number % 5:
            params["opt"] = rng.choice(["adam", "sgd", "<b>x</b>"])
        objective = -((math.log10(lr) + 2) ** 2)
        base: dict[str, Any] = {
            "id": TrialId(sweep="s", number=number), "state": TrialState.FINISHED,
            "params": params, "objective": objective, "ended_ms": 10_000 - number,
        }  # fmt: skip
        trials.append(TrialView(**base))
    metric = Metric(name=HOSTILE, goal=fields.pop("goal", Goal.MAXIMIZE))
    sweep = SweepView(
        id="s", name="s", digest="", launch=Launch(), metric=metric, varying=VARYING,
        spec={"parameters": SPACE}, **fields,
    )  # fmt: skip
    curves = [curve_of(t.id.number, [0.1, math.nan, t.objective or 0.0]) for t in trials]
    return FigureData(sweep=sweep, trials=trials, curves=curves)


def curve_of(trial: int, values: list[float]) -> Curve:
    places = list(range(1, len(values) + 1))
    return Curve(
        trial=trial, metric=HOSTILE, steps=places, values=values, times_ms=places, attempts=places
    )


@pytest.mark.parametrize("kind", FIGURES)
def test_no_name_is_markup_and_every_figure_is_strict_json(kind: str) -> None:
    raw = FIGURES[kind](data_of(12)).to_json()
    data = json.loads(raw, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    text = json.dumps({"data": data["data"], "layout": data["layout"]}, ensure_ascii=False)
    for active in ("<a", "$e", "&lt;", "<b>"):
        assert active not in text, active
    assert "‹a href" in text or kind == "importance"


@pytest.mark.parametrize("kind", FIGURES)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_trials_are_no_error(kind: str, count: int) -> None:
    assert FIGURES[kind](data_of(count)).layout.title.text


def test_slices_share_one_scale_and_the_file_decides_which_axis_is_logarithmic() -> None:
    figure = FIGURES["slices"](data_of(30))
    titles = [one.text for one in figure.layout.annotations]
    assert titles[0] == "lr" and set(titles[1:]) >= {"flat", "opt"} and "same" not in titles
    axes = {title: figure.layout["xaxis" + (str(i) if i else "").replace("0", "")]
            for i, title in zip(["", 2, 3, 4, 5], titles, strict=False)}  # fmt: skip
    assert (axes["lr"].type, axes["flat"].type) == ("log", None)
    by_title = dict(zip(titles, figure.data, strict=True))
    assert len(by_title["opt"].x) == 24 and len(by_title["lr"].x) == 30


def test_parallel_coordinates_have_logs_words_and_none() -> None:
    figure = FIGURES["parallel"](data_of(30))
    axes = {axis.label: axis for axis in figure.data[0].dimensions}
    assert list(axes)[-1].startswith("‹a href") and "same" not in axes
    assert axes["lr"].ticktext[0] == "1e-4" and max(axes["lr"].values) <= 0
    assert set(axes["opt"].ticktext) == {"adam", "none", "sgd", "‹b›x‹/b›"}


def test_curves_have_gaps_ranks_and_dashes() -> None:
    data = data_of(10)
    pruned = replace(data.trials[0], state=TrialState.PRUNED)
    lost = replace(data.trials[1], state=TrialState.FAILED, objective=None)
    figure = FIGURES["curves"](replace(data, trials=[pruned, lost, *data.trials[2:]]))
    lines = {line.name: line for line in figure.data}
    assert figure.data[0].name == "#2" and lines["#2"].line.color == "#999", "no rank: below all"
    assert lines["#1"].line.dash == "dash" and lines["#3"].line.dash is None
    assert lines["#3"].y[1] is None and "10 of 10 trials" in figure.layout.title.text
    best = max(data.trials[2:], key=lambda t: t.objective or -9.0)
    assert figure.data[-1].name == f"#{best.id.number}"
    assert figure.data[-1].line.color == DARKEST, "as on the page"


def test_sets_with_replicates_are_ranked_by_their_mean_as_best_does() -> None:
    data = data_of(4, replicates=2)
    trials = [
        replace(trial, objective=value)
        for trial, value in zip(data.trials, [9.0, 1.0, 6.0, 7.0], strict=True)
    ]
    figure = FIGURES["curves"](replace(data, trials=trials))
    assert [line.name for line in figure.data] == ["#2", "#1", "#4", "#3"], "6.5 beats a lucky 9"
    ranks = FIGURES["parallel"](replace(data, trials=trials)).data[0]
    assert list(ranks.dimensions[-1]["values"]) == [6.0, 7.0, 9.0, 1.0]
    assert ranks.line.colorscale[-1][1] == DARKEST_HEX and max(ranks.line.color) == ranks.line.cmax


@pytest.mark.parametrize("goal", list(Goal))
def test_history_is_in_the_order_of_ends_and_its_best_never_gets_worse(goal: Goal) -> None:
    marks, line = FIGURES["history"](data_of(20, goal=goal)).data
    assert marks.text[0] == "#20" and marks.text[-1] == "#1"
    best = sorted(line.y, reverse=goal is Goal.MINIMIZE)
    assert list(line.y) == best and best[-1] == (max if goal is Goal.MAXIMIZE else min)(marks.y)


def test_importance_has_intervals_or_says_why_there_is_none() -> None:
    pytest.importorskip("sklearn")
    (bars,) = FIGURES["importance"](data_of(60)).data
    assert bars.y[-1] == "lr" and bars.x[-1] > 0.8
    assert all(v >= 0 for v in (*bars.error_x.array, *bars.error_x.arrayminus))
    few = FIGURES["importance"](data_of(4))
    assert "8 different trials" in few.layout.title.text and not few.data[0].x


def test_of_many_trials_the_best_twenty_and_a_sample_are_drawn() -> None:
    data = data_of(700)
    drawn = drawn_trials(data.sweep, data.trials)
    assert len(drawn) == 320 and drawn == drawn_trials(data.sweep, data.trials)
    best = sorted(data.trials, key=lambda t: -(t.objective or 0))[:20]
    assert {t.id.number for t in best} <= {t.id.number for t in drawn}
    figure = FIGURES["parallel"](data)
    assert "320 of 700" in figure.layout.title.text
