"""The pages of the best trials, which a report carries."""

from __future__ import annotations

import base64
import gzip
import json
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from redis import Redis

from hpq.domain.attempt import ReportBatch, WorkerPresence
from hpq.domain.sweep import Goal, Metric, SweepView
from hpq.domain.trial import Claim, Point
from hpq.store.keys import Keys
from hpq.store.trials import TrialStore
from tests.integration.page.conftest import Tab
from tests.support.store_calls import LEASE, Shelf, end

for library in ("plotly", "jinja2"):
    pytest.importorskip(library, reason=f"{library} is not installed")

Hpq = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[..., str]
HOSTILE = "<img src=x onerror=document.title='owned'>"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
LARGE = PIXEL + bytes(90_000)
FILES = {
    "media/hist_7_0a1b2c.png": PIXEL,
    **{f"media/large_{step}_0a1b2c.png": LARGE for step in (1, 2, 3)},
    "media/rows_3.table.json": b'{"columns": [], "data": []}',
    "media/captions.json": json.dumps({"media/hist_7_0a1b2c.png": HOSTILE}).encode(),
    "plan.svg": b"<svg/>",
}


def pages_of(page: str) -> dict[str, str]:
    """Return the HTML of each trial's page."""
    found = re.findall(r'data-trial="([^"]+)">([^<]*)<', page)
    return {trial: gzip.decompress(base64.b64decode(data)).decode() for trial, data in found}


@pytest.fixture
def run(store: TrialStore, who: WorkerPresence, take: Callable[[], Claim]) -> Callable[..., Claim]:
    """Return a function that claims a trial, which reports and prints."""

    def begin(value: float, **last: float) -> Claim:
        claim = take()
        points = [
            Point(step=k, name=name, value=end_ * k / 3)
            for name, end_ in {"acc": value, "val/loss": 1 - value, **last}.items()
            for k in (1, 2, 3)
        ]
        log = f"line of {claim.trial.number}\n{HOSTILE}\n".encode()
        batch = ReportBatch(seq=1, step=3, objective=value, points=tuple(points), log=log)
        store.beat(claim, who, batch, lease_ms=LEASE)
        return claim

    return begin


@pytest.fixture
def keep(
    environ: dict[str, str], tmp_path: Path, redis: Redis, keys: Keys, store: TrialStore
) -> Callable[..., None]:
    """Return a function that ends a trial with files in a store."""
    environ["HPQ_STORE"] = str(tmp_path / "store")
    shelf = Shelf(tmp_path / "store", redis, keys)

    def finish(claim: Claim, value: float, files: Mapping[str, bytes]) -> None:
        left = shelf.artifacts(claim)
        for name, data in files.items():
            with shelf.files.write(f"{left.path}/{name}") as file:
                file.write(data)
        sizes = {name: len(data) for name, data in files.items()}
        end(store, claim, value, artifacts=replace(left, files=sizes))

    return finish


@pytest.fixture
def write(hpq: Hpq, tmp_path: Path) -> Write:
    """Return a function that writes a report of sweeps and returns it."""

    def report(*sids: str) -> str:
        done = hpq("report", *sids, "--out", "page.html")
        assert done.returncode == 0, done.stderr
        return (tmp_path / "page.html").read_text("utf-8")

    return report


def test_a_report_has_the_pages_of_the_ten_trials_that_rank_first(
    sweep_of, run, store: TrialStore, write: Write
) -> None:
    sweep: SweepView = sweep_of(13)
    for k in range(12):
        end(store, run(k / 16), k / 16)
    run(0.99)  # it has no result yet
    found = pages_of(write(sweep.id))
    assert [*found] == [f"{sweep.id}/{n}" for n in range(12, 2, -1)]
    for trial, page in found.items():
        assert f"line of {trial.rpartition('/')[2]}\n" in page, "the end of its log"
        assert "val/loss" in page and "href=" not in page, "a file links to no dashboard"


@pytest.mark.parametrize(
    ("sweep_fields", "numbers"),
    [
        ({"replicates": 2}, [3, 1]),
        ({"objectives": (Metric(name="acc", goal=Goal.MAXIMIZE),
                         Metric(name="val/loss", goal=Goal.MAXIMIZE))}, [1, 2, 3, 4]),
    ],
)  # fmt: skip
def test_the_trials_with_a_page_are_those_that_the_first_screen_ranks(
    sweep_fields: dict[str, object], numbers: list[int], sweep_of, run, store, write: Write
) -> None:
    sweep: SweepView = sweep_of(4, **sweep_fields)
    for value in (0.1, 0.4, 0.3, 0.6):
        end(store, run(value), value)
    found = [int(trial.rpartition("/")[2]) for trial in pages_of(write(sweep.id))]
    assert (sorted(found) if "objectives" in sweep_fields else found) == numbers


def test_pictures_are_held_up_to_a_size_and_the_page_says_what_it_leaves_out(
    sweep_of, run, keep, write: Write
) -> None:
    sweep: SweepView = sweep_of(1)
    keep(run(0.5), 0.5, FILES)
    (page,) = pages_of(write(sweep.id)).values()
    held = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="([^"]+)"', page)
    assert {name: base64.b64decode(data) for data, name in held} == {
        name: FILES[name]
        for name in (
            "media/hist_7_0a1b2c.png",
            "media/large_3_0a1b2c.png",
            "media/large_2_0a1b2c.png",
        )
    }
    assert "1 picture and 1 table left out" in page and "the newest 2 of 3" in page
    assert "&lt;img src=x" in page and "plan.svg" in page


def test_a_file_that_cannot_be_read_is_left_out(
    sweep_of, run, keep, write: Write, environ: dict[str, str], tmp_path: Path
) -> None:
    sweep: SweepView = sweep_of(2)
    keep(run(0.5), 0.5, {"a.png": PIXEL, "b.png": PIXEL})
    keep(run(0.6), 0.6, {"c.png": PIXEL})
    (gone,) = (tmp_path / "store").rglob("a.png")
    gone.unlink()
    (grown,) = (tmp_path / "store").rglob("c.png")
    grown.write_bytes(PIXEL + b"more")
    second, first = pages_of(write(sweep.id)).values()
    assert "1 picture left out" in first and 'alt="b.png"' in first and 'alt="a.png"' not in first
    assert "1 picture left out" in second and "<img" not in second.replace("&lt;img", "")
    environ["HPQ_STORE"] = str(tmp_path / "other")
    second, first = pages_of(write(sweep.id)).values()
    assert "line of 1\n" in first and "HPQ_STORE" in first, "and it says why"


@pytest.fixture
def shown(
    sweep_of, run, keep, store: TrialStore, write: Write, tmp_path: Path, tab: Callable[..., Tab]
) -> Callable[..., Tab]:
    """Return a function that opens a report of three trials, of which the second has pictures."""
    sweep: SweepView = sweep_of(3)
    end(store, run(0.25), 0.25)
    keep(run(0.75), 0.75, FILES)
    end(store, run(0.5), 0.5)
    write(sweep.id)
    return lambda at="": tab().open(f"file://{tmp_path}/page.html{at}")


OPEN = "document.querySelector('#page').open"


@pytest.mark.parametrize(
    ("link", "number"),
    [(".winner h2 a", 2), ("#table tbody tr:nth-child(2) a", 3), ("#trial a", 2)],
)
def test_a_page_of_a_trial_opens_over_that_of_the_sweep(
    link: str, number: int, shown: Callable[..., Tab]
) -> None:
    tab = shown("#demo-00000/2" if link.startswith("#trial") else "")
    assert tab.count("#page h1") == 0, "drawn when it is opened"
    tab.page.click(link)
    tab.until("document.querySelectorAll('#page canvas').length === 2")
    assert f"Trial #{number}" in tab.text("#page h1") and f"line of {number}" in tab.text("#log")
    assert tab.page.evaluate("location.hash") == f"#demo-00000/{number}?page=1"
    values = "[...document.querySelectorAll('#page .lines')].map(b => b.chart.shown.lines[0].y[2])"
    value = {2: 0.75, 3: 0.5}[number]
    assert tab.page.evaluate(values) == [value, 1 - value]
    tab.page.keyboard.press("Escape")
    tab.until(f"location.hash === '#demo-00000/{number}'")
    assert tab.count("#page h1") == 0 and tab.page.is_visible("#trial")
    assert tab.messages == [] and "owned" not in tab.page.title()


def test_a_link_opens_a_page_of_a_trial_with_its_pictures(shown: Callable[..., Tab]) -> None:
    tab = shown("#demo-00000/2?page=1")
    tab.until("document.querySelector('#page img')?.naturalWidth === 1")
    assert HOSTILE in tab.text("#page .strip") and HOSTILE in tab.text("#log")
    assert all(url.startswith(("file://", "data:", "blob:")) for url in tab.requests)
    assert len([url for url in tab.requests if url.startswith("file://")]) == 1
    tab.page.click("#page button")
    tab.until(f"!{OPEN}")
    assert tab.messages == [] and tab.count("img[src=x]") == 0
