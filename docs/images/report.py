"""Photograph pages of `hpq report`: python docs/images/report.py (needs playwright, Chromium).

The sweeps are made (tests/support/made_sweeps.py): the article's 16 sets, and a random search.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from hpq_views.page.render import sweep_page
from tests.support.made_sweeps import RANGES, SETS_OF_ARTICLE, drawn_sets, made

HERE = Path(__file__).parent
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--use-gl=angle", "--use-angle=swiftshader",
         "--enable-unsafe-swiftshader"]  # fmt: skip
SEARCH = {"spec": RANGES, "points": 50, "failing": 0.02, "pruned": 0.3}
PICTURES = {
    "report-16": (lambda: made(SETS_OF_ARTICLE), "light", 1280, 720, ""),
    "report-16-dark": (lambda: made(SETS_OF_ARTICLE), "dark", 1280, 720, ""),
    "report-120-brush": (
        lambda: made(drawn_sets(120), sid="resnet-1c7e4", workers=4, **SEARCH),  # type: ignore[arg-type]
        "light", 1280, 900, "#parallel",
    ),
    "report-10000": (
        lambda: made(drawn_sets(10_000), sid="resnet-9c0de", workers=16, **SEARCH),  # type: ignore[arg-type]
        "light", 1280, 1660, "",
    ),
}  # fmt: skip


def main(*names: str) -> None:
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        for name in names or PICTURES:
            build, scheme, width, height, at = PICTURES[name]
            file = Path(folder) / "page.html"
            file.write_text(sweep_page([build()]), "utf-8")
            size = {"width": width, "height": height}
            page = browser.new_page(viewport=size, color_scheme=scheme)
            page.goto(f"file://{file}")
            while not page.evaluate("document.body.dataset.ready === 'yes'"):
                page.wait_for_timeout(100)
            if at:
                box = page.locator(f"{at}-canvas").bounding_box()
                x, y = box["x"] + 24, box["y"] + 34
                page.evaluate("([x, y]) => scrollTo(0, y - 300)", [x, y])
                y -= page.evaluate("scrollY")
                page.mouse.move(x, y)
                page.mouse.down()
                page.mouse.move(x, y + 90, steps=4)
                page.mouse.up()
                page.locator("#table tbody tr").nth(2).evaluate("row => row.click()")
                page.evaluate("at => document.querySelector(at).scrollIntoView()", at)
            page.wait_for_timeout(1500)
            shot = page.screenshot()
            (HERE / f"{name}.png").write_bytes(shot)
            if len(shot) > 300_000:
                with Image.open(io.BytesIO(shot)) as image:
                    small = image.convert("RGB").quantize(200, kmeans=1)
                    small.save(HERE / f"{name}.png", optimize=True)
            page.close()
        browser.close()


main(*sys.argv[1:])
