"""The table of trials and the list of sweeps in a browser: what is searched, filtered and added."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hpq.domain.attempt import ReportBatch, WorkerPresence
from hpq.domain.trial import Claim, Point
from hpq.store.control import SweepControl
from hpq.store.trials import TrialStore
from tests.integration.page.conftest import Served, Tab
from tests.support.made_sweeps import SETS_OF_ARTICLE, made
from tests.support.store_calls import LEASE, end

for library in ("starlette", "uvicorn", "jinja2", "plotly"):
    pytest.importorskip(library, reason=f"{library} is not installed")

SID = "demo-00000"
NUMBERS = "[...document.querySelectorAll('#table tbody tr')].map((row) => row.dataset.n).join(' ')"


@pytest.fixture
def run(store: TrialStore, who: WorkerPresence, take: Callable[[], Claim]) -> Callable[..., Claim]:
    """Return a function that begins a trial: it reports acc and loss, and may name its run."""

    def begin(acc: float, loss: float, **info: object) -> Claim:
        claim = take()
        points = tuple(Point(step=1, name=n, value=v) for n, v in (("acc", acc), ("loss", loss)))
        batch = ReportBatch(
            seq=1, step=1, objective=acc, points=points, run_info=json.dumps(info) if info else ""
        )
        store.beat(claim, who, batch, lease_ms=LEASE)
        return claim

    return begin


@pytest.fixture
def trials(sweep_of, run, store: TrialStore) -> list[Claim]:
    """Four trials have finished; a fifth waits."""
    sweep_of(5, SID)
    results = ((0.9, 0.4), (0.8, 0.1), (0.7, 0.2), (0.6, 0.3))
    claims = [run(acc, loss, name=f"run-{acc}", tags=["base"]) for acc, loss in results]
    for claim, (acc, _) in zip(claims, results, strict=True):
        end(store, claim, acc)
    return claims


def type_where(shown: Tab, text: str) -> None:
    shown.page.fill("#where", text)
    shown.page.press("#where", "Enter")


def test_an_expression_keeps_its_trials_as_the_terminal_does(
    serve, trials, run, hpq, tab: Callable[..., Tab]
) -> None:
    shown = serve().show(tab(), f"/sweep/{SID}")
    assert shown.page.evaluate(NUMBERS) == "1 2 3 4"
    assert {"name", "tags"} <= {*shown.text("#table thead").split()}
    for text in ("loss < 0.35 and x > 1", "base in tags and acc < 0.65 or name == 'run-0.9'"):
        type_where(shown, text)
        found = hpq("results", SID, "--where", text, "--json", "--sort=-acc")
        want = " ".join(str(one["trial"]) for one in json.loads(found.stdout))
        shown.until(f"{NUMBERS} === '{want}'")
        assert shown.text("#table-n") == f"{len(want.split())} of 4"
        dots = "document.querySelector('#progress-plot').chart.shown.lines"
        dots += ".filter((one) => one.width === 2).length"
        shown.until(f"{dots} === {len(want.split())}")
    type_where(shown, "loss < 0.05 or loss > 0.35")
    shown.until(f"{NUMBERS} === '1'")
    run(0.95, 0.01)
    shown.until(f"{NUMBERS} === '5 1' || {NUMBERS} === '1 5'")
    type_where(shown, "x > 9")
    shown.until(f"{NUMBERS} === ''")
    type_where(shown, "")
    shown.until("document.querySelectorAll('#table tbody tr').length === 5")
    assert shown.messages == []


@pytest.mark.parametrize("text", ["loss <", "lacking > 3", "x in 3"])
def test_what_the_terminal_refuses_the_page_refuses_in_the_same_words(
    serve, trials, hpq, tab: Callable[..., Tab], text: str
) -> None:
    served: Served = serve()
    shown = served.show(tab(), f"/sweep/{SID}")
    type_where(shown, text)
    shown.until("!document.querySelector('#where-error').hidden")
    refusal = hpq("results", SID, "--where", text).stderr.splitlines()[-1]
    assert f"hpq: {shown.text('#where-error')} [" in refusal
    assert shown.page.get_attribute("#where", "aria-invalid") == "true"
    assert shown.count("#table tbody tr") == 4
    type_where(shown, "x < 2")
    shown.until(f"{NUMBERS} === '1'")
    assert not shown.page.is_visible("#where-error")


def test_a_link_keeps_the_expression_and_the_columns(
    serve, trials, tab: Callable[..., Tab]
) -> None:
    served: Served = serve()
    shown = served.show(tab(), f"/sweep/{SID}")
    type_where(shown, "loss < 0.25 and acc > 0")
    shown.page.click("#picks summary")
    shown.page.check("#picks [value=loss]")
    shown.until(f"{NUMBERS} === '2 3'")
    again = served.show(tab(), f"/sweep/{SID}{shown.page.evaluate('location.hash')}")
    again.until(f"{NUMBERS} === '2 3'")
    assert again.page.input_value("#where") == "loss < 0.25 and acc > 0"
    assert "loss" in again.text("#table thead") and again.messages == []


def test_a_metric_that_is_picked_is_a_column_that_sorts_and_follows(
    serve, trials, run, tab: Callable[..., Tab]
) -> None:
    shown = serve().show(tab(), f"/sweep/{SID}")
    head = "document.querySelector('#table thead').textContent"
    assert not shown.page.evaluate(f"{head}.includes('loss')")
    shown.page.click("#picks summary")
    shown.page.check("#picks [value=loss]")
    shown.until(f"{head}.includes('loss')")
    shown.until("document.querySelector('#table tr[data-n=\"2\"]').textContent.includes('0.1')")
    shown.page.click("#table th:has-text('loss') button")
    shown.until(f"{NUMBERS} === '2 3 4 1'")
    run(0.95, 0.05)
    shown.until(f"{NUMBERS} === '5 2 3 4 1'")
    shown.page.uncheck("#picks [value=loss]")
    shown.until(f"!{head}.includes('loss')")
    assert shown.messages == []


def test_a_link_shows_the_same_table_in_another_browser(
    serve, trials, run, tab: Callable[..., Tab]
) -> None:
    run(0.95, 0.25, name="last")  # still runs
    served: Served = serve()
    shown = served.show(tab(), f"/sweep/{SID}")
    type_where(shown, "loss < 0.35 and name != 'what? & 50%'")
    shown.until("document.querySelectorAll('#table tbody tr').length === 4")
    shown.page.click("#picks summary")
    shown.page.check("#picks [value=loss]")
    shown.page.click("#table th:has-text('loss') button")
    shown.page.click("#table th:has-text('loss') button")
    for n in (2, 5):
        shown.page.check(f"#table [data-n='{n}'] input")
    shown.until(f"{NUMBERS} === '4 5 3 2'")
    path = shown.page.url.removeprefix(served.url)

    again = served.show(tab(), path)
    again.until(f"{NUMBERS} === '4 5 3 2'")
    assert again.page.input_value("#where") == shown.page.input_value("#where")
    assert again.page.is_checked("#picks [value=loss]")
    assert again.text("#table thead") == shown.text("#table thead")
    assert again.text("#chosen-n") == "2 trials chosen"
    assert again.text("#chosen code") == f"hpq cancel {SID} 5"
    assert again.page.url == shown.page.url
    again.page.click("#unchoose")
    type_where(again, "")
    again.page.click("#picks summary")
    again.page.uncheck("#picks [value=loss]")
    again.page.click("#table th:has-text('acc') button")
    assert again.page.url == f"{served.url}/sweep/{SID}#{SID}"

    assert shown.text("#over-chosen") == "Overlay 2"
    shown.page.click("#over-chosen")
    names = "document.querySelector('#overlay-plot').chart?.shown?.lines.map(one => one.name)"
    shown.until(f"String({names}) === '{SID}/2,{SID}/5'")
    assert "trials=" in shown.page.url
    top = "document.querySelector('#overlay').getBoundingClientRect().top"
    shown.until(f"{top} >= -1 && {top} < innerHeight / 2")  # wherever the click was
    assert again.messages == shown.messages == []


def test_replicates_of_which_some_are_chosen_are_half_chosen(
    serve, sweep_of, run, tab: Callable[..., Tab]
) -> None:
    sweep_of(4, SID, replicates=2)
    for k in range(4):
        run(k / 8, 0.5)
    shown = serve().show(tab(), f"/sweep/{SID}#{SID}?chosen=2+3+4")
    boxes = (
        "[...document.querySelectorAll('#table tbody input')]"
        ".map(box => box.indeterminate ? 'half' : box.checked)"
    )
    assert shown.page.evaluate(boxes) == ["half", True]
    for _ in range(2):
        shown.page.click("#table th button >> nth=0")
    assert shown.page.evaluate(boxes) == [True, "half"], "the last one first"
    shown.page.check("#table [data-n='1'] input")
    assert shown.page.evaluate(boxes) == [True, True]
    assert shown.text("#chosen-n") == "4 trials chosen" and shown.messages == []


def test_a_report_has_metrics_to_pick_and_no_filter(
    tab: Callable[..., Tab], tmp_path: Path
) -> None:
    render = pytest.importorskip("hpq_views.page.render")
    data = made(SETS_OF_ARTICLE)
    values = {t.id.number: t.id.number / 8 for t in data.trials}
    each = [replace(t, metrics={**t.metrics, "loss": values[t.id.number]}) for t in data.trials]
    curves = {"loss": {n: [(1, v)] for n, v in values.items()}}
    file = tmp_path / "page.html"
    file.write_text(render.sweep_page([replace(data, trials=each, more=curves)]), "utf-8")
    shown = tab().open(f"file://{file}")
    assert shown.count("#where") == 0
    shown.page.click("#picks summary")
    shown.page.check("#picks [value=loss]")
    shown.page.click("#table th:has-text('loss') button")
    shown.until(f"{NUMBERS}.startsWith('1 2 3 4 5')")
    assert "0.125" in shown.text("#table tr[data-n='1']") and shown.messages == []


def test_the_list_is_searched_and_shows_progress_and_notes(
    serve, sweep_of, trials, hpq, control: SweepControl, tab: Callable[..., Tab]
) -> None:
    sweep_of(2, "other-00000", tags=("paper",))
    assert hpq("set", "other-00000", "note=Which <b>rate</b>?").returncode == 0
    shown = serve().show(tab())
    assert "Which <b>rate</b>?" in shown.text("#listing")
    widths = "[...document.querySelectorAll('#listing .bar i')].map((one) => one.style.width)"
    assert shown.page.evaluate(f"{widths}.sort()") == ["0%", "80%"]
    rows = "[...document.querySelectorAll('#listing tbody tr')].filter((row) => !row.hidden)"
    shown.page.fill("#find", "RATE paper")
    shown.until(f"{rows}.length === 1")
    assert "other-00000" in shown.page.evaluate(f"{rows}[0].textContent")
    assert "1 of 2" in shown.text("#found")
    control.remove("demo-00000")
    sweep_of(1, "third-00000")  # a new list keeps the search
    shown.until("document.querySelector('#listing').textContent.includes('third-00000')")
    shown.until(f"{rows}.length === 1")
    shown.page.fill("#find", "")
    shown.until(f"{rows}.length === 2")
    assert shown.messages == []
    assert serve().show(tab(), "/workers").count("#find") == 0


def test_the_list_fits_its_columns_with_a_long_note_and_shows_failures_on_a_phone(
    serve, sweep_of, begin, store: TrialStore, hpq, tab: Callable[..., Tab]
) -> None:
    sweep_of(4, "resnet-of-thursday-00000", tags=("night", "paper"))
    end(store, begin(0.9), 0.9)
    assert hpq("cancel", "resnet-of-thursday-00000", "4", "--yes").returncode == 0
    assert hpq("set", "resnet-of-thursday-00000", f"note={'why ' * 60}").returncode == 0
    served = serve()
    box = "document.querySelector('#listing')"
    desk = served.show(tab())
    assert desk.page.evaluate(f"{box}.scrollWidth <= {box}.clientWidth")
    phone = served.show(tab(width=390, height=844))
    other = phone.page.locator("tbody .of-other").bounding_box()
    assert other["x"] + other["width"] <= 390


def test_a_column_of_the_list_without_any_value_is_left_out(
    serve, sweep_of, tab: Callable[..., Tab]
) -> None:
    sweep_of(2)
    shown = serve().show(tab())
    assert {"other", "best", "tags"}.isdisjoint(shown.text("#listing thead").split())
