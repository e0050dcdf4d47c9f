"""What the page gets: thinned curves in 16 bits, columns, axes. Without a browser."""

from __future__ import annotations

import base64
import json
import math
import random
from array import array
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="jinja2 is not installed")
from hpq_views.analysis.importance import Importance, Share
from hpq_views.page.curves import POINTS, pack_curves, thinned
from hpq_views.page.render import comparison_row
from hpq_views.page.sweep_data import encode_moves, encode_standing, encode_sweep
from hpq_views.text.charts import axis_of, is_wide
from tests.support.made_sweeps import (
    RANGES,
    SETS_OF_ARTICLE,
    drawn_sets,
    made,
    made_front,
    of_trials,
)


def _unpacked(packed: dict[str, Any]) -> list[float]:
    places = array("H", base64.b64decode(packed["y"]))
    wound = [
        math.nan
        if place == 65_535
        else packed["low"] + place / 65_534 * (packed["high"] - packed["low"])
        for place in places
    ]
    unit = packed["unit"]
    return [unit * math.sinh(value) for value in wound] if unit else wound


def test_a_thinned_curve_keeps_its_ends_and_the_level_of_its_noise() -> None:
    noise = random.Random(1)
    curve = [(float(x), 2.0 + 0.5 * noise.gauss(0, 1)) for x in range(1000)]
    thin = thinned(curve, POINTS)
    assert len(thin) == POINTS and thin[0] == curve[0] and thin[-1] == curve[-1]
    assert list(thin) == sorted(thin)
    assert all(abs(value - 2) < 0.5 for _, value in thin[1:-1]), "no point is an extreme"
    steps = sum(20 * step for step, _ in thin[1:-1]) / 998
    assert steps == pytest.approx(499.5, rel=0.05)


def test_a_mean_leaves_out_nan_and_a_bucket_of_nan_is_a_gap() -> None:
    curve = [(float(x), math.nan if x % 2 or 100 < x < 150 else 1.0) for x in range(1000)]
    values = [value for _, value in thinned(curve, POINTS)[1:-1]]
    assert 1 <= sum(map(math.isnan, values)) <= 2
    assert {value for value in values if not math.isnan(value)} == {1.0}


def test_a_short_curve_is_kept_whole() -> None:
    assert thinned([(1.0, 2.0)], POINTS) == [(1.0, 2.0)]


def test_packed_curves_unpack_to_their_values_and_nan_is_its_own_number() -> None:
    packed = pack_curves({3: [(0.0, 0.25), (10.0, math.nan), (20.0, 0.75)], 4: []})
    values = array("H", base64.b64decode(packed["y"]))
    assert packed["n"] == [3] and packed["len"] == [3] and packed["last"] == 20
    assert list(values) == [0, 65_535, 65_534]
    assert list(array("H", base64.b64decode(packed["x"]))) == [0, 32_767, 65_534]


@pytest.mark.parametrize(
    "values",
    [
        [0.91 + k / 10_000 for k in range(200)],
        [10 ** (-k / 20) for k in range(120)],
        [*(1 + k / 100 for k in range(200)), 1e9],
        [*(k / 100 - 1 for k in range(200)), -1e9],
        [0.5] * 9,
    ],
    ids=["near each other", "decades", "an outlier", "a negative outlier", "constant"],
)
def test_each_value_keeps_four_digits_beside_any_other(values: list[float]) -> None:
    packed = pack_curves({1: list(enumerate(values))}, points=1000)
    least = sorted(map(abs, values))[len(values) // 10]
    for value, found in zip(values, _unpacked(packed), strict=True):
        assert found == pytest.approx(value, rel=5e-4, abs=5e-4 * least)


def test_a_page_says_how_many_values_a_point_is_the_mean_of() -> None:
    curve = [(float(x), 1.0) for x in range(1000)]
    assert pack_curves({1: curve})["per"] == 21 and pack_curves({1: curve[:50]})["per"] == 1
    assert pack_curves({1: thinned(curve, POINTS)}, longest=1000)["per"] == 21


def test_one_outlier_does_not_flatten_the_others() -> None:
    scale = axis_of([*(1 + x / 1000 for x in range(1000)), 1e30, math.inf, math.nan])
    assert scale.low == 1 and scale.high < 6 and scale.is_cut
    best = axis_of([*(1 + x / 1000 for x in range(1000)), 1e30], best=1e30)
    assert best.high == 1e30, "the best value stays"


def test_losses_over_decades_get_a_logarithmic_scale_and_zero_has_no_place_on_it() -> None:
    losses = [10 ** (-x / 100) for x in range(400)]
    scale = axis_of(losses, is_wide(losses))
    assert scale.is_log and scale.low == pytest.approx(-3.99) and scale.high == 0
    for value in (0.0, -1.0):
        assert not is_wide([*losses, value])


@pytest.mark.parametrize(("result", "is_log"), [(1e-3, True), (0.0, False)])
def test_every_panel_of_the_metric_has_the_same_kind_of_axis(result: float, is_log: bool) -> None:
    data = made(SETS_OF_ARTICLE, metric="loss")
    trials = [replace(t, objective=result if t.id.number == 3 else 0.5) for t in data.trials]
    curves = {t.id.number: [(float(x), 10 ** -(x % 4)) for x in range(24)] for t in trials}
    shown = encode_sweep(of_trials(trials, curves, sid="x-00000", metric="loss"))
    assert shown["curves"]["log"] is is_log
    low, high = shown["scale"]
    assert (low < 0) is is_log and high <= 0.5


def test_axes_follow_the_sweep_file_and_the_most_important_parameter_is_first() -> None:
    data = encode_sweep(made(drawn_sets(64), spec=RANGES, points=3))
    kinds = {axis["name"]: axis["kind"] for axis in data["axes"]}
    assert kinds == {
        "lr": "log", "weight_decay": "log", "batch_size": "linear", "optimizer": "category",
        "dropout": "linear", "layers": "linear", "momentum": "linear",
    }  # fmt: skip
    assert data["axes"][0]["name"] == "lr"
    missing = dict(zip((a["name"] for a in data["axes"]), data["trials"]["p"], strict=True))
    assert None in missing["momentum"] and None not in missing["lr"]


def test_the_data_has_a_value_a_trial_in_each_column_and_no_nan() -> None:
    data = encode_sweep(made(SETS_OF_ARTICLE))
    columns = {**data["trials"]}
    assert all(len(column) == 16 for column in [*columns.pop("p"), *columns.values()])
    json.dumps(data, allow_nan=False)


def test_every_metric_is_offered_as_it_was_logged_after_the_sweeps() -> None:
    data = made(SETS_OF_ARTICLE, metric="loss")
    names = [f"m{n:03}" for n in range(300)]
    names.reverse()
    values = dict.fromkeys([*names[:9], "loss", *names[9:]], 0.5)
    data = replace(data, trials=[replace(t, metrics=values) for t in data.trials])
    assert data.metrics == ["loss", *names]


def test_only_several_metrics_and_constraints_add_to_the_data() -> None:
    one, two = encode_sweep(made(SETS_OF_ARTICLE)), encode_sweep(made_front(12))
    assert two.keys() - one.keys() == {"objectives", "front", "rest", "volume"}
    assert two["trials"].keys() - one["trials"].keys() == {"all", "by"}
    limited = encode_sweep(made_front(12, constraints=["peak_gb <= 8"]))
    assert limited["trials"].keys() - two["trials"].keys() == {"ok"}
    json.dumps(limited, allow_nan=False)


def test_the_order_of_settings_is_in_the_data_and_replicates_share_a_place() -> None:
    data = made(SETS_OF_ARTICLE[:6])
    values = (0.875, 0.125, 0.75, 0.5, 0.625, 0.625)
    trials = [replace(t, objective=v) for t, v in zip(data.trials, values, strict=True)]
    data = of_trials(trials, data.curves, sid="x-00000", metric="test/acc")
    status = replace(data.status, sweep=replace(data.sweep, replicates=2))
    shown = encode_sweep(replace(data, status=status))["standing"]["test/acc"]
    assert shown["n"] == [3, 5, 1] and shown["of"] == 3, "equal means are ranked by number"
    assert shown["mean"] == [0.625, 0.625, 0.5] and shown["runs"] == [2, 2, 2]
    places = [replace(data, status=status).standings.of(n) for n in range(1, 7)]
    assert [place.rank for place in places] == [3, 3, 1, 1, 2, 2]
    assert [place.setting for place in places] == [1, 1, 2, 2, 3, 3]


def test_a_patch_of_several_metrics_has_what_changed_and_what_met_the_front() -> None:
    """One trial that dominates nearly all others moves them, too."""
    old = made_front(40)
    best = {"val_acc": 0.95, "latency_ms": 11.0, "peak_gb": 1.0}
    trials = [replace(t, metrics=best) if t.id.number == 7 else t for t in old.trials]
    new = replace(of_trials(trials, {}, sid="nas-5c1d2", metric="val_acc"), status=old.status)
    assert old.front is not None and new.front is not None
    gone = {*old.front.numbers} ^ {*new.front.numbers}
    assert len(gone) > 5
    before, after = encode_standing(old), encode_standing(new)
    for name, moves in encode_moves(new, encode_standing(new), [7, *gone]).items():
        assert {*moves["moved"]} == {7, *gone}
        rest = [n for n in before[name]["n"] if n not in moves["moved"]]
        for first, place in zip(moves["moved"], moves["to"], strict=True):
            rest.insert(place, first)
        assert rest == after[name]["n"] != before[name]["n"]


def test_a_patch_has_the_places_of_changed_settings_only() -> None:
    data = made(SETS_OF_ARTICLE[:6])
    values = (0.875, 0.125, 0.75, 0.5, 0.625, 0.75)
    trials = [replace(t, objective=v) for t, v in zip(data.trials, values, strict=True)]
    data = of_trials(trials, data.curves, sid="x-00000", metric="test/acc")
    data = replace(data, status=replace(data.status, sweep=replace(data.sweep, replicates=2)))
    (whole,) = encode_standing(data).values()
    (moves,) = encode_moves(data, encode_standing(data), [2, 6]).values()
    assert moves["moved"] == [5, 1] and moves["to"] == [0, 2] and moves["of"] == 3
    assert moves["mean"] == [whole["mean"][0], whole["mean"][2]]
    rest = [n for n in whole["n"] if n not in moves["moved"]]
    for first, place in zip(moves["moved"], moves["to"], strict=True):
        rest.insert(place, first)
    assert rest == whole["n"]


def test_a_row_of_several_sweeps_has_the_importance_that_the_page_knows() -> None:
    """A poll computes no importance: of a thousand trials, that takes half a second."""
    known = Importance(sets=16, shares=(Share(param="momentum", share=1.0, low=0.9, high=1.0),))
    data = replace(made(SETS_OF_ARTICLE), known={"test/acc": known})
    assert comparison_row(data)["main parameter"] == "momentum 100%"


def test_a_wide_uniform_and_a_derived_parameter_have_a_logarithmic_axis() -> None:
    spec: dict[str, Any] = {
        "parameters": {
            "lr": {"distribution": "log_uniform_values", "min": 1e-4, "max": 1},
            "warmup": {"min": 1, "max": 1000},
            "dropout": {"min": 0.1, "max": 0.6},
        },
        "derive": {"half": "lr / 2"},
    }
    sets: list[dict[str, Any]] = [
        {"lr": lr, "warmup": 300 + k, "dropout": 0.1 + k / 10, "half": lr / 2}
        for k, lr in enumerate((0.001, 0.01, 0.1, 1.0))
    ]
    axes = encode_sweep(made(sets, spec=spec))["axes"]
    kinds = {axis["name"]: axis["kind"] for axis in axes}
    assert kinds == {"lr": "log", "warmup": "log", "dropout": "linear", "half": "log"}
