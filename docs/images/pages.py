"""Photograph the web page for docs/ (`make picture`; needs Chromium).

The sweeps are real and train on scikit-learn's digits: the 16 trials of configs/digits.yaml, and a
random search of 120. `hpq dashboard` serves them and `hpq report` writes them, as for any user.
Only the report of 10,000 trials is of a made sweep (tests/support/made_sweeps.py).
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from hpq_views.page.render import sweep_page
from tests.support.made_sweeps import RANGES, drawn_sets, made

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--use-gl=angle", "--use-angle=swiftshader",
         "--enable-unsafe-swiftshader"]  # fmt: skip
LIMIT_S = 900.0
SETTLE_MS = 1500  # until the last chart is drawn
COLORS = 200  # of a stored picture: half the bytes
FINISHED = 10  # trials of the grid, when its page is photographed
SEARCH = """
name: digits-search
trainer: digits
method: random
seed: 4
run_cap: 120
metric: {name: test/acc, goal: maximize}
early_terminate: {type: hyperband, min_iter: 10, eta: 3}
parameters:
  max_learning_rate: {distribution: log_uniform_values, min: 1e-3, max: 1}
  momentum: {min: 0.0, max: 0.98}
  hidden: {values: [4, 8, 16, 32, 64, 128]}
  weight_decay: {distribution: log_uniform_values, min: 1e-6, max: 0.1}
  batch_size: {values: [32, 64, 128, 256]}
  epochs: {value: 40}
"""


def main() -> None:
    """Run the sweeps and write the pictures beside this file."""
    with (
        tempfile.TemporaryDirectory(prefix="hpq-pages-") as home,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        hpq = Commands(Path(home))
        with hpq.runs("configs/digits.yaml"), hpq.serves() as link:
            grid = hpq.wait_for("digits", FINISHED)
            photograph(browser, link, "dashboard", at=f"/sweep/{grid}", dark=True, height=735)
            hpq.print("wait", grid)
            photograph(browser, link, "trial", at=f"/sweep/{grid}/3", height=900)
        report = hpq.report(grid)
        photograph(browser, report, "report-16")
        file = Path(home) / "search.yaml"
        file.write_text(SEARCH)
        with hpq.runs(str(file)):
            search = hpq.wait_for("digits-search", 1)
            with hpq.serves() as link:
                photograph(browser, link, "workers", at="/workers", height=180)
            hpq.print("wait", search)
        photograph(browser, hpq.report(search), "report-120-brush", brush=True, height=900)
        with hpq.serves() as link:
            photograph(browser, link, "list", at="/", height=220)
            photograph(browser, link, "overlay", at=f"/sweep/{grid}+{search}", height=620)
            photograph(browser, link, "phone", at=f"/sweep/{grid}", width=390, height=844)
        large = made(drawn_sets(10_000), sid="resnet-9c0de", workers=16, spec=RANGES, points=50,
                     failing=0.02, pruned=0.3)  # fmt: skip
        file = Path(home) / "large.html"
        file.write_text(sweep_page([large]), "utf-8")
        photograph(browser, file.as_uri(), "report-10000", height=1660)
        browser.close()


class Commands:
    """The commands of a user with an empty home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env: Mapping[str, str] = {
            "HOME": str(home), "HPQ_HOME": f"{home}/.hpq", "USER": "ana", "HPQ_NODE": "gpu-1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "LANG": "C.UTF-8",
        }  # fmt: skip

    def print(self, *words: str) -> str:
        """Return what a command prints; a trial that failed is no reason to stop."""
        command = ["hpq", *words]
        return subprocess.run(
            command, cwd=ROOT, env=self.env, capture_output=True, text=True
        ).stdout

    @contextmanager
    def runs(self, file: str) -> Iterator[None]:
        """Run a sweep file with two workers; cancel what is left of it."""
        command = ["hpq", "run", file, "--workers", "2"]
        with (self.home / "run.log").open("a") as log:
            run = subprocess.Popen(command, cwd=ROOT, env=self.env, stdout=log, stderr=log)
        try:
            yield
        finally:
            self.print("cancel", "--yes")
            run.wait()

    def wait_for(self, name: str, finished: int) -> str:
        """Wait until N trials of a sweep have finished; return its id."""
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            for sweep in json.loads(self.print("ls", "--json") or "[]"):
                if sweep["name"] == name and sweep["finished"] >= finished:
                    return str(sweep["id"])
            time.sleep(0.5)
        log = (self.home / "run.log").read_text()
        raise SystemExit(f"{name}: no {finished} trials in {LIMIT_S:.0f} s\n{log}")

    @contextmanager
    def serves(self) -> Iterator[str]:
        """Start the dashboard; yield the link that it prints."""
        command = ["hpq", "dashboard", "--port", "0"]
        served = subprocess.Popen(
            command, cwd=ROOT, env=self.env, stdout=subprocess.PIPE, text=True
        )
        assert served.stdout is not None
        try:
            yield served.stdout.readline().strip()
        finally:
            served.terminate()
            served.wait()

    def report(self, sweep: str) -> str:
        """Write the report of a sweep; return its address."""
        file = self.home / f"{sweep}.html"
        self.print("report", sweep, "--out", str(file))
        return file.as_uri()


def photograph(
    browser: Browser,
    link: str,
    name: str,
    *,
    at: str = "",
    dark: bool = False,
    width: int = 1280,
    height: int = 720,
    brush: bool = False,
) -> None:
    """Write NAME.png: the first screen of a page, or its parallel coordinates with a brush.

    `link` is that of a report, or of a dashboard, whose page `at` is shown.
    """
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        locale="en-US",
        timezone_id="UTC",
    )
    page.set_default_timeout(LIMIT_S * 1000)
    page.goto(link)
    if at:  # the browser has the token now
        there = urlsplit(link)
        page.goto(f"{there.scheme}://{there.netloc}{at}")
    until = time.monotonic() + LIMIT_S
    while not page.evaluate("document.body.dataset.ready === 'yes'"):
        assert time.monotonic() < until, f"{name}: the page is not drawn"
        page.wait_for_timeout(100)  # its policy forbids wait_for_function
    if brush:
        draw_brush(page)
    page.wait_for_timeout(SETTLE_MS)
    with Image.open(io.BytesIO(page.screenshot())) as image:
        small = image.convert("RGB").quantize(COLORS, kmeans=1)
        small.save(HERE / f"{name}.png", optimize=True)
    page.close()


def draw_brush(page: Page) -> None:
    """Keep the upper part of the first axis, select the third trial, and show the axes."""
    box = page.locator("#parallel-canvas").bounding_box()
    assert box
    x, y = box["x"] + 24, box["y"] + 34
    page.evaluate("y => scrollTo(0, y - 300)", y)
    y -= page.evaluate("scrollY")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y + 90, steps=4)
    page.mouse.up()
    page.locator("#table tbody tr").nth(2).evaluate("row => row.click()")
    page.evaluate("document.querySelector('#parallel').scrollIntoView()")


if __name__ == "__main__":
    main()
