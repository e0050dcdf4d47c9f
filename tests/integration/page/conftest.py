"""A browser for the pages, and what it complained about."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.constants import DEADLINE_S

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage"]
# A drawn GPU; otherwise "GPU stall due to ReadPixels" lands in the console.
GPU = ["--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]


class Tab:
    """A page in the browser, with the messages of its console and the addresses it asked for."""

    def __init__(self, page: Any) -> None:
        self.page, self.messages, self.requests = page, list[str](), list[str]()
        page.on("console", lambda m: self.messages.append(m.text))
        page.on("pageerror", lambda e: self.messages.append(str(e)))
        page.on("request", lambda r: self.requests.append(r.url))

    def open(self, url: str) -> Tab:
        self.page.goto(url)
        return self.until("document.body.dataset.ready === 'yes'")

    def until(self, condition: str) -> Tab:
        """Poll: wait_for_function needs eval, which the policy of the page forbids."""
        until = time.monotonic() + DEADLINE_S
        while not self.page.evaluate(condition):
            assert time.monotonic() < until, (condition, self.messages)
            self.page.wait_for_timeout(20)
        return self

    def text(self, query: str) -> str:
        return str(self.page.inner_text(query))

    def count(self, query: str = "*") -> int:
        return int(self.page.evaluate("q => document.querySelectorAll(q).length", query))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Callable[..., Any]]:
    """Return a function that starts the browser with more flags, once for each."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed")
    os.environ.setdefault("NO_AT_BRIDGE", "1")
    with sync_api.sync_playwright() as playwright:
        started: dict[tuple[str, ...], Any] = {}

        def start(*flags: str) -> Any:
            if flags not in started:
                started[flags] = playwright.chromium.launch(
                    executable_path=str(CHROMIUM), args=[*FLAGS, *(flags or GPU)]
                )
            return started[flags]

        yield start
        for browser in started.values():
            browser.close()


@pytest.fixture
def tab(chromium: Callable[..., Any]) -> Iterator[Callable[..., Tab]]:
    """Return a function that opens an empty tab of 1280 × 800."""
    contexts = []

    def make(*flags: str, width: int = 1280, height: int = 800, **more: Any) -> Tab:
        size = {"width": width, "height": height}
        contexts.append(chromium(*flags).new_context(viewport=size, **more))
        page = contexts[-1].new_page()
        page.set_default_timeout(DEADLINE_S * 1000)
        return Tab(page)

    yield make
    for context in contexts:
        context.close()
