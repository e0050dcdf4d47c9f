"""The curves of a sweep's page, in a browser: zoom, cursor, smoothing, groups, axes, links."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from hpq.domain.trial import Params, TrialState
from hpq_views.page.curves import Curve
from hpq_views.page.sweep_data import SweepData
from tests.integration.page.conftest import Tab
from tests.support.made_sweeps import SETS_OF_ARTICLE, made

for library in ("plotly", "jinja2"):
    pytest.importorskip(library, reason=f"{library} is not installed")

STEPS = 20
SHOWN = "document.querySelector('[data-panel] .lines').chart.shown"  # of the first panel
SETS: list[Params] = [{"lr": lr, "depth": depth} for lr in (0.1, 0.2) for depth in (1, 2, 3)]


def level(n: int, step: float) -> float:
    """The value of a trial: each has a height of its own, and the steps a small tooth."""
    return n / 10 + step / 1000 + (0.01 if step % 2 else 0.0)


def sweep(
    more: Mapping[str, Callable[[int, float], float]] | None = None,
    sets: Sequence[Params] = SETS,
    value: Callable[[int, float], float] = level,
    steps: int = STEPS,
    states: Sequence[TrialState] = (),
    metric: str = "val/acc",
    sid: str = "first-00000",
) -> SweepData:
    """Return a sweep of six trials with 20 values each, and other metrics of its steps."""
    data = made(sets, sid=sid, metric=metric, states=states or [TrialState.FINISHED] * len(sets))

    def of(f: Callable[[int, float], float]) -> dict[int, Curve]:
        return {n: [(float(k), f(n, k)) for k in range(1, steps + 1)] for n in data.curves}

    named = {name: 0.5 for name in (metric, *(more or {}))}
    trials = [replace(t, metrics=named if t.metrics else {}) for t in data.trials]
    others = {name: of(f) for name, f in (more or {}).items()}
    return replace(data, trials=trials, curves=of(value), more=others)


@pytest.fixture
def show(tab: Callable[..., Tab], tmp_path: Path) -> Callable[..., Tab]:
    """Return a function that writes the page of a sweep and opens it."""
    from hpq_views.page.render import sweep_page  # noqa: PLC0415

    def write(*data: SweepData, at: str = "", **more: Any) -> Tab:
        file = tmp_path / "page.html"
        file.write_text(sweep_page(data), "utf-8")
        return tab(**more).open(f"file://{file}{at}")

    return write


class Panel:
    """One panel of curves, with the mouse over it."""

    def __init__(self, shown: Tab, name: str = "val/acc") -> None:
        self.mouse, self.shown = shown.page.mouse, shown
        self.figure = shown.page.locator(f"[data-panel='{name}']")
        self.figure.scroll_into_view_if_needed()

    def place(self, across: float, down: float) -> tuple[float, float]:
        box = self.figure.locator(".u-over").bounding_box()
        return box["x"] + 1 + across * (box["width"] - 3), box["y"] + 1 + down * (box["height"] - 3)

    def drag(self, begin: tuple[float, float], end: tuple[float, float]) -> None:
        self.mouse.move(*self.place(*begin))
        self.mouse.down()
        self.mouse.move(*self.place(*end), steps=3)
        self.mouse.up()

    def read(self, across: float, down: float = 0.5) -> tuple[str, dict[str, float]]:
        """Hover, and return the step and the values of the listed lines by name."""
        self.mouse.move(*self.place(across, down))
        head, *rows = self.shown.text("#tip").split("\n")
        found = [re.fullmatch(r"■ (\S+)\s+(\S.*)", row) for row in rows]
        return head, {m[2]: float(m[1]) for m in found if m}

    @property
    def note(self) -> str:
        return str(self.figure.locator(".lines > p").inner_text())


def hash_of(shown: Tab) -> str:
    return str(shown.page.evaluate("decodeURIComponent(location.hash)"))


def smooth(shown: Tab, weight: float) -> None:
    shown.page.evaluate(
        "w => { const s = document.querySelector('#curves-smooth'); s.value = w;"
        " s.dispatchEvent(new Event('input')) }",
        weight,
    )


def test_the_cursor_shows_the_values_of_the_nearest_lines_at_that_step(show) -> None:
    shown = show(sweep())
    for across, step in ((0.5, 10), (1.0, 20), (0.25, 5)):
        head, values = Panel(shown).read(across)
        assert head == f"step {step}"
        assert values == {f"#{n}": pytest.approx(level(n, step), abs=1e-4) for n in range(1, 7)}
    assert "lr = " in shown.text("#tip"), "the parameters of the nearest"
    shown.page.mouse.move(1, 1)
    assert not shown.page.is_visible("#tip") and shown.messages == []


def test_a_drag_zooms_shift_pans_and_a_double_click_shows_all(show) -> None:
    shown = show(sweep({"train/acc": level}))
    panel, beside = Panel(shown), Panel(shown, "train/acc")
    panel.drag((0.25, 0.5), (0.75, 0.5))
    for one in (panel, beside):
        assert one.read(0.0)[0] == "step 5" and one.read(1.0)[0] == "step 15"
    shown.page.keyboard.down("Shift")
    panel.drag((0.5, 0.5), (0.7, 0.5))
    shown.page.keyboard.up("Shift")
    assert panel.read(0.0)[0] == "step 3" and panel.read(1.0)[0] == "step 13"
    assert beside.read(1.0)[0] == "step 13"
    panel.mouse.dblclick(*panel.place(0.5, 0.5))
    assert panel.read(1.0)[0] == "step 20" and "range" not in hash_of(shown)
    panel.drag((0.0, 0.75), (0.6, 1.0))  # a corner: the lowest lines of the first steps
    assert set(panel.read(0.5, 0.9)[1]) == {f"#{n}" for n in range(1, 7)}
    assert panel.read(1.0)[0] == "step 12" and shown.messages == []
    assert not shown.page.is_visible("#trial"), "no drag selects a trial"


def test_a_drag_goes_on_when_new_values_are_drawn_meanwhile(show) -> None:
    shown = show(sweep())
    panel = Panel(shown)
    panel.mouse.move(*panel.place(0.25, 0.5))
    panel.mouse.down()
    panel.mouse.move(*panel.place(0.5, 0.5), steps=3)
    shown.page.evaluate(
        "() => { const { chart } = document.querySelector('[data-panel] .lines');"
        " chart.draw({ ...chart.shown }) }"
    )
    panel.mouse.move(*panel.place(0.75, 0.5), steps=3)
    panel.mouse.up()
    assert panel.read(0.0)[0] == "step 5" and panel.read(1.0)[0] == "step 15"
    assert shown.messages == []


def test_a_click_on_a_line_selects_its_trial(show) -> None:
    shown = show(sweep(value=lambda n, step: float(n)))
    panel = Panel(shown)
    room = 0.04 * 5
    panel.mouse.click(*panel.place(0.5, (6 + room - 4) / (5 + 2 * room)))
    assert "Trial #4" in shown.text("#trial")


def test_smoothing_is_an_exponential_mean_that_begins_at_the_first_value(show) -> None:
    shown = show(sweep())
    smooth(shown, 0.8)
    weights = [0.8 ** (STEPS - k) for k in range(1, STEPS + 1)]
    values = [level(3, k) for k in range(1, STEPS + 1)]
    wanted = math.fsum(w * v for w, v in zip(weights, values, strict=True)) / math.fsum(weights)
    panel = Panel(shown)
    assert panel.read(1.0)[1]["#3"] == pytest.approx(wanted, abs=1e-4)
    assert panel.read(0.05)[1]["#3"] == pytest.approx(level(3, 1), abs=1e-4)
    assert "pale: as logged" in shown.text("#curves-n")
    pale = f"{SHOWN}.lines.filter((line) => !line.name).map(({{ y }}) => y.at(-1))"
    logged = [level(n, STEPS) for n in range(1, 7)]
    assert sorted(shown.page.evaluate(pale)) == pytest.approx(logged, abs=1e-4)


@pytest.mark.parametrize("band", ["range", "sd"])
def test_a_group_of_trials_is_its_mean_with_a_band(show, band: str) -> None:
    shown = show(sweep())
    shown.page.select_option("#curves-by", "p:lr")
    assert [text.strip() for text in shown.text("#curves-legend").split("■")[1:]] == [
        "0.1 (3)",
        "0.2 (3)",
    ]
    shown.page.select_option("#curves-band", band)
    head, values = Panel(shown).read(1.0)
    first = mean(level(n, STEPS) for n in (1, 2, 3))
    assert head == "step 20" and values == {
        "0.1, mean of 3": pytest.approx(first, abs=1e-4),
        "0.2, mean of 3": pytest.approx(first + 0.3, abs=1e-4),
    }
    reach = {"range": 0.1, "sd": stdev((0.1, 0.2, 0.3))}[band]
    edges = shown.page.evaluate(
        f"{SHOWN}.bands.map(({{ low, high }}) => [low.at(-1), high.at(-1)])"
    )
    ends = [first - reach, first + reach]
    assert edges[0] == pytest.approx(ends, abs=1e-4) and len(edges) == 2
    words = {"range": "lowest to highest", "sd": "standard deviation"}[band]
    assert words in shown.text("#curves-n")


def test_replicates_are_a_group_by_default(show) -> None:
    data = sweep()
    replicated = replace(data.status, sweep=replace(data.sweep, replicates=3))
    shown = show(replace(data, status=replicated))
    assert shown.page.input_value("#curves-by") == "setting"
    values = Panel(shown).read(1.0)[1]
    assert sorted(values.values()) == pytest.approx(
        [mean(level(n, STEPS) for n in some) for some in ((1, 2, 3), (4, 5, 6))], abs=1e-4
    )
    assert "6 trials in 2 groups" in shown.text("#curves-n")


def test_a_panels_switch_has_the_width_of_its_word_and_stays_beside_a_long_name(show) -> None:
    for width in (390, 1280):
        shown = show(sweep(metric="val/accuracy_of_a_long_name_with_many_words"), width=width)
        one, close = (shown.page.locator(f"#curves figcaption {q}") for q in ("b", "button"))
        box, name = close.first.bounding_box(), one.bounding_box()
        assert box["width"] < 60 and box["y"] < name["y"] + name["height"]


def test_a_group_of_replicates_has_the_name_of_its_parameters(show) -> None:
    sets: list[Params] = [{"lr": lr, "epochs": 9} for lr in (0.1, 0.1, 0.2, 0.2)]
    data = sweep(sets=sets)
    shown = show(
        replace(data, status=replace(data.status, sweep=replace(data.sweep, replicates=2)))
    )
    legend = shown.text("#curves-legend").split("■")[1:]
    assert [text.strip() for text in legend] == ["lr=0.2 (2)", "lr=0.1 (2)"]
    ranks = shown.page.locator("#table tbody tr td:nth-child(3)").all_inner_texts()
    assert ranks == ["1", "2"] and "rank 1 of 2" not in shown.text("#table")


def test_an_axis_is_switched_to_logarithmic_and_says_so(show) -> None:
    shown = show(sweep(value=lambda n, step: 10.0 ** (-n)))
    panel = Panel(shown)
    button, plot = panel.figure.get_by_text("log", exact=True), panel.figure.locator(".lines")
    assert button.get_attribute("aria-pressed") == "true", "six decades"
    assert "logarithmic" in plot.get_attribute("aria-label")
    middle = panel.read(0.5)[1]
    height = (
        "(({ plot, ranges: { y } }) => plot.valToPos(Math.sqrt(y[0] * y[1]), 'y')"
        " / plot.over.clientHeight)(document.querySelector('[data-panel] .lines').chart)"
    )
    assert shown.page.evaluate(height) == pytest.approx(0.5, abs=0.01)
    button.click()
    assert button.get_attribute("aria-pressed") == "false" and "linear" in hash_of(shown)
    assert "logarithmic" not in plot.get_attribute("aria-label")
    assert panel.read(0.5)[1] == middle
    panel.drag((0.0, 0.95), (1.0, 1.0))
    assert shown.messages == []


def test_the_axis_fits_what_is_drawn_and_says_what_lies_beyond(show) -> None:
    def value(n: int, step: float) -> float:
        return 1e6 if n == 6 and step == 7 else level(n, step)

    shown = show(sweep(value=value))
    assert "1 value above 0.65, up to 1e6, not drawn" in Panel(shown).note
    shown.page.select_option("#curves-x", "step")
    panel = Panel(shown)
    panel.mouse.dblclick(*panel.place(0.5, 0.5))
    highest = "document.querySelector('[data-panel] .lines').chart.ranges.y[1]"
    assert shown.page.evaluate(highest) > 1e6 and not panel.note, "as the note says"
    again = show(sweep(value=value), at=shown.page.evaluate("location.hash"))
    assert again.page.evaluate(highest) > 1e6
    panel.mouse.dblclick(*panel.place(0.5, 0.5))
    assert shown.page.evaluate(highest) < 1 and "not drawn" in panel.note
    shown = show(sweep(value=lambda n, step: n - 1.0, metric="val/loss"))
    Panel(shown, "val/loss").figure.get_by_text("log", exact=True).click()
    assert "20 values of 0 or below" in Panel(shown, "val/loss").note
    shown = show(sweep(value=lambda n, step: math.nan if n == 2 and step == 4 else 1.0))
    assert "1 with NaN, drawn as a gap" in Panel(shown).note and shown.messages == []


@pytest.mark.parametrize(
    "value",
    [
        lambda n, step: 2.3 * math.exp(-step / 3) + 0.01 * n,
        lambda n, step: 10.0 if step == 1 else 0.5 + n / 1000 + step / 1e6,
        lambda n, step: 100.0 / step**2,
    ],
)
def test_a_curve_that_falls_or_rises_is_drawn_from_its_first_value(show, value) -> None:
    shown = show(sweep(value=value, steps=200))
    assert Panel(shown).note == ""
    low, high = shown.page.evaluate("document.querySelector('[data-panel] .lines').chart.ranges.y")
    values = [value(n, step) for n in range(1, 7) for step in range(1, 201)]
    assert low < min(values) and max(values) < high


def test_a_long_curve_is_thinned_and_says_so(show) -> None:
    data = sweep(steps=1000, value=lambda n, step: float(n))
    shown = show(replace(data, points=50, longest=1000))
    assert "a point is the mean of up to 21 values" in Panel(shown).note


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (("val/acc", "test_acc", "train/acc"), ["val/acc", "train/acc"]),
        (("val_loss", "loss"), ["val_loss", "loss"]),
        (("test/acc", "train/acc"), ["test/acc", "train/acc"]),
        (("loss", "val_loss"), ["loss", "val_loss"]),
        (("train_loss", "validation_loss", "test_loss"), ["train_loss", "validation_loss"]),
        (("val/acc", "test_acc"), ["val/acc"]),
        (("eval/loss", "train/loss"), ["eval/loss", "train/loss"]),
        (("acc", "loss"), ["acc"]),
        (("acc", "train/acc", "test/acc"), ["acc", "train/acc"]),
    ],
)
def test_training_stands_beside_validation_of_the_same_name(show, names, wanted) -> None:
    metric, *others = names
    shown = show(sweep(dict.fromkeys(others, level), metric=metric))
    panels = "[...document.querySelectorAll('[data-panel]')].map(p => p.dataset.panel)"
    assert shown.page.evaluate(panels) == wanted


def test_the_x_axis_is_a_metric_or_the_time(show) -> None:
    data = sweep({"tokens": lambda n, step: 1000 * step})
    seconds = {n: [(0.0, 0.0), (20.0, 400.0)] for n in data.curves}
    shown = show(replace(data, more={**data.more, "_runtime": seconds}))
    panel = Panel(shown)
    for axis, head in (("tokens", "tokens 20,000"), ("_runtime", "time 6m40s")):
        shown.page.select_option("#curves-x", axis)
        found, values = panel.read(1.0)
        assert found == head
        assert values["#3"] == pytest.approx(level(3, STEPS), abs=1e-4)
    assert shown.messages == []


def test_the_axis_that_the_script_defined_is_the_default_of_its_metrics(show) -> None:
    data = sweep({"tokens": lambda n, step: 1000 * step, "train/acc": level})
    axes = {"val/*": "tokens", "train/acc": "never logged"}
    trials = [replace(t, run_info={"axes": axes}) for t in data.trials]
    shown = show(replace(data, trials=trials))
    heads = [Panel(shown, name).read(1.0)[0] for name in ("val/acc", "train/acc")]
    assert heads == ["tokens 20,000", "step 20"]
    assert "by tokens and step" in shown.text("#curves-n")
    panel = Panel(shown)
    panel.drag((0.25, 0.5), (0.75, 0.5))
    assert panel.read(0.0)[0] == "tokens 5000"
    assert Panel(shown, "train/acc").read(1.0)[0] == "step 20", "its axis is another one"
    shown.page.select_option("#curves-x", "step")
    assert Panel(shown).read(1.0)[0] == "step 20" and shown.messages == []


def test_a_link_shows_another_browser_the_same_view(show) -> None:
    data = sweep({"train/acc": level, "loss a:b": lambda n, step: 10.0 ** (-n)})
    shown = show(data)
    for menu, value in (
        ("#metric", "loss a:b"),
        ("#curves-x", "loss a:b"),
        ("#curves-x", "step"),
        ("#curves-by", "p:depth"),
        ("#curves-band", "sd"),
    ):
        shown.page.select_option(menu, value)
    smooth(shown, 0.5)
    panel = Panel(shown)
    panel.drag((0.25, 0.5), (0.75, 0.5))
    panel.figure.get_by_text("log", exact=True).click()
    shown.page.mouse.move(1, 1)
    link = shown.page.evaluate("location.hash")
    again = show(data, at=link)
    assert again.page.evaluate("location.hash") == link
    assert again.text("#curves-n") == shown.text("#curves-n")
    for one in (shown, again):
        one.page.evaluate("scrollTo(0, 0)")
    pictures = [one.page.locator("#curves").screenshot() for one in (shown, again)]
    assert pictures[0] == pictures[1]
    assert Panel(again).read(0.0)[0] == "step 5"


def test_chosen_trials_of_any_sweeps_are_drawn_over_each_other(show) -> None:
    sweeps = sweep(), sweep(sid="second-00000", value=lambda n, step: -level(n, step))
    shown = show(*sweeps)
    for row in ("#first-00000/3", "#second-00000/5"):
        shown.page.evaluate("row => { location.hash = row }", row)
        shown.until("!document.querySelector('#trial').hidden")
        shown.until(f"location.hash.startsWith('{row}')")
        shown.page.click("#trial [data-key=overlay]")
    drawn = (
        "document.querySelector('#overlay-plot').chart.shown.lines"
        ".map(line => [line.name, line.y.at(-1)])"
    )
    wanted = {
        "first-00000/3": pytest.approx(level(3, STEPS), abs=1e-4),
        "second-00000/5": pytest.approx(-level(5, STEPS), abs=1e-4),
    }
    assert dict(shown.page.evaluate(drawn)) == wanted
    again = show(*sweeps, at=shown.page.evaluate("location.hash"))
    assert dict(again.page.evaluate(drawn)) == wanted
    for left in (1, 0):
        again.page.locator("#overlay-legend button").first.click()
        assert again.count("#overlay-legend button") == left
    assert "median" in again.text("#overlay-n") and "trials=" not in hash_of(again)
    alone = show(sweeps[0], at="#first-00000/3")
    assert not alone.page.is_visible("#overlay")
    alone.page.click("#trial [data-key=overlay]")
    assert "1 chosen trial" in alone.text("#overlay-n")
    assert shown.messages == again.messages == alone.messages == []


def test_an_overlay_has_the_axis_that_its_scripts_define(show) -> None:
    step, tokens = sweep(sid="second-00000"), sweep({"tokens": lambda n, step: 1000 * step})
    axes = [replace(t, run_info={"axes": {"val/*": "tokens"}}) for t in tokens.trials]
    tokens = replace(tokens, trials=axes)
    drawn = (
        "(({ x, lines }) => [x.name, lines[0].x.at(-1), lines[0].y.at(-1)])"
        "(document.querySelector('#overlay-plot').chart.shown)"
    )
    for others, at, wanted in (
        ([], "?trials=first-00000/3", ["tokens", 20_000, pytest.approx(level(3, STEPS), abs=1e-4)]),
        ([step], "", ["step", 20, pytest.approx(level(3.5, STEPS), abs=1e-4)]),
    ):
        shown = show(tokens, *others, at=f"#first-00000{at}")
        assert shown.page.evaluate(drawn) == wanted and shown.messages == []


@pytest.mark.parametrize(("is_over", "order"), [(True, [".winner", "#curves"]),
                                                (False, ["#curves", ".winner"])])  # fmt: skip
def test_curves_are_under_the_winner_or_first_while_the_sweep_runs(show, is_over, order) -> None:
    states = [TrialState.FINISHED] * 5 + [TrialState.FINISHED if is_over else TrialState.RUNNING]
    shown = show(sweep(states=states))
    tops = [shown.page.locator(query).first.bounding_box()["y"] for query in (*order, "#sorted")]
    assert tops == sorted(tops)


def test_sixteen_sets_and_their_curves_fit_a_phone(show) -> None:
    data = made(SETS_OF_ARTICLE)
    shown = show(data, width=390, height=844)
    assert shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert shown.page.locator(".u-over").first.bounding_box()["width"] > 200
