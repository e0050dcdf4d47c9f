"""`hpq dashboard`: a real server process, asked over HTTP and watched by a browser."""

from __future__ import annotations

import base64
import html
import json
import os
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from redis import Redis

from hpq.access.session import open_session
from hpq.domain.attempt import ReportBatch, WorkerPresence
from hpq.domain.constraint import Constraint
from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import Counts, Goal, Metric, SweepView
from hpq.domain.trial import Claim, Point, TrialState
from hpq.domain.usage import UsageCurves
from hpq.redis.round_trips import Question
from hpq.store.control import SweepControl
from hpq.store.keys import Keys
from hpq.store.sweep_writer import SweepWriter
from hpq.store.trials import TrialStore
from hpq.store.wire.row import encode_new
from tests.integration.page.conftest import Tab
from tests.support.constants import DEADLINE_S
from tests.support.desk import Desk
from tests.support.ids import refused
from tests.support.made_sweeps import RANGES, drawn_sets, made
from tests.support.store_calls import LEASE, Shelf, end, fail, forged_paths, take

for library in ("starlette", "uvicorn", "jinja2", "plotly"):
    pytest.importorskip(library, reason=f"{library} is not installed")

from hpq_views.page.live import LiveSweep  # noqa: E402
from hpq_views.page.render import lead_of  # noqa: E402
from hpq_views.page.sweep_reads import read_changes, read_sweep  # noqa: E402

HOSTILE = "<img src=x onerror=document.title='owned'>"


@pytest.fixture
def report(store: TrialStore, who: WorkerPresence) -> Callable[..., None]:
    """Return a function that reports one more value of acc."""

    def send(claim: Claim, step: int, value: float) -> None:
        points = (Point(step=step, name="acc", value=value),)
        batch = ReportBatch(seq=step, step=step, objective=value, points=points)
        store.beat(claim, who, batch, lease_ms=30_000)

    return send


def test_pages_and_patches_are_compressed_if_the_browser_accepts_that(
    serve, sweep_of, store, who, environ, tmp_path, keys, redis
) -> None:
    environ["HPQ_STORE"] = str(tmp_path / "store")
    shelf, sid = Shelf(tmp_path / "store", redis, keys), sweep_of(2).id
    served, claim = serve(), take(store, who, "a")
    end(store, claim, 0.5, artifacts=shelf.artifacts(claim))
    since = served.moment(sid)
    end(store, take(store, who, "b"), 0.6)
    served.patch(sid, since)
    for path in ("/", f"/sweep/{sid}", f"/sweep/{sid}/changes?since={since}", f"/sweep/{sid}/1"):
        _, plain, text = served.get(path)
        assert "content-encoding" not in plain and plain["vary"] == "Accept-Encoding", path
        refusing = {"Accept-Encoding": "gzip;q=0, br"}
        assert "content-encoding" not in served.get(path, **refusing)[1], path
        _, packed, same = served.get(path, **{"Accept-Encoding": "br, gzip"})
        assert packed["content-encoding"] == "gzip", path
        assert same[:5] == text[:5], path
        assert int(packed["content-length"]) < int(plain["content-length"]) * 0.8, path
    file = f"/sweep/{sid}/1/file/file"  # which may be large, and is often compressed already
    assert "content-encoding" not in served.get(file, **{"Accept-Encoding": "gzip"})[1]


def test_pages_share_their_scripts_and_styles_which_a_browser_keeps(
    serve, sweep_of, begin, store: TrialStore
) -> None:
    sid = sweep_of(1).id
    end(store, begin(0.5), 0.5)
    served = serve()
    for path in ("/", "/workers", f"/sweep/{sid}", f"/sweep/{sid}/1"):
        _, headers, text = served.get(path)
        assert "<script>" not in text and "<style>" not in text, path
        assert "script-src 'self';" in headers["content-security-policy"]
        found = re.findall(r' (?:src|href)="(/[a-z]+\.(?:js|css)\?v=[0-9a-f]{16})"', text)
        assert {".css", ".js"} == {Path(urlsplit(one).path).suffix for one in found}, path
        for address in found:
            status, kept, _ = served.get(address, **{"Accept-Encoding": "gzip"})
            assert status == 200 and kept["cache-control"] == "max-age=86400", address
            assert kept["content-type"].startswith(("text/javascript", "text/css"))


def test_a_poll_has_only_the_parts_that_changed(
    serve, sweep_of, begin, report, store: TrialStore
) -> None:
    sid, claim = sweep_of(3).id, begin(0.5)
    served = serve()
    opened = served.moment(sid)
    report(claim, 2, 0.6)
    grown = served.patch(sid, opened)
    assert grown["trials"]["step"] == [2]
    assert grown.keys().isdisjoint(("head", "names", "metrics", "winner", "scale"))
    end(store, claim, 0.6)
    won = served.patch(sid, grown["at"])
    assert won.keys() >= {"head", "winner", "scale"} and won.keys().isdisjoint(("metrics", "by"))
    claim = begin(0.1)
    assert "head" not in served.patch(sid, won["at"])
    assert served.patch(sid, grown["at"])["head"] == won["head"], "for a tab that missed it"


def test_a_trial_has_its_log_a_file_and_its_curves_at_addresses_of_their_own(
    serve, environ, tmp_path, sweep_of, store, who, keys, redis
) -> None:
    environ["HPQ_STORE"] = str(tmp_path / "store")
    shelf, sid = Shelf(tmp_path / "store", redis, keys), sweep_of(1).id
    claim = take(store, who, "a")
    point = Point(step=1, name="acc", value=0.5)
    batch = ReportBatch(seq=1, step=1, log=b"a line\n", points=(point,))
    store.beat(claim, who, batch, lease_ms=LEASE)
    end(store, claim, 0.5, artifacts=shelf.artifacts(claim))
    served = serve()
    for page in ("", "/log", "/changes"):
        assert "a line" in served.get(f"/sweep/{sid}/1{page}")[2], page
    assert served.get(f"/sweep/{sid}/1/file/file")[2] == "x"
    assert json.loads(served.get(f"/curves/{sid}?metric=acc")[2])


def test_a_copied_result_shows_the_curves_and_files_of_the_trial_that_trained(
    serve, environ, tmp_path, sweep_of, store, who, keys, redis
) -> None:
    environ["HPQ_STORE"] = str(tmp_path / "store")
    shelf, old = Shelf(tmp_path / "store", redis, keys), sweep_of(1).id
    claim = take(store, who, "a")
    points = tuple(Point(step=n, name="acc", value=n / 10) for n in (1, 2))
    batch = ReportBatch(seq=1, step=2, log=b"a line\n", points=points)
    store.beat(claim, who, batch, lease_ms=LEASE)
    end(store, claim, 0.5, artifacts=shelf.artifacts(claim))
    sid = sweep_of(1, sid="copy-00000").id
    copied = take(store, who, "a")
    end(store, copied, 0.5)
    redis.hset(keys.trial(copied.trial), "reused", f"{old}/1")
    served = serve()
    page = served.get(f"/sweep/{sid}/1")[2]
    assert "a line" in page and "data-points" in page and "1/file/file" in page
    assert "a line" in served.get(f"/sweep/{sid}/1/log")[2]
    assert served.get(f"/sweep/{sid}/1/file/file")[2] == "x"


def test_a_finished_trial_appears_on_the_open_page(
    serve, sweep_of, begin, store: TrialStore, tab: Callable[..., Tab]
) -> None:
    sweep: SweepView = sweep_of(4)
    end(store, begin(0.1, 0.5), 0.5)
    second = begin(0.2, 0.7)
    shown = serve().show(tab(), f"/sweep/{sweep.id}")
    shown.until("document.querySelector('#live').textContent.startsWith('live')")
    assert "acc 0.5000" in shown.text("h1")
    end(store, second, 0.75)
    shown.until("document.querySelector('h1').textContent.includes('0.7500')")
    shown.until(
        "document.querySelectorAll('#table tbody tr td:nth-child(2)')[0].textContent === 'finished'"
    )
    assert shown.page.evaluate("document.querySelector('#table tbody tr').dataset.n") == "2"
    heads = shown.page.locator("#table thead th").all_inner_texts()
    cells = shown.page.locator("#table tbody tr[data-n='1'] td").all_inner_texts()
    assert cells[heads.index("time")]  # also of a trial of a few milliseconds
    facts = shown.page.locator("main pre").inner_text().splitlines()
    assert not [line for line in facts if line.startswith(("state", "trials"))]  # of its opening
    assert shown.messages == []
    own = urlsplit(shown.page.url).netloc
    assert all(
        urlsplit(u).netloc == own or u.startswith(("data:", "blob:")) for u in shown.requests
    )


def test_the_front_moves_on_the_open_page_and_a_trial_says_what_dominates_it(
    serve, sweep_of, store: TrialStore, who: WorkerPresence, take, tab: Callable[..., Tab]
) -> None:
    metrics = (Metric(name="acc", goal=Goal.MAXIMIZE), Metric(name="ms"))
    limit = Constraint.parse("ms <= 30")
    sid = sweep_of(4, metric=metrics[0], objectives=metrics, constraints=(limit,)).id

    def run(acc: float, ms: float) -> None:
        claim, values = take(), {"acc": acc, "ms": ms}
        points = tuple(Point(step=1, name=name, value=value) for name, value in values.items())
        store.beat(claim, who, ReportBatch(seq=1, step=1, points=points), lease_ms=30_000)
        end(store, claim, acc)

    run(0.5, 20)
    served = serve()
    shown, trial = served.show(tab(), f"/sweep/{sid}"), served.show(tab(), f"/sweep/{sid}/1")
    assert "1 of 1 result is on the front" in shown.text("h1")
    assert "meets the constraints" not in " ".join(shown.page.locator(".note").all_inner_texts())
    assert trial.text("h1") == "Trial #1: acc 0.5000, ms 20.00, on the front"
    run(0.4, 10)
    shown.until("document.querySelector('h1').textContent.includes('2 of 2 results')")
    run(0.6, 9)
    shown.until("document.querySelector('h1').textContent.includes('1 of 3 results')")
    shown.until("document.querySelectorAll('#table tbody tr').length === 3")
    assert "on the front" in shown.text("#table tbody tr[data-n='3']")
    assert "dominated by #3" in shown.text("#table tbody tr[data-n='1']")
    shown.until("document.querySelector('#front-plot').data[0].x.length === 1")
    trial.until("document.querySelector('h1').textContent.includes('dominated by #3')")
    assert "#3, dominates it" in trial.text(".compared >> nth=0")
    run(0.7, 8)
    cell = "document.querySelector(`#table tbody tr[data-n='1']`).textContent"
    shown.until(f"{cell}.includes('dominated by #4')")  # though nothing of trial 1 changed
    assert shown.messages == [] == trial.messages


def test_a_metric_is_read_when_it_is_chosen(
    serve, sweep_of, store: TrialStore, who: WorkerPresence, take, tab: Callable[..., Tab]
) -> None:
    sweep: SweepView = sweep_of(2)
    points = tuple(Point(step=k, name=n, value=k) for k in (1, 2) for n in ("acc", "train/a b"))
    batch = ReportBatch(seq=1, step=2, objective=2.0, points=points)
    store.beat(take(), who, batch, lease_ms=30_000)
    shown = serve().show(tab(), f"/sweep/{sweep.id}")
    assert not any("/curves/" in url for url in shown.requests)
    shown.page.select_option("#metric", "train/a b")
    shown.until("document.querySelectorAll('[data-panel] canvas').length === 2")
    assert shown.text("#curves-n").startswith("acc and train/a b by step")
    assert any("/curves/" in url for url in shown.requests) and shown.messages == []


def test_a_running_trial_moves_without_an_event(
    serve, sweep_of, begin, report, tab: Callable[..., Tab]
) -> None:
    sweep: SweepView = sweep_of(2)
    claim = begin(0.1, 0.2)
    shown = serve().show(tab(), f"/sweep/{sweep.id}")
    shown.until("document.querySelector('#live').textContent.startsWith('live')")
    report(claim, 3, 0.625)
    shown.until("document.querySelector('#table tbody').textContent.includes('0.625')")
    assert "acc by step; 1 trial" in shown.text("#curves-n")
    shown.page.focus("#table tbody a")
    begin(0.3, 0.4)
    shown.until("document.querySelector('#curves-n').textContent.includes('2 trials')")
    shown.until("document.querySelectorAll('#table tbody a').length === 2")
    assert shown.page.evaluate("document.activeElement.textContent") == "1"
    assert shown.messages == []


def test_the_page_of_a_running_trial_follows_it(
    serve, sweep_of, store: TrialStore, who: WorkerPresence, take, tab: Callable[..., Tab]
) -> None:
    sweep: SweepView = sweep_of(2)
    claim = take()

    def send(seq: int, *values: float) -> None:
        points = [Point(step=seq, name="acc", value=values[0])]
        points += [
            Point(step=k, name=n, value=v)
            for n in ("train/loss", "val/loss", "mae", "val_mae", HOSTILE)
            for k, v in enumerate(values, 10 * seq)
        ]
        log = f"epoch {seq}\n{HOSTILE}\n".encode()
        batch = ReportBatch(seq=seq, step=seq, objective=values[0], points=tuple(points), log=log)
        batch = replace(batch, run_info=json.dumps({"name": HOSTILE, "tags": ["t1", "t2"]}))
        store.beat(claim, who, batch, lease_ms=30_000)

    send(1, 0.5, 0.25)
    shown = serve().show(tab(), f"/sweep/{sweep.id}")
    shown.page.click(f"#table tbody a[href='/sweep/{sweep.id}/1']")
    shown.page.wait_for_url(f"**/sweep/{sweep.id}/1")
    shown.until("document.querySelectorAll('#panels canvas').length > 0")
    captions = shown.page.locator("#panels figcaption").all_inner_texts()
    assert [c for c in captions if "train/loss 0.25" in c and "val/loss 0.25" in c]
    assert [c for c in captions if "val_mae" in c and c.count("mae") == 2], "as Keras names them"
    assert not any("acc" in c for c in captions), "one value is no curve"
    assert HOSTILE in shown.text("#log") and "0.5000" in shown.text("h1")
    assert HOSTILE in shown.text("h1") and "t1, t2" in shown.text("#listing .meta")
    send(2, 0.625, 0.125)
    shown.until("document.querySelector('#log').textContent.includes('epoch 2')")
    shown.until("document.querySelector('#panels').textContent.includes('acc 0.625')")
    assert "epoch 1" in shown.text("#log") and "0.6250" in shown.text("h1")
    assert shown.count("img[src=x]") == 0 and "owned" not in shown.page.title()
    assert shown.messages == []


def test_a_link_to_a_trials_page_has_its_zoom_and_its_scales(
    serve, sweep_of, begin, tab: Callable[..., Tab]
) -> None:
    sweep: SweepView = sweep_of(2)
    begin(*(float(k) for k in range(1, 12)))
    served = serve()
    shown = served.show(tab(), f"/sweep/{sweep.id}/1")
    shown.until("document.querySelector('#panels canvas') !== null")
    shown.page.locator("#panels .u-over").scroll_into_view_if_needed()
    box = shown.page.locator("#panels .u-over").bounding_box()
    assert box
    middle = box["y"] + box["height"] / 2
    shown.page.mouse.move(box["x"] + box["width"] / 4, middle)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + 3 * box["width"] / 4, middle, steps=3)
    shown.page.mouse.up()
    shown.page.click("#panels figcaption button")
    drawn = "(({ ranges, shown }) => [ranges.x, ranges.y, shown.y.log])"
    chart = "[...document.querySelectorAll('#panels .lines')].find(one => one.chart).chart"
    found = shown.page.evaluate(f"{drawn}({chart})")
    assert found[0] == pytest.approx([2.75, 8.25], abs=0.1) and found[2] is True
    link = shown.page.evaluate("location.pathname + location.hash")
    again = served.show(tab(), link)
    again.until("document.querySelector('#panels canvas') !== null")
    assert again.page.evaluate(f"{drawn}({chart})") == [
        pytest.approx(found[0], rel=1e-5), pytest.approx(found[1]), True,
    ]  # fmt: skip
    again.page.mouse.dblclick(box["x"] + 9, middle)
    again.page.click("#panels figcaption button")
    assert again.page.evaluate(f"{drawn}({chart})")[0] == [0, 11]
    assert shown.messages == again.messages == []


def test_the_peak_of_a_short_curve_is_drawn(
    serve, sweep_of, begin, tab: Callable[..., Tab]
) -> None:
    sweep: SweepView = sweep_of(2)
    begin(0.38, 0.38, 0.88, 0.27, 0.27, 0.38)
    shown = serve().show(tab(), f"/sweep/{sweep.id}/1")
    shown.until("document.querySelector('#panels canvas') !== null")
    ends = "[...document.querySelectorAll('#panels *')].find(one => one.chart).chart.ranges.y"
    assert shown.page.evaluate(ends)[1] > 0.88
    assert "not drawn" not in shown.text("#panels")


def test_curves_that_did_not_change_are_not_sent_with_the_log(
    serve, sweep_of, begin, report, store: TrialStore, who: WorkerPresence
) -> None:
    sweep: SweepView = sweep_of(2)
    claim, served = begin(0.1, 0.2), serve()

    def poll(since: str) -> Any:
        until = time.monotonic() + DEADLINE_S
        while True:
            status, _, text = served.get(f"/sweep/{sweep.id}/1/changes?since={since}")
            if status != 304:
                return json.loads(text)
            assert time.monotonic() < until

    first = poll("")
    store.beat(claim, who, ReportBatch(seq=2, step=2, log=b"a line"), lease_ms=30_000)
    second = poll(first["at"])
    assert "data-points" in first["html"] and "data-points" not in second["html"]
    report(claim, 3, 0.3)
    assert "data-points" in poll(second["at"])["html"]
    assert "data-points" in poll("")["html"]


def test_a_trials_page_has_what_it_used_over_time(
    serve, sweep_of, begin, store: TrialStore, who: WorkerPresence, tab: Callable[..., Tab]
) -> None:
    sweep: SweepView = sweep_of(2)
    claim, served = begin(0.1, 0.2), serve()
    used = UsageCurves(seconds=(1, 3), values={"rss_gb": (0.5, 2), "gpu.util": (None, 97.5)})
    store.beat(claim, who, ReportBatch(seq=2, usage=used), lease_ms=30_000)
    page = json.loads(served.get(f"/sweep/{sweep.id}/1/changes?since=")[2])["html"]
    found = re.search(r'data-system="([^"]+)"', page)
    assert found and json.loads(html.unescape(found[1])) == {
        "x": [1, 3],
        "lines": [
            {"name": "GPU use", "unit": "%", "y": [None, 97.5]},
            {"name": "memory", "unit": "GiB", "y": [0.5, 2]},
        ],
    }
    shown = served.show(tab(), f"/sweep/{sweep.id}/1")
    shown.page.locator("#system").scroll_into_view_if_needed()
    shown.until("document.querySelectorAll('#system canvas').length === 2")
    assert shown.page.locator("#system figcaption span:first-child").all_inner_texts()
    axes = "[...document.querySelectorAll('#system .lines')].map(box => box.chart.shown)"
    found = shown.page.evaluate(f"{axes}.map(one => [one.x.name, one.y.name, one.lines[0].y])")
    assert found == [["time", "%", [None, 97.5]], ["time", "GiB", [0.5, 2]]]
    assert shown.messages == []


def test_the_overlay_has_any_metric_of_a_trial_that_is_in_no_sample(
    serve, sweep_of, begin, store: TrialStore, who: WorkerPresence, tab: Callable[..., Tab]
) -> None:
    count = 501  # one more than a page draws all of
    sid = sweep_of(count).id
    for n in range(count):
        claim = take(store, who)
        points = [Point(step=k, name="loss", value=n) for k in (1, 2)]
        store.beat(claim, who, ReportBatch(seq=1, step=2, points=tuple(points)), lease_ms=LEASE)
        end(store, claim, n / count)
    served = serve()
    drawn = json.loads(served.get(f"/curves/{sid}?metric=loss")[2])["n"]
    first, second = sorted({*range(1, count + 1)} - {*drawn})[:2]
    lines = "document.querySelector('#overlay-plot').chart?.shown?.lines.map(one => one.name)"
    shown = served.show(tab(), f"/sweep/{sid}#{sid}?trials={sid}/{first}&over=loss")
    shown.until(f"String({lines}) === '{sid}/{first}'")
    shown.page.evaluate(f"location.hash = '#{sid}/{second}'")
    shown.page.click("#trial [data-key=overlay]")
    shown.until(f"String({lines}) === '{sid}/{first},{sid}/{second}'")
    assert shown.messages == []


def test_a_sweeps_page_draws_what_its_trials_used_when_it_is_chosen(
    serve, sweep_of, begin, store: TrialStore, who: WorkerPresence, tab: Callable[..., Tab]
) -> None:
    sweep: SweepView = sweep_of(3)
    for k, is_over in enumerate((True, False), start=1):
        used = UsageCurves(seconds=(1, 3), values={"rss_gb": (k, 2), "gpu.util": (None, 97.5)})
        claim = begin(0.1, 0.2)
        store.beat(claim, who, ReportBatch(seq=2, usage=used), lease_ms=30_000)
        if is_over:
            end(store, claim, 0.2, usage={"rss_gb": 2, "gpu.util": 97.5})
    begin(0.1)  # it has no readings
    shown = serve().show(tab(), f"/sweep/{sweep.id}")
    assert not [url for url in shown.requests if "_system" in url], "read when it is chosen"
    names = shown.page.locator("#metric option").all_inner_texts()
    assert names == ["Add a metric …", "GPU use, %", "memory, GiB"]
    shown.page.select_option("#metric", label="memory, GiB")
    lines = "document.querySelector('[data-panel=\"_system/rss_gb\"] .lines')?.chart?.shown?.lines"
    shown.until(f"{lines}?.length === 2")
    assert shown.page.evaluate(f"{lines}.map(one => [one.x, one.y])") == [
        [pytest.approx([1, 3], abs=1e-3), pytest.approx([k, 2], abs=1e-3)] for k in (2, 1)
    ]
    assert shown.text("#curves-n").startswith("acc and memory, GiB by step and time")
    shown.page.select_option("#curves-x", "_runtime")
    assert shown.page.evaluate(f"{lines}[0].x") == pytest.approx([1, 3], abs=1e-3)
    again = shown.page.evaluate("location.hash")
    shown.page.reload()
    shown.until(f"{lines}?.length === 2")
    assert shown.page.evaluate("location.hash") == again and shown.messages == []


def test_what_trials_use_is_offered_while_the_first_of_them_run_and_in_the_report(
    serve, sweep_of, begin, store, who, hpq, tmp_path: Path, tab: Callable[..., Tab]
) -> None:
    sweep: SweepView = sweep_of(3)
    claim = begin(0.1, 0.2)
    served = serve()
    at = served.moment(sweep.id)
    used = UsageCurves(seconds=(1, 3), values={"rss_gb": (1, 2)})
    store.beat(claim, who, ReportBatch(seq=2, step=3, usage=used), lease_ms=30_000)
    assert served.patch(sweep.id, at)["system"] == {"_system/rss_gb": "memory, GiB"}
    file = tmp_path / "report.html"
    hpq("report", sweep.id, "--out", str(file))
    lines = "document.querySelector('[data-panel=\"_system/rss_gb\"] .lines')?.chart?.shown?.lines"
    for shown in (served.show(tab(), f"/sweep/{sweep.id}"), tab().open(file.as_uri())):
        shown.page.select_option("#metric", label="memory, GiB")
        shown.until(f"{lines}?.length === 1")
        assert shown.page.evaluate(f"[{lines}[0].x, {lines}[0].y]") == [
            pytest.approx([1, 3], abs=1e-3), pytest.approx([1, 2], abs=1e-3),
        ]  # fmt: skip
        assert shown.messages == []


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_shows_the_best_values_of_the_list_without_a_swipe(
    width: int, serve, sweep_of, begin, store: TrialStore, tab: Callable[..., Tab]
) -> None:
    sweep_of(2, note="a long note of this sweep " * 9, tags=("one", "two"))
    end(store, begin(0.1, 0.5), 0.5)
    shown = serve().show(tab(width=width, height=844))
    box = shown.page.locator("tbody .of-best").bounding_box()
    assert box and box["x"] + box["width"] < width and shown.text("tbody .of-best") == "0.5000"
    sideways = "document.querySelector('#listing').scrollWidth"
    assert shown.page.evaluate(f"{sideways} <= document.querySelector('#listing').clientWidth")


def test_a_phone_names_both_columns_of_a_trial_beside_the_winner(
    serve, sweep_of, begin, store: TrialStore, tab: Callable[..., Tab]
) -> None:
    sid = sweep_of(2).id
    for value in (0.5, 0.4):
        end(store, begin(value), value)
    shown = serve().show(tab(width=390, height=844), f"/sweep/{sid}/2")
    assert shown.page.locator(".compared thead >> nth=0").is_visible()


PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
INSIDE = {"_type": "image-file", "path": "media/hist_7_0a1b2c.png"}
TABLE = {
    "columns": ["id", HOSTILE],
    "data": [[INSIDE, HOSTILE]] + [[n, HOSTILE] for n in range(299)],
}


def test_a_trials_page_has_its_files_and_serves_no_other_and_none_as_a_page(
    serve, environ, tmp_path, sweep_of, store, take, keys, redis, tab: Callable[..., Tab]
) -> None:
    environ["HPQ_STORE"] = str(tmp_path / "store")
    shelf, sid = Shelf(tmp_path / "store", redis, keys), sweep_of(2).id
    kept = {
        "media/hist_7_0a1b2c.png": PIXEL,
        "media/hist_7_1a1b2c.png": PIXEL + b"second",
        "media/hist_8_0a1b2c.png": PIXEL,
        "media/rows_3.table.json": json.dumps(TABLE).encode(),
        "media/other.json": b"[]",
        "media/captions.json": json.dumps({"media/hist_7_0a1b2c.png": HOSTILE}).encode(),
        "media/broken_3.table.json": b"[]",
        "a b/#?%.html": HOSTILE.encode(),
        "x.svg": b"<svg/>",
    }
    claim = take()
    left = shelf.artifacts(claim)
    for name, data in kept.items():
        with shelf.files.write(f"{left.path}/{name}") as file:
            file.write(data)
    sizes = {name: len(data) for name, data in kept.items()} | {
        "gone": 1,
        "../file": 1,
        "x.svg": 5000,
    }
    sizes |= {f"shard-{n}": 1 for n in range(600)}
    end(store, claim, 0.5, artifacts=replace(left, files=sizes))
    served = serve()
    shown = served.show(tab(), f"/sweep/{sid}/1")
    shown.until("document.querySelector('img').naturalWidth === 1")
    shown.until("document.querySelectorAll('[data-table] tr').length === 101")
    shown.until("document.querySelector('#listing').textContent.includes('not a table')")
    assert "media/other" not in shown.text("#listing h3")
    assert "step 8" in shown.text("figure:has(img)") and "100 of 300" in shown.text("#listing")
    pictures = "[...document.querySelectorAll('figure > a img')].map((one) => one.alt)"
    newest = sorted((n for n in kept if n.endswith("png")), key=lambda n: (-int(n[11]), n))
    shown.until("document.querySelectorAll('figcaption')[1].textContent.includes('<img')")
    assert "captions" not in shown.text("section:has(> div .strip)")
    assert shown.page.evaluate(pictures) == newest, "those of a step as the script's list"
    shown.until("document.querySelector('td img').naturalWidth === 1")
    assert shown.messages == [] and "owned" not in shown.page.title()
    assert shown.count("a[download]") == 499 and "../file" in shown.text("#listing")
    at = f"/sweep/{sid}/1/file/"
    assert served.get(at + quote("a b/#?%.html"))[2] == HOSTILE
    for name in ("a b/#?%.html", "x.svg", "media/rows_3.table.json"):
        _, headers, sent = served.get(at + quote(name))
        assert sent == kept[name].decode(), "not as many bytes as the trial has recorded"
        assert headers["content-type"] == "application/octet-stream", name
        assert headers["content-disposition"].startswith("attachment"), name
        assert headers["x-content-type-options"] == "nosniff"
    assert served.get(at + quote("x.svg"), Cookie="")[0] == 403
    (folder := tmp_path / "store" / left.path).joinpath("shard-1").symlink_to(__file__)
    os.mkfifo(folder / "shard-2")
    others = (
        "shard-1",
        "shard-2",
        "gone",
        "file",
        "../file",
        "..%2Ffile",
        "media",
        "%2Fetc%2Fpasswd",
        "media/../x.svg",
    )
    for name in others:
        assert served.get(at + name)[0] == 404, name
    assert served.get(f"/sweep/{sid}/2/file/x.svg")[0] == 404
    assert served.get(f"/sweep/{sid}/3")[0] == 404


def test_a_pointer_to_files_that_are_not_the_trials_downloads_none_of_them(
    serve, environ, tmp_path, sweep_of, store, take, keys, redis
) -> None:
    """A client of Redis names another trial's folder; the dashboard may read the whole store."""
    environ["HPQ_STORE"] = str(tmp_path / "store")
    shelf, sid = Shelf(tmp_path / "store", redis, keys), sweep_of(1).id
    claim = take()
    left = shelf.artifacts(claim)
    end(store, claim, 0.5, artifacts=left)
    served, at = serve(), f"/sweep/{sid}/1/file/file"
    assert served.get(at)[2] == "x"
    for path in forged_paths(claim.trial, left.path):
        with suppress(OSError), shelf.files.write(f"{path}/file") as file:
            file.write(b"theirs")
        forged = json.dumps({"store": left.store, "path": path, "files": {"file": 6}})
        redis.hset(keys.trial(claim.trial), "artifacts", forged)
        status, _, sent = served.get(at)
        assert status != 200 and "theirs" not in sent, path


def test_new_sweeps_and_workers_appear_in_the_lists(
    serve, sweep_of, begin, store: TrialStore, who: WorkerPresence, tab: Callable[..., Tab]
) -> None:
    served = serve()
    shown = served.show(tab())
    assert "No sweep yet" in shown.text("#listing")
    sweep: SweepView = sweep_of(2)
    shown.until("document.querySelector('#listing a') !== null")
    shown.page.click("#listing a")
    shown.page.wait_for_url("**/sweep/*")  # until it is loaded, the new page has no body
    shown.until("document.body.dataset.ready === 'yes'")
    assert sweep.id in shown.text(".sweep") and shown.messages == []
    phone = served.show(tab(width=390))
    assert "other" not in phone.text("#listing")
    fail(store, begin(0.1), "no")
    phone.until("/1\\sfailed/.test(document.querySelector('#listing').innerText)")
    workers = served.show(tab(), "/workers")
    store.present(who, idle=True, lifetime_ms=30_000)
    workers.until("document.querySelector('#listing').textContent.includes('w1')")
    assert workers.messages == []


def test_sweeps_chosen_in_the_list_are_overlaid_by_any_metric_and_followed(
    serve, sweep_of, take, store, who, control: SweepControl, tab: Callable[..., Tab]
) -> None:
    claims = {}
    for sid in ("one-00000", "two-00000"):
        sweep_of(1, sid)
        claim = claims[sid] = take()
        points = tuple(Point(step=k, name=n, value=k) for k in (1, 2) for n in ("acc", "train/acc"))
        batch = ReportBatch(seq=1, step=2, objective=2.0, points=points)
        store.beat(claim, who, batch, lease_ms=30_000)
    served = serve()
    shown = served.show(tab())
    for sid in claims:
        shown.page.check(f"[value='{sid}']")
    shown.page.focus("[value='one-00000']")
    sweep_of(1, "new-00000")
    shown.until("document.querySelector('[value=new-00000]') !== null")
    assert shown.page.evaluate("document.activeElement.value") == "one-00000"
    assert shown.count("#listing :checked") == 2, "the new list has the boxes of the old one"
    shown.page.click("#compare")
    shown.page.wait_for_url("**/sweep/*")
    shown.until("document.body.dataset.ready === 'yes'")
    assert "acc, 1 and 1 trials" in shown.text("#overlay-n")
    shown.page.select_option("#overlay-metric", "train/acc")
    shown.until("document.querySelector('#overlay-n').textContent.startsWith('train/acc, 1 and 1')")
    assert {u.rpartition("/")[2] for u in shown.requests if "/curves/" in u} == {
        f"{sid}?metric=train%2Facc" for sid in claims
    }
    end(store, claims["two-00000"], 0.75)
    shown.until(
        "document.querySelector('[data-of=two-00000]').textContent.includes('0.7500')"
        " && document.querySelector('[data-sweep=two-00000] h1').textContent.includes('0.7500')"
    )
    assert shown.messages == [] and served.get("/sweep/one-00000+none-00000")[0] == 404
    control.remove("one-00000")
    shown.until("document.querySelector('#live').textContent === 'live; one-00000 was removed'")
    assert "0.7500" in shown.text("[data-sweep=two-00000] h1")
    assert shown.count("[data-of]") == 1


def test_a_list_that_did_not_change_is_not_sent_again(serve, sweep_of, redis: Redis) -> None:
    served = serve()
    moment = json.loads(served.get("/changes")[2])["at"]
    assert served.get(f"/changes?since={moment}")[0] == 304
    sweep: SweepView = sweep_of(2)
    until = time.monotonic() + DEADLINE_S
    while (answer := served.get(f"/changes?since={moment}"))[0] == 304:
        assert time.monotonic() < until
        time.sleep(0.02)
    answer = json.loads(answer[2])
    assert sweep.id in answer["html"]
    redis.config_resetstat()
    while commands(redis, "zrange", "zrevrange") < 4:  # seconds later, the sweep is older
        assert served.get(f"/changes?since={answer['at']}")[0] == 304
        assert time.monotonic() < until


def test_a_click_that_a_new_sweep_interrupts_opens_its_link(
    serve, sweep_of, tab: Callable[..., Tab]
) -> None:
    first: SweepView = sweep_of(2)
    served = serve()
    shown, other = served.show(tab()), served.show(tab())
    shown.page.hover("#listing a")
    shown.page.mouse.down()
    sweep_of(3, "demo-11111")
    other.until("document.querySelectorAll('#listing tbody tr').length === 2")
    while len({url for url in shown.requests if "?since=" in url}) < 3:  # it has the new list
        shown.page.wait_for_timeout(20)
    shown.page.mouse.up()
    shown.page.wait_for_url(f"**/sweep/{first.id}")
    assert shown.messages == []


def test_a_sweep_removed_while_shown_keeps_its_last_state(
    serve, sweep_of, begin, store: TrialStore, control: SweepControl, tab: Callable[..., Tab]
) -> None:
    sweep: SweepView = sweep_of(1)
    end(store, begin(0.1, 0.5), 0.5)
    shown = serve().show(tab(), f"/sweep/{sweep.id}")
    shown.until("document.querySelector('#live').textContent.startsWith('live')")
    control.remove(sweep.id)
    shown.until("document.querySelector('#live').textContent.includes('removed')")
    assert "acc 0.5000" in shown.text("h1")
    assert [text for text in shown.messages if "404" not in text] == []


def test_a_page_says_since_when_it_is_not_live_and_comes_back(
    serve, sweep_of, begin, store: TrialStore, redis: Redis, tab: Callable[..., Tab]
) -> None:
    sweep: SweepView = sweep_of(2)
    end(store, begin(0.1, 0.5), 0.5)
    shown = serve().show(tab(), f"/sweep/{sweep.id}")
    shown.until("document.querySelector('#live').textContent.startsWith('live')")
    redis.config_set("maxclients", 1)
    try:
        redis.client_kill_filter(_type="normal", skipme=True)
        shown.until("document.querySelector('#live').textContent.startsWith('not live since')")
    finally:
        redis.config_set("maxclients", 10_000)
    end(store, begin(0.1, 0.75), 0.75)
    shown.until("document.querySelector('h1').textContent.includes('0.7500')")
    shown.until("document.querySelector('#live').textContent.startsWith('live')")


def test_a_tab_that_polls_again_gets_what_it_missed(
    serve, sweep_of, begin, store: TrialStore
) -> None:
    sweep: SweepView = sweep_of(4)
    end(store, begin(0.1, 0.5), 0.5)
    served = serve()
    first = served.moment(sweep.id)
    assert served.changes(sweep.id, first) == 304
    at = first
    for n, value in ((2, 0.25), (3, 0.75)):
        end(store, begin(0.1, value), value)
        found = served.patch(sweep.id, at)
        assert found["trials"]["n"] == [n] and found["curves"]["len"] == [2]
        at = found["at"]
    missed = served.changes(sweep.id, first)
    assert missed["trials"]["n"] == [2, 3] and missed["trials"]["y"] == [0.25, 0.75]
    assert missed["winner"] == 3 and "0.7500" in missed["head"]
    assert served.changes(sweep.id, missed["at"]) == 304


@pytest.mark.parametrize("since", ["", "0", "abc", "-1", "1-1", quote("²"), 2**62, "9" * 5_000])
def test_a_moment_that_the_dashboard_does_not_know_loads_the_page_again(
    serve, sweep_of, since: object
) -> None:
    sweep: SweepView = sweep_of(2)
    assert serve().changes(sweep.id, since) == {"reset": True}


def test_an_axis_that_changes_loads_the_page_again(
    serve, sweep_of, begin, store: TrialStore
) -> None:
    """A logarithmic axis has no place for the new value."""
    sweep: SweepView = sweep_of(4)
    for value in (1e-6, 1e-3, 1.0):
        end(store, begin(value), value)
    served = serve()
    first = served.moment(sweep.id)
    end(store, begin(-1.0), -1.0)
    assert served.patch(sweep.id, first) == {"reset": True}
    assert served.changes(sweep.id, served.moment(sweep.id)) == 304


def test_more_events_than_one_read_returns_are_all_seen(
    serve, sweep_of, begin, store: TrialStore, control: SweepControl
) -> None:
    sweep: SweepView = sweep_of(2_000)
    served = serve()
    claim = begin(0.1, 0.5)
    first = served.moment(sweep.id)
    control.pause(sweep.id)
    for _ in range(600):
        control.resume(sweep.id)
        control.pause(sweep.id)
    control.resume(sweep.id)
    end(store, claim, 0.5)
    found = served.patch(sweep.id, first)
    assert found["trials"]["n"] == [1] and found["trials"]["y"] == [0.5]


@pytest.mark.parametrize("when", ["opened", "before the counts", "after the counts"])
def test_counts_and_trials_of_a_page_are_of_one_moment(
    desk: Desk, sweep_of, begin, store: TrialStore, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """A trial ends while the page reads: the headline is neither ahead of the charts nor behind."""
    sweep: SweepView = sweep_of(4)
    end(store, begin(0.1, 0.5), 0.5)
    late = [begin(0.2, 0.75)]
    with open_session() as session:
        reader, settings = session.reader, session.settings
        before = None if when == "opened" else read_sweep(reader, sweep.id, settings)
        read = reader.sweeps.get_question

        def end_late() -> None:
            while late:
                end(store, late.pop(), 0.75)

        def question(sid: str) -> Question[SweepView]:
            if when == "before the counts":
                end_late()
            found = yield from read(sid)
            end_late()
            return found

        monkeypatch.setattr(reader.sweeps, "get_question", question)
        if before is None:
            data = read_sweep(reader, sweep.id, settings)
        else:
            data = read_changes(reader, settings, before)
    counts = data.sweep.counts
    assert (counts.finished, counts.running) == (2, 0)
    assert [trial.state for trial in data.trials] == [TrialState.FINISHED] * 2
    assert data.status.best[0].objective == 0.75
    assert "the best of 2 results" in "".join(text for text, _ in lead_of(data))


def test_importance_follows_the_last_trials_though_nothing_happens_after_them(
    desk: Desk, sweep_of, begin, store: TrialStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep: SweepView = sweep_of(4)
    end(store, begin(0.1), 0.1)
    monkeypatch.setattr("hpq_views.page.live._FRESH_S", 0)
    with open_session() as session:
        live = LiveSweep(session.reader, sweep.id, session.settings, acts=False)
        with live.fresh():
            opened = str(live.data.status.at_ms)
        end(store, begin(0.2), 0.2)
        found = live.changes(opened)  # soon after the first computation
        assert found is not None and live.data.importance.sets == 1
        monkeypatch.setattr("hpq_views.page.live._IMPORTANCE_S", 0)
        until = time.monotonic() + DEADLINE_S
        while (last := live.changes(str(found["at"]))) is None:
            assert time.monotonic() < until
        assert live.data.importance.sets == 2 and last["trials"]["n"] == []
        assert live.changes(str(last["at"])) is None


READS = ("exists", "hgetall", "hmget", "lrange", "xrevrange", "zmscore", "zrange")


def commands(redis: Redis, *names: str) -> int:
    """Return how often Redis ran these commands."""
    stats: Any = redis.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in names)


def test_twenty_tabs_cost_redis_the_reads_of_one(serve, sweep_of, begin, redis: Redis) -> None:
    sweep: SweepView = sweep_of(4)
    begin(0.1, 0.2)
    served = serve()
    moment = served.moment(sweep.id)

    def cost(tabs: int) -> float:
        """Return the commands of one read, of which there is one a second at most."""
        redis.config_resetstat()
        began, reads = time.monotonic(), 0
        with ThreadPoolExecutor(tabs) as pool:
            while reads < 3:
                assert set(pool.map(lambda _: served.changes(sweep.id, moment), range(tabs))) == {
                    304
                }
                reads = commands(redis, "xread") // 2  # and whether anything changed meanwhile
                assert reads <= time.monotonic() - began + 1 < DEADLINE_S
        return commands(redis, *READS) / reads

    assert 0 < cost(1) == cost(20)


def test_polls_of_a_quiet_sweep_read_no_trial(
    serve, sweep_of, begin, store: TrialStore, redis: Redis
) -> None:
    sweep: SweepView = sweep_of(4)
    end(store, begin(0.1, 0.5), 0.5)
    served = serve()
    moment = served.moment(sweep.id)
    redis.config_resetstat()
    until = time.monotonic() + DEADLINE_S
    while commands(redis, "xread") < 2:
        assert served.changes(sweep.id, moment) == 304
        assert time.monotonic() < until
    assert commands(redis, *READS) == commands(redis, "exists") == commands(redis, "xread")


def test_a_poll_of_ten_thousand_trials_with_eight_running_is_twenty_kilobytes(
    serve, writer: SweepWriter, take, store: TrialStore, who: WorkerPresence, report
) -> None:
    sets = drawn_sets(10_000)
    data = made(sets[:9_900], sid="wide-00000", metric="acc", points=1, spec=RANGES)
    sid = data.sweep.id
    writer.add_rows(sid, 1, [encode_new(ParameterSet(one), 0) for one in sets])
    writer.stage_results(data.sweep, ((t.id.number, t) for t in data.trials))
    assert writer.create(replace(data.sweep, counts=Counts())) is None
    claims = [take() for _ in range(8)]
    for k, claim in enumerate(claims):
        points = tuple(
            Point(step=n, name="acc", value=0.9 - 1 / (n + k + 3)) for n in range(1, 200)
        )
        batch = ReportBatch(seq=1, step=199, objective=0.8, points=points)
        store.beat(claim, who, batch, lease_ms=30_000)
    served = serve()
    moment = served.moment(sid)
    for claim in claims:
        report(claim, 200, 0.8123456789)
    for claim in claims[:2]:
        end(store, claim, 0.8123456789)
        take()
    assert len(served.patch(sid, moment)["trials"]["n"]) == 10
    status, _, text = served.get(f"/sweep/{sid}/changes?since={moment}")
    assert status == 200 and len(text.encode()) <= 20_000


def test_control_c_ends_it_though_redis_hangs(serve, sweep_of, redis: Redis) -> None:
    """A call of a server that does not answer is tried again for minutes."""
    sweep: SweepView = sweep_of(2)
    served, server = serve(), redis.info("server")["process_id"]
    served.moment(sweep.id)
    os.kill(server, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor() as pool:
            pool.submit(served.get, "/")
            served.process.send_signal(signal.SIGINT)
            _, err = served.process.communicate(timeout=60)
    finally:
        os.kill(server, signal.SIGCONT)
    assert "Traceback" not in err


def test_a_poll_of_a_sweep_that_was_removed_is_not_found(
    serve, sweep_of, control: SweepControl
) -> None:
    """A reset would load the page again, which is not found; the open page keeps its last state."""
    sweep: SweepView = sweep_of(2)
    served = serve()
    moment = served.moment(sweep.id)
    control.remove(sweep.id)
    assert served.patch(sweep.id, moment) == 404
    assert served.changes("nothing", moment) == 404


@pytest.mark.parametrize("part", ["ended", "rank"])
def test_a_page_of_damaged_data_names_the_key_and_follows_the_sweep_once_it_is_mended(
    serve, sweep_of, begin, store: TrialStore, redis: Redis, keys: Keys, part: str
) -> None:
    sweep: SweepView = sweep_of(4)
    end(store, begin(0.1, 0.5), 0.5)
    served, key = serve(), keys.sweep(sweep.id, part)
    moment = served.moment(sweep.id)
    redis.rename(key, "aside")
    redis.set(key, "x")
    redis.xadd(keys.sweep(sweep.id, "events"), {"e": "paused"})
    assert served.patch(sweep.id, moment) == 503
    assert key in served.get(f"/sweep/{sweep.id}")[2]
    assert served.get(f"/sweep/{sweep.id}x")[0] == 404
    redis.delete(key)
    redis.rename("aside", key)
    assert served.patch(sweep.id, moment)["at"] > moment
    redis.set("hpq:workers", "x")
    status, _, text = served.get("/workers")
    assert status == 503 and "WRONGTYPE" in text


def test_equal_digits_on_the_screen_do_not_change_the_ranks(
    serve, sweep_of, begin, store: TrialStore, tab: Callable[..., Tab]
) -> None:
    sweep: SweepView = sweep_of(2)
    for value in (0.12345671, 0.12345678):
        end(store, begin(0.1, value), value)
    shown = serve().show(tab(), f"/sweep/{sweep.id}#{sweep.id}/2")
    shown.until("document.querySelector('#trial').textContent.includes('1 of 2')")


def test_it_only_shows(serve) -> None:
    served = serve()
    for method in ("POST", "PUT", "DELETE"):
        assert served.get("/", method)[0] == 405


def test_a_page_of_another_host_is_refused(serve) -> None:
    served = serve("--no-token")
    assert served.get("/", Host="evil.example")[0] == 421
    assert served.get("/", Host="localhost:1")[0] == 200
    assert served.get("/", Host="[")[0] == 421
    for path, method in (("/no/such", "GET"), ("/", "PUT"), ("/workers/", "GET")):
        assert served.get(path, method, Host="evil.example")[0] == 421, path
        assert served.get(path, method)[1]["x-content-type-options"] == "nosniff", path
    status, headers, _ = served.get("/")
    policy = headers["content-security-policy"]
    assert status == 200 and "frame-ancestors 'none'" in policy and "unsafe-eval" not in policy


def test_behind_a_proxy_the_pages_answer_by_its_name_alone(serve, hpq) -> None:
    served = serve("--no-token", "--host", "0.0.0.0", "--allow-host", "hpq.Example.org")
    for host in ("hpq.example.org", "hpq.example.org:443", "localhost:8765", "10.0.0.7:8765"):
        assert served.get("/", Host=host)[0] == 200, host
    for host in ("evil.example", "x.hpq.example.org", "hpq.example.org.evil.example", ""):
        assert served.get("/", Host=host)[0] == 421, host
    assert served.get("/livez")[2] == "ok\n"
    for name in ("https://hpq.example.org", "hpq.example.org:443", "*", "*.example.org", "a b"):
        refused(hpq("dashboard", "--port", "0", "--allow-host", name), "usage", name, exit=2)


def test_a_host_with_capital_letters_opens_its_link(serve) -> None:
    served = serve("--host", "0X7F.1")  # an address, which browsers ask for in lower case
    assert urlsplit(served.link).netloc.startswith("0X7F.1:")
    assert served.get("/", Host=urlsplit(served.link).netloc.lower())[0] == 200
    status, _, text = served.get("/", Host="other.example")
    assert status == 421 and "hpq dashboard --allow-host other.example" in text


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_token_is_needed_once(serve, sweep_of, host: str) -> None:
    sweep: SweepView = sweep_of(2)
    served = serve("--host", host)
    name, token = served.cookie
    assert len(token) > 20
    pages = ("/", "/workers", f"/sweep/{sweep.id}", "/plotly.js")
    pages += ("/no/such", f"/sweep/{sweep.id}/{'9' * 5000}")
    pages += tuple(f"/sweep/{sweep.id}/1{part}" for part in ("", "/log", "/file/x", "/changes"))
    polls = ("/changes", f"/sweep/{sweep.id}/changes?since=0")
    for path in (*pages, *polls, "/?token=wrong", "/?token=", "/?token=%C3%A9"):
        for cookie in ("", f"{name}=", f"{name}=wrong", f"{name}=\xe9"):
            status, _, text = served.get(path, Cookie=cookie)
            assert status == 403 and sweep.id not in text, (path, cookie)
    status, headers, page = served.get(f"/workers?token={token}", Cookie="")
    cookie = headers["set-cookie"]
    assert status == 200 and "<h1>Workers" in page and token not in page
    assert "HttpOnly" in cookie and "samesite=strict" in cookie.lower()
    assert served.get("/workers", Cookie=cookie.partition(";")[0])[0] == 200


def test_the_printed_link_opens_pages_that_follow_their_sweep(
    serve, sweep_of, begin, store: TrialStore, tab: Callable[..., Tab]
) -> None:
    sweep_of(2)
    claimed = begin(0.2, 0.75)  # a page is loaded again when the first trial begins
    served, shown = serve(), tab()
    assert shown.page.goto(served.url).status == 403
    shown.page.goto(served.link)
    shown.page.wait_for_url(f"{served.url}/")  # without the token, as a link to send would have it
    shown.page.click("#listing a")
    shown.page.wait_for_url("**/sweep/*")
    shown.until("document.querySelector('#live')?.textContent.startsWith('live')")
    end(store, claimed, 0.75)
    shown.until("document.querySelector('h1').textContent.includes('0.7500')")
    assert served.cookie[1] not in shown.page.content()


def test_a_link_with_a_token_of_a_file_lasts_and_keeps_what_it_shows(
    serve, sweep_of, begin, store: TrialStore, tab: Callable[..., Tab], tmp_path: Path
) -> None:
    sweep: SweepView = sweep_of(2)
    end(store, begin(0.75), 0.75)
    file = tmp_path / "new" / "token"
    first, shown = serve("--token-file", str(file)), tab()
    query = urlsplit(first.link).query
    assert file.stat().st_mode & 0o777 == 0o600 and query == f"token={file.read_text()}"
    place = f"/sweep/{sweep.id}"
    shown.open(f"{first.url}{place}?{query}#{sweep.id}/1")
    assert shown.page.url == f"{first.url}{place}#{sweep.id}/1"
    assert shown.text("#trial h2") == "Trial #1"
    shown.page.goto("about:blank")  # else the page loads itself anew from the second server
    first.process.kill()
    first.process.wait()
    port = str(urlsplit(first.url).port)
    again = serve("--token-file", str(file), "--port", port)
    assert again.link == first.link and again.get("/")[0] == 200
    assert shown.open(f"{again.url}{place}").count("#table tbody tr") == 1  # by the cookie


def test_a_file_that_is_no_secret_is_refused(hpq, tmp_path: Path) -> None:
    file = tmp_path / "token"

    def code() -> str:
        done = hpq("dashboard", "--port", "0", "--token-file", str(file))
        assert done.returncode == 2 and not done.stdout
        return str(done.stderr.strip().rpartition(" ")[2])

    for text in ("", "short", "a word with spaces", "0123456789abcdef\n0123456789abcdef"):
        file.write_text(text)
        file.chmod(0o600)
        assert code() == "[usage]", text
    file.write_text("0123456789abcdef")
    file.chmod(0o644)
    assert code() == "[token-exposed]"
    file.unlink()
    file.mkdir()
    assert code() == "[file-unreadable]"
    (tmp_path / "file").touch()
    file = tmp_path / "file" / "token"
    assert code() == "[file-unwritable]"
    done = hpq("dashboard", "--no-token", "--token-file", str(file))
    assert done.returncode == 2 and "[usage]" in done.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_without_a_token_the_dashboard_names_its_readers(serve, host: str) -> None:
    served = serve("--no-token", "--host", host)
    assert "token" not in served.link and served.get("/", Cookie="")[0] == 200
    served.process.send_signal(signal.SIGINT)
    _, err = served.process.communicate(timeout=DEADLINE_S)
    assert ("this machine" in err) == (host == "127.0.0.1"), err


def test_a_sweep_or_trial_that_does_not_exist_is_not_found(serve, sweep_of) -> None:
    sweep_of(1)
    served = serve()
    numbers = ("9", "0", "x", "01", "٣", "9" * 5000)
    paths = [f"/sweep/demo-00000/{n}{part}" for n in numbers for part in ("", "/log", "/changes")]
    for path in ("/sweep/nothing", "/sweep/+", "/no/such", "/no/changes", *map(quote, paths)):
        assert served.get(path)[0] == 404, path
    assert served.get("/sweep/demo-00000+")[0] == 200


def test_a_port_in_use_is_one_line(serve, hpq) -> None:
    port = urlsplit(serve().url).port
    done = hpq("dashboard", "--port", port)
    assert done.returncode == 2 and "[port-unusable]" in done.stderr
