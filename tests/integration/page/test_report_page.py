"""The page of `hpq report`, in a browser."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from hpq.domain.sweep import Goal, Metric
from hpq.domain.trial import Failure, FailureKind, Json, Params, TrialId, TrialState, TrialView
from hpq_views.page.sweep_data import SweepData
from hpq_views.text.text import duration, measure
from tests.integration.page.conftest import Tab
from tests.support.constants import DEVIATIONS
from tests.support.made_sweeps import (
    BEGIN_MS,
    RANGES,
    SETS_OF_ARTICLE,
    drawn_sets,
    made,
    made_front,
    of_trials,
)

pytest.importorskip("plotly", reason="plotly is not installed")
render = pytest.importorskip("hpq_views.page.render", reason="jinja2 is not installed")

Open = Callable[..., Tab]


@pytest.fixture
def show(tab: Callable[..., Tab], tmp_path: Path) -> Open:
    """Return a function that writes the page of sweeps and opens it."""

    def write(*sweeps: SweepData, flags: tuple[str, ...] = (), at: str = "", **more: object) -> Tab:
        file = tmp_path / "page.html"
        file.write_text(render.sweep_page(sweeps), "utf-8")
        return tab(*flags, **more).open(f"file://{file}{at}")

    return write


def is_clean(shown: Tab) -> bool:
    """Nothing in the console, no address but the file's, few nodes."""
    assert shown.messages == []
    assert all(url.startswith(("file://", "data:", "blob:")) for url in shown.requests)
    assert len([url for url in shown.requests if url.startswith("file://")]) == 1
    assert shown.count() < 5_000
    return True


def best_of(shown: Tab, plot: str = "progress-plot") -> list[list[float]]:
    """Return the points of the chart's line of the best value so far."""
    line = f"document.querySelector('#{plot}').chart.shown.lines.find(line => line.isStep)"
    return list(shown.page.evaluate(f"(({{ x, y }}) => x.map((v, k) => [v, y[k]]))({line})"))


def dots_of(shown: Tab) -> dict[str, list[float]]:
    """Return place and value of each result in the chart of the best value so far."""
    lines = "document.querySelector('#progress-plot').chart.shown.lines"
    dots = f"{lines}.filter((one) => one.width === 2 && one.name)"
    return dict(shown.page.evaluate(f"{dots}.map(({{ name, x, y }}) => [name, [x[0], y[0]]])"))


def test_the_first_screen_answers_both_questions(show: Open) -> None:
    data = made(SETS_OF_ARTICLE)
    shown = show(data)
    assert is_clean(shown)
    best = data.status.best[0]
    assert f"#{best.id.number}" in shown.text(".winner h2")
    said = shown.text("h1")
    assert "is the best of 16 results" in said and "unclear which parameter matters" in said
    for name, value in best.params.items():
        assert name in shown.text(".winner") and str(value) in shown.text(".winner")
    for query in (".winner .command", ".winner .evidence", ".bars", "#curves .u-wrap"):
        box = shown.page.locator(query).first.bounding_box()
        assert box["y"] + box["height"] <= 800, query


def test_ten_thousand_trials_are_four_megabytes_and_few_nodes(show: Open, tmp_path: Path) -> None:
    sets = drawn_sets(10_000)
    shown = show(made(sets, points=50, workers=16, failing=0.02, pruned=0.3, spec=RANGES))
    assert (tmp_path / "page.html").stat().st_size <= 4_000_000
    assert is_clean(shown)
    assert " drawn, of those with a result" in shown.text("#parallel-n")
    assert "page 1 of 2" in shown.text("#table-n")


def test_a_brush_keeps_its_trials_in_every_block_below(show: Open) -> None:
    shown = show(made(SETS_OF_ARTICLE))
    box = shown.page.locator("#parallel-canvas").bounding_box()
    shown.page.locator("#parallel-canvas").scroll_into_view_if_needed()
    box = shown.page.locator("#parallel-canvas").bounding_box()
    x, top = box["x"] + box["width"] - 60, box["y"] + 30  # the metric's axis
    shown.page.mouse.move(x, top)
    shown.page.mouse.down()
    shown.page.mouse.move(x, top + 60, steps=4)
    shown.page.mouse.up()
    kept = shown.count("#table tbody tr")
    assert 0 < kept < 16
    assert shown.text("#table-n") == f"{kept} of 16"
    assert f"{kept} trials" in shown.text("#curves-n")
    assert f"{kept} trials" in shown.text("#parallel-n") or f"{kept} of" in shown.text(
        "#parallel-n"
    )
    points = "document.querySelector('#pair-plot').data[1].x.length"
    assert shown.page.evaluate(points) == kept == len(dots_of(shown))
    shown.page.click("#unbrush")
    first, second = (shown.page.input_value(f"#pair-{axis}") for axis in "xy")
    shown.page.select_option("#pair-y", first)
    titles = [shown.page.text_content(f"#pair .{axis}title") for axis in "xy"]
    assert titles == [second, first] and first != second
    assert shown.page.evaluate(points) == 16 == len(dots_of(shown))
    assert shown.count("#table tbody tr") == 16 and is_clean(shown)


def test_a_selected_trial_is_marked_everywhere_and_stays_in_the_address(show: Open) -> None:
    shown = show(made(SETS_OF_ARTICLE))
    shown.page.click("#table tbody tr:nth-child(3)")
    number = shown.page.get_attribute("#table tbody tr:nth-child(3)", "data-n")
    assert shown.page.evaluate("location.hash") == f"#cifar10-16-3f2a1/{number}"
    assert f"Trial #{number}" in shown.text("#trial")
    marked = "document.querySelector('#sorted-plot').data.at(-1).x.length"
    assert shown.page.evaluate(marked) == 1
    ring = "(({ name, width }) => [name, width])(document.querySelector('#progress-plot').chart"
    assert shown.page.evaluate(f"{ring}.shown.lines.at(-1))") == [f"#{number}", 7]
    assert shown.page.evaluate("document.querySelector('#timeline-plot').data.at(-1).x.length") == 2
    again = show(made(SETS_OF_ARTICLE), at=f"#cifar10-16-3f2a1/{number}")
    assert f"Trial #{number}" in again.text("#trial")
    again.page.keyboard.press("Escape")
    assert not again.page.is_visible("#trial")


def test_a_click_on_a_point_selects_its_trial(show: Open) -> None:
    shown = show(made(SETS_OF_ARTICLE))
    shown.page.locator("#sorted-plot .point").nth(2).click(force=True)
    assert shown.page.is_visible("#trial")
    assert "3 of 16" in shown.text("#trial")


def test_the_best_so_far_follows_the_ends_of_the_trials(show: Open) -> None:
    """The trials end in another order than that of their numbers, some in a tenth of a second."""
    data = made(SETS_OF_ARTICLE[:5], states=[TrialState.FINISHED] * 5)
    ends = {1: (0.9, 500), 2: (0.7, 130), 3: (0.6, 101), 4: (0.8, 120), 5: (0.75, 140)}
    trials = [
        replace(t, objective=ends[t.id.number][0], ended_ms=BEGIN_MS + ends[t.id.number][1])
        for t in data.trials
    ]
    first = of_trials(trials, data.curves, sid="x-00000", metric="test/acc")
    shown = show(first, made(SETS_OF_ARTICLE))
    assert best_of(shown) == [[1, 0.6], [2, 0.8], [5, 0.9]] == best_of(shown, "overlay-best")
    assert dots_of(shown) == {f"#{n}": [place, ends[n][0]] for place, n in
                              enumerate((3, 4, 2, 5, 1), start=1)}  # fmt: skip
    assert shown.text("#progress-n") == "2 improvements on the first result"
    assert is_clean(shown)


def test_the_two_names_of_a_chart_and_the_page_of_the_table_are_in_the_address(show: Open) -> None:
    metrics = {name: Goal.MINIMIZE for name in ("a", "b", "c")}
    data = made_front(60, metrics=metrics)
    shown = show(data)
    names = shown.page.locator("#pair-x option").all_inner_texts()
    shown.page.select_option("#pair-x", names[3])
    shown.page.select_option("#front-y", "c")
    shown.page.click("[data-page='1']")
    again = show(data, at=shown.page.evaluate("location.hash"))
    for one in (shown, again):
        menus = [
            one.page.input_value(f"#{id}") for id in ("pair-x", "pair-y", "front-x", "front-y")
        ]
        assert menus == [names[3], names[1], "a", "c"]
        assert "page 2 of" in one.text("#table-n")
    assert is_clean(again)


def test_the_table_sorts_by_each_column(show: Open) -> None:
    shown = show(made(SETS_OF_ARTICLE))
    first = "document.querySelector('#table tbody tr').dataset.n"
    shown.page.click("#table th button >> nth=0")
    assert shown.page.evaluate(first) == "1"
    shown.page.click("#table th button >> nth=0")
    assert shown.page.evaluate(first) == "16"
    assert shown.page.get_attribute("#table th >> nth=0", "aria-sort") == "descending"


HOSTILE = (
    "<b>bold</b>", "<a href='https://x.invalid'>link</a>", "$e^x$", "&lt;i&gt;",
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=document.title='owned'>",
)  # fmt: skip


def test_the_table_writes_times_as_the_terminal_does(show: Open) -> None:
    taken_ms = (90, 940, 960, 59_499, 59_600, 83_000, 3_599_700, 7_500_000, 86_390_000, 273_600_000)
    data = made(SETS_OF_ARTICLE[: len(taken_ms)], states=[TrialState.FINISHED] * len(taken_ms))
    trials = [replace(t, ran_ms=ms) for t, ms in zip(data.trials, taken_ms, strict=True)]
    shown = show(of_trials(trials, data.curves, sid="x-00000", metric="test/acc"))
    for number, ms in enumerate(taken_ms, 1):
        cells = shown.page.locator(f'#table tbody tr[data-n="{number}"] td').all_inner_texts()
        assert duration(ms) in cells, cells


def test_hostile_names_values_and_messages_stay_text(show: Open) -> None:
    sets: list[Params] = [
        {name: HOSTILE[(n + k) % 3] for k, name in enumerate(HOSTILE)} for n in range(12)
    ]
    data = made(sets, metric=HOSTILE[0], text="\n".join(HOSTILE), failing=0.2)
    failure = Failure(kind=FailureKind.USER_ERROR, message=HOSTILE[4])
    trials = [
        replace(t, worker=HOSTILE[1], failure=failure if t.failure else None) for t in data.trials
    ]
    shown = show(
        of_trials(trials, data.curves, sid="x-00000", metric=HOSTILE[0], text="\n".join(HOSTILE))
    )
    assert is_clean(shown)
    assert "owned" not in shown.page.title()
    assert shown.count("svg a") == 0 and shown.count("img[src=x]") == 0
    links = shown.page.evaluate("[...document.links].map(a => a.getAttribute('href'))")
    assert all(link.startswith("#") for link in links)
    bold = "[...document.querySelectorAll('svg tspan')].map(e => e.textContent)"
    assert "bold" not in shown.page.evaluate(bold)
    assert shown.text(".sweep").count(HOSTILE[0]) >= 2
    assert HOSTILE[4] in shown.page.locator("main pre").first.text_content()
    shown.page.locator("#sorted-plot .point").first.hover(force=True)
    assert shown.count("svg a") == 0


def test_without_webgl_the_page_draws_the_same(show: Open) -> None:
    shown = show(made(SETS_OF_ARTICLE), flags=("--disable-3d-apis", "--disable-gpu"))
    assert is_clean(shown)
    assert shown.count("#slices-plot .point") == 4 * 16


def _few(states: list[TrialState], **more: object) -> SweepData:
    return made(SETS_OF_ARTICLE[: len(states)], states=states, **more)  # type: ignore[arg-type]


def _without_metric() -> SweepData:
    data = made(SETS_OF_ARTICLE)
    trials = [replace(t, objective=None, metrics={}) for t in data.trials]
    return of_trials(trials, {}, sid="x-00000", metric=None)


def _diverged() -> SweepData:
    data = made(SETS_OF_ARTICLE)
    curves = {
        n: [(x, (math.nan, math.inf, -math.inf, y)[int(x) % 4]) for x, y in c]
        for n, c in data.curves.items()
    }
    trials = [
        replace(t, objective=math.inf, metrics={"test/acc": math.nan}) if t.id.number < 4 else t
        for t in data.trials
    ]
    return of_trials(trials, curves, sid="x-00000", metric="test/acc")


def _conditional() -> SweepData:
    return made(drawn_sets(40), spec=RANGES, pruned=0.3, failing=0.1)


def _wide() -> SweepData:
    sets: list[Params] = [{f"p{k}": (n * k) % 7 / 7 for k in range(200)} for n in range(30)]
    return made(sets)


def _constant() -> SweepData:
    return made([{"lr": 0.1, "note": None}] * 9)


def _symlog() -> SweepData:
    values: list[Json] = [0, -5, 1e-3, 10, 1e4, None, 3, 4, 8, 900]
    spec: dict[str, Json] = {
        "parameters": {"x": {"distribution": "log_uniform", "min": 0, "max": 1}}
    }
    return made([{"x": v} for v in values], spec=spec)


F, Q, R = TrialState.FAILED, TrialState.QUEUED, TrialState.RUNNING
BAD: dict[str, tuple[Callable[[], SweepData], str]] = {
    "no metric": (_without_metric, "names no metric"),
    "no result yet": (lambda: _few([R, R, Q, Q]), "No trial has finished"),
    "one trial": (lambda: _few([TrialState.FINISHED]), "the only result"),
    "no trial": (lambda: of_trials([], {}, sid="x-00000", metric="acc"), "No trial has finished"),
    "all failed": (lambda: _few([F] * 6), "All 6 trials failed"),
    "a running sweep": (lambda: _few([TrialState.FINISHED] * 9 + [R, R, Q]), "the best of 9"),
    "NaN and infinities": (_diverged, "the best of"),
    "constant parameters": (_constant, "the best of 9"),
    "200 parameters": (_wide, "the best of 30"),
    "conditional parameters": (_conditional, "the best of"),
    "zero and negative on a log scale": (_symlog, "the best of 10"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_input_is_a_page_like_any_other(case: str, show: Open) -> None:
    build, words = BAD[case]
    shown = show(build())
    assert is_clean(shown)
    assert words in shown.text("h1")
    if shown.count("#table tbody tr"):
        shown.page.click("#table tbody tr >> nth=0")
        assert shown.page.is_visible("#trial")
    assert is_clean(shown)


def test_several_sweeps_share_a_page_and_the_address_names_one(show: Open) -> None:
    first = made(SETS_OF_ARTICLE)
    second = made(drawn_sets(20), sid="resnet-9c0de", spec=RANGES, pruned=0.2)
    done = {sweep.sweep.id: sweep.summary.results for sweep in (first, second)}
    shown = show(first, second)
    assert "is the best of 16" in shown.text("h1:visible")
    assert f"test/acc, 16 and {len(done['resnet-9c0de'])} trials" in shown.text("#overlay-n")
    ends = (
        "document.querySelector('#overlay-plot').chart.shown.lines"
        ".filter(line => line.name.endsWith('median')).map(line => line.y.at(-1))"
    )
    medians = [median(some) for some in done.values()]
    assert shown.page.evaluate(ends) == pytest.approx(medians, abs=2e-4)
    assert shown.count("#overlay-legend span") == 2 and shown.page.is_visible("#overlay-best")
    shown.page.click("nav a[href='#resnet-9c0de']")
    shown.until("document.querySelectorAll('#table tbody tr').length === 20")
    assert "is the best of 20" in shown.text("h1:visible")
    said = f"{medians[1]:.4g} of {len(done['resnet-9c0de'])} finished"
    assert said in shown.page.text_content("#sorted-plot .infolayer")
    assert said in shown.text("nav tbody tr >> nth=1")
    assert is_clean(shown)


def test_the_best_of_a_small_sweep_stays_beside_that_of_a_large_one(show: Open) -> None:
    many, few = made(drawn_sets(300), sid="many-11111"), made(SETS_OF_ARTICLE[:2])
    trials = [replace(t, objective=0.5) for t in few.trials]
    few = of_trials(trials, few.curves, sid="few-22222", metric="test/acc")
    shown = show(many, few)
    low, high = shown.page.evaluate("document.querySelector('#overlay-best').chart.ranges.y")
    assert low < 0.5 < high
    heads = shown.page.locator("nav th")
    named = {heads.nth(k).text_content(): heads.nth(k).is_visible() for k in range(heads.count())}
    assert (named["best"], named["budget"], named["failed"]) == (True, False, False)
    assert is_clean(shown)


def test_every_chart_says_what_lies_beyond_its_scale(show: Open) -> None:
    data = made(SETS_OF_ARTICLE)
    trials = [replace(t, objective=0.3) if t.id.number == 3 else t for t in data.trials]
    shown = show(of_trials(trials, data.curves, sid="x-00000", metric="test/acc"))
    for block in ("sorted", "slices", "parallel"):
        assert "1 beyond the scale at its edge (0.3)" in shown.text(f"#{block}-n"), block
    symbols = "document.querySelector('#sorted-plot').data[0].marker.symbol"
    assert shown.page.evaluate(symbols)[-2:] == ["circle", "triangle-down"]


BOXES = "query => [...document.querySelectorAll(query)].map((one) => one.getBoundingClientRect())"


def are_apart(boxes: list[dict[str, float]]) -> bool:
    """Return whether no two of these boxes overlap."""
    return all(
        a["right"] <= b["left"]
        or b["right"] <= a["left"]
        or a["bottom"] <= b["top"]
        or b["bottom"] <= a["top"]
        for a, b in itertools.combinations(boxes, 2)
    )


@pytest.mark.parametrize("goal", [Goal.MAXIMIZE, Goal.MINIMIZE])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_labels_of_the_best_and_the_median_stand_apart_inside_the_chart(
    goal: Goal, width: int, show: Open
) -> None:
    data = made(SETS_OF_ARTICLE, states=[TrialState.FINISHED] * 4 + [TrialState.PRUNED] * 12)
    metric = Metric(name="test/acc", goal=goal)
    sweep = replace(data.sweep, metric=metric)
    shown = show(replace(data, status=replace(data.status, sweep=sweep)), width=width)
    labels = shown.page.evaluate(BOXES, "#sorted-plot .annotation-text")
    (frame,) = shown.page.evaluate(BOXES, "#sorted-plot .main-svg:first-child")
    assert len(labels) == 2 and are_apart(labels)
    assert all(frame["left"] <= one["left"] and one["right"] <= frame["right"] for one in labels)
    assert are_apart([*labels, *shown.page.evaluate(BOXES, "#sorted-plot .xtick text")])


def test_a_parameter_with_one_value_beside_missing_ones_has_readable_marks(show: Open) -> None:
    sets: list[Params] = [{"lr": n / 10, "momentum": 0.99 if n % 3 else None} for n in range(1, 9)]
    shown = show(made(sets), width=390, height=844)
    marks = shown.page.evaluate(BOXES, "#slices-plot .x2tick text")
    assert len(marks) == 2 and marks[0]["right"] + 20 < marks[1]["left"]


def test_a_long_message_of_a_failure_is_read_whole_on_a_phone(show: Open) -> None:
    data = made(SETS_OF_ARTICLE, states=[TrialState.FAILED] * 9 + [TrialState.FINISHED] * 7)
    failure = Failure(kind=FailureKind.USER_ERROR, message="ValueError: " + "a long reason " * 9)
    trials = [replace(one, failure=failure) if one.failure else one for one in data.trials]
    shown = show(
        of_trials(trials, data.curves, sid="x-00000", metric="test/acc"), width=390, height=844
    )
    box = "document.querySelector('#failures .scroll')"
    assert shown.page.evaluate(f"{box}.scrollWidth <= {box}.clientWidth")
    assert shown.text("#failures-n") == "9 trials"  # the headline says of how many


def test_the_failures_say_what_their_trials_have_in_common(show: Open) -> None:
    sets: list[Params] = [{"boosting": "rf" if n < 6 else HOSTILE[1], "lr": n} for n in range(16)]
    states = [TrialState.FAILED] * 6 + [TrialState.FINISHED] * 10
    other = made(SETS_OF_ARTICLE, sid="other-00000", states=[TrialState.FAILED] * 2 + states[2:])
    shown = show(made(sets, states=states), other)
    common = shown.page.locator("#failures-common li")
    assert common.all_inner_texts() == ["out of memory: all 6 have boosting=rf",
                                        "out of memory: all 6 have lr <= 5"]  # fmt: skip
    shown.page.click("nav a[href='#other-00000']")
    shown.until("!document.querySelector('#failures-common li')")
    assert is_clean(shown)


def test_blocks_without_data_are_hidden(show: Open) -> None:
    shown = show(_without_metric())
    for block in ("sorted", "slices", "curves", "progress"):
        assert not shown.page.is_visible(f"#{block}"), block
    assert "no trial has a result" in shown.text(".winner")


@pytest.mark.parametrize("data", [made(drawn_sets(40), spec=RANGES), made_front(40)])
@pytest.mark.parametrize("more", [{"width": 390, "height": 844}, {"color_scheme": "dark"}])
def test_no_block_is_wider_than_the_screen(
    data: SweepData, more: dict[str, object], show: Open
) -> None:
    shown = show(data, **more)
    assert shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert is_clean(shown)


def test_the_policy_admits_two_scripts_by_their_hash_and_no_eval(show: Open) -> None:
    shown = show(made(SETS_OF_ARTICLE))
    policy = shown.page.get_attribute("meta[http-equiv]", "content")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert policy.count("sha256-") == 2 and "unsafe-eval" not in policy
    assert "unsafe" not in policy.replace("style-src 'unsafe-inline'", "")
    assert shown.page.evaluate("typeof Plotly") == "object"


def test_a_browser_that_announces_no_paint_draws_the_charts(
    tab: Callable[..., Tab], tmp_path: Path
) -> None:
    file, opened = tmp_path / "page.html", tab()
    file.write_text(render.sweep_page([made(SETS_OF_ARTICLE)]), "utf-8")
    opened.page.add_init_script("window.requestAnimationFrame = () => 0")
    assert opened.open(file.as_uri()).count("#sorted-plot .trace") > 0


def test_replicates_and_a_trial_that_never_ran_are_shown(show: Open) -> None:
    data = made(SETS_OF_ARTICLE)
    queued = TrialView(
        id=TrialId(sweep=data.sweep.id, number=17), state=Q, params=SETS_OF_ARTICLE[0]
    )
    shown = show(of_trials([*data.trials, queued], data.curves, sid="x-00000", metric="test/acc"))
    assert "1 not ranked" in shown.text("#sorted-n")
    assert is_clean(shown)


def test_a_failed_replicate_is_not_counted_as_a_setting(show: Open) -> None:
    data = _few([TrialState.FINISHED] * 3 + [TrialState.FAILED])
    status = replace(data.status, sweep=replace(data.sweep, replicates=2))
    shown = show(replace(data, status=status))
    assert "2 settings; ×: 1 failed" in shown.text("#slices-n")


def test_replicates_rank_by_the_mean_of_their_set(show: Open) -> None:
    """As in `hpq best`: one lucky seed is not the winner."""
    data = made(SETS_OF_ARTICLE[:4])
    values = (0.9, 0.1, 0.7, 0.6)
    trials = [replace(t, objective=v) for t, v in zip(data.trials, values, strict=True)]
    data = of_trials(trials, data.curves, sid="x-00000", metric="test/acc")
    sweep = replace(data.status, sweep=replace(data.sweep, replicates=2))
    shown = show(replace(data, status=sweep))
    assert "2 settings of 2 runs each" in shown.text("#sorted-n")
    assert "2 settings, of those" in shown.text("#parallel-n")
    assert [r.split("\t")[0] for r in shown.text("#table tbody").splitlines()] == ["3", "1"]
    for rank, number in ((1, 3), (1, 4), (2, 1), (2, 2)):
        shown.page.evaluate(f"location.hash = '#x-00000/{number}'")
        shown.until(f"document.querySelector('#trial').textContent.includes('rank {rank} of 2')")
    assert is_clean(shown)


def test_a_standard_deviation_is_written_as_on_a_terminal(show: Open) -> None:
    values = [m + sign * sd / math.sqrt(2) for sd, m, _ in DEVIATIONS for sign in (1, -1)]
    data = made(drawn_sets(len(values)))
    trials = [replace(t, objective=v) for t, v in zip(data.trials, values, strict=True)]
    data = of_trials(trials, data.curves, sid="x-00000", metric="test/acc")
    shown = show(
        replace(data, status=replace(data.status, sweep=replace(data.sweep, replicates=2)))
    )
    table = shown.text("#table tbody")
    for _, mean, sd in DEVIATIONS:
        assert f"{measure(mean)} ± {sd} (2 of 2)" in table, table
    assert is_clean(shown)


def _twelve_metrics() -> SweepData:
    """A sweep whose objective is logged once; trials of every state, values of 0 and below."""
    states = [TrialState.FINISHED] * 8 + [TrialState.PRUNED] * 3 + [TrialState.FAILED] * 2
    data = _few([*states, TrialState.CANCELLED, TrialState.QUEUED, TrialState.QUEUED])
    once = {t.id.number: [(9.0, t.objective)] for t in data.trials if t.objective is not None}
    names = ["test/acc", "train/loss", "val/loss", *(f"m{k}" for k in range(9))]
    trials = [
        replace(t, metrics=dict.fromkeys(names, 0.0)) if t.metrics else t for t in data.trials
    ]
    more = {
        name: {n: [(x, (k - 5) * y) for x, y in c] for n, c in data.curves.items()}
        for k, name in enumerate(names[1:])
    }
    page = of_trials(trials, once, sid="x-00000", metric="test/acc")
    return replace(page, more=more)


INK = (
    "name => {const c = document.querySelector(`[data-panel='${name}'] canvas`);"
    "const p = c.getContext('2d').getImageData(60, 0, c.width - 60, c.height - 50).data; let n = 0;"
    "for (let i = 0; i < p.length; i += 4) n += p[i + 3] > 99 && Math.max(p[i], p[i + 1], p[i + 2])"
    " - Math.min(p[i], p[i + 1], p[i + 2]) > 40; return n}"
)  # pixels with a color: neither the grid nor text has one


def test_a_metric_that_is_logged_once_is_drawn_as_points(show: Open) -> None:
    shown = show(_twelve_metrics())
    assert is_clean(shown)
    assert shown.page.evaluate(INK, "test/acc") > 11 * 10, "a dot for each of 11 results"
    assert "11 trials" in shown.text("#curves-n")


def test_each_metric_can_be_added_and_training_stands_beside_validation(show: Open) -> None:
    shown = show(_twelve_metrics())
    assert shown.count("#metric option") == 1 + 11 and shown.count("[data-panel]") == 1
    for name in ("val/loss", "train/loss"):
        shown.page.select_option("#metric", name)
    assert shown.text("#curves-n").startswith("test/acc and val/loss and train/loss by step")
    for name in ("val/loss", "train/loss"):
        assert shown.page.evaluate(INK, name) > 100, name
    shown.page.click("[data-panel='test/acc'] [aria-label^=Remove]")
    assert shown.count("[data-panel]") == 2 and is_clean(shown)


def test_only_trials_with_a_result_are_lines_of_the_parameters(show: Open) -> None:
    shown = show(_twelve_metrics())
    assert shown.text("#parallel-n").startswith("11 trials, of those with a result")


SYMBOLS = "document.querySelector('#front-plot').data[1].marker.symbol"


def test_the_front_is_a_line_and_a_trial_off_it_says_why(show: Open) -> None:
    data = made_front(60, constraints=["peak_gb <= 24"])
    front = data.front
    assert front and front.dominated and front.infeasible
    shown = show(data)
    said = f"{len(front.trials)} of {len(front.trials) + front.dominated} results are on the front"
    assert said in shown.text("h1") and "hypervolume" in shown.text("h1")
    line = shown.page.evaluate("document.querySelector('#front-plot').data[0]")
    assert line["line"]["shape"] == "hv" and len(line["x"]) == len(front.trials)
    assert shown.page.evaluate(SYMBOLS).count("circle-open") == front.infeasible
    assert not shown.page.is_visible("#sorted")
    assert shown.text("#progress h2").startswith("Hypervolume over trials")
    assert best_of(shown) == [[0, 0], *map(list, data.volumes)]
    rows = [shown.page.locator(f"#table tbody tr >> nth={k}") for k in (0, len(front.trials))]
    best = front.trials[0]
    assert rows[0].get_attribute("data-n") == str(best.id.number)
    assert "on the front" in rows[0].inner_text() and "dominated by #" in rows[1].inner_text()
    shown.page.click("#table th button >> nth=2")  # the worst first
    assert "infeasible: peak_gb <= 24" in shown.text("#table tbody tr >> nth=0")
    shown.page.locator("#front-plot .point").first.click(force=True)
    assert "infeasible" in shown.text("#trial") and is_clean(shown)


def test_each_of_several_metrics_can_be_the_one_of_the_charts(show: Open) -> None:
    shown = show(made_front(60))
    assert shown.text(".bars >> nth=0") and shown.text(".bars >> nth=1")
    for name in ("latency_ms", "val_acc"):
        shown.page.select_option("#goal", name)
        shown.until(f"document.querySelector('#slices .ytitle').textContent === '{name}'")
    assert not shown.page.is_visible("#front-x")
    assert is_clean(shown)


def test_two_of_three_metrics_are_drawn_with_the_front_of_these_two(show: Open) -> None:
    goals = {"val_acc": Goal.MAXIMIZE, "latency_ms": Goal.MINIMIZE, "params": Goal.MINIMIZE}
    data = made_front(60, metrics=goals)
    assert data.front
    shown = show(data)
    shown.page.select_option("#front-y", "params")
    shown.until("document.querySelector('#front .ytitle').textContent === 'params, minimize'")
    line = shown.page.evaluate("document.querySelector('#front-plot').data[0]")
    assert line["x"] == sorted(line["x"], reverse=True) and len(line["x"]) <= len(data.front.trials)
    assert line["y"] == sorted(line["y"], reverse=True)
    assert is_clean(shown)


def test_a_front_of_five_thousand_is_a_page_of_few_nodes(show: Open) -> None:
    data = made_front(5_000, is_all_front=True)
    shown = show(data)
    assert "5,000 of 5,000 results are on the front" in shown.text("h1") and is_clean(shown)
    shown.page.locator("#front-plot .point").nth(7).click(force=True)
    assert "on the front" in shown.text("#trial")


@pytest.mark.parametrize("constraint", ["peak_gb <= 0", "nothing <= 1"])
def test_a_sweep_without_any_feasible_trial_has_no_front(constraint: str, show: Open) -> None:
    shown = show(made_front(12, constraints=[constraint]))
    assert "0 of 0 results are on the front" in shown.text("h1")
    assert "12 infeasible" in shown.text(".winner") and not shown.page.is_visible("#progress")
    assert ("reported nothing" in shown.text(".winner")) is ("nothing" in constraint)
    assert set(shown.page.evaluate(SYMBOLS)) == {"circle-open"} and is_clean(shown)


def test_trials_that_do_not_meet_the_constraints_rank_last_by_one_metric(show: Open) -> None:
    data = made_front(20, metrics={"val_acc": Goal.MAXIMIZE}, constraints=["peak_gb <= 24"])
    sweep = replace(data.sweep, objectives=())
    shown = show(replace(data, status=replace(data.status, sweep=sweep)))
    peaks = {t.id.number: t.metrics["peak_gb"] for t in data.trials}
    numbers = "[...document.querySelectorAll('#table tbody tr')].map(row => +row.dataset.n)"
    order = [peaks[n] > 24 for n in shown.page.evaluate(numbers)]
    assert any(order) and order == sorted(order) and is_clean(shown)
    words = f"{order.count(False)} ranked; {order.count(True)} infeasible"
    assert shown.text("#sorted-n").startswith(words)


def test_sweeps_with_one_metric_and_with_two_share_a_page(show: Open) -> None:
    shown = show(made(SETS_OF_ARTICLE), made_front(20))
    shown.page.click("nav a[href='#nas-5c1d2']")
    shown.until("document.querySelectorAll('#table tbody tr').length === 20")
    shown.page.select_option("#goal", "latency_ms")
    shown.page.click("nav a[href='#cifar10-16-3f2a1']")
    shown.until("document.querySelectorAll('#table tbody tr').length === 16")
    assert shown.page.is_visible("#sorted") and not shown.page.is_visible("#front")
    assert shown.text("#progress h2").startswith("Best so far") and is_clean(shown)
