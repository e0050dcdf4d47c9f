"""A browser for the pages, what it complained about, and a running dashboard."""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis import Redis

from hpq.domain.attempt import WorkerPresence
from hpq.domain.trial import Claim
from hpq.store.trials import TrialStore
from tests.support.commands import HPQ
from tests.support.constants import DEADLINE_S
from tests.support.store_calls import report

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


class Served:
    """A running `hpq dashboard`, and the cookie of a browser that has opened its link."""

    def __init__(self, process: subprocess.Popen[str], link: str) -> None:
        self.process, self.link = process, link
        there = urlsplit(link)
        self.url = f"{there.scheme}://{there.netloc}"
        self.cookie = f"hpq-dashboard-{there.port}", there.query.removeprefix("token=")

    def show(self, tab: Tab, path: str = "/") -> Tab:
        """Open a page in a browser that has the cookie."""
        name, value = self.cookie
        tab.page.context.add_cookies([{"name": name, "value": value, "url": self.url}])
        return tab.open(self.url + path)

    def get(
        self, path: str, method: str = "GET", **headers: str
    ) -> tuple[int, Mapping[str, str], str]:
        headers = {"Cookie": "=".join(self.cookie), **headers}
        there = urlsplit(self.url)
        host = "127.0.0.1" if there.hostname not in ("127.0.0.1", "::1") else there.hostname
        connection = http.client.HTTPConnection(host, there.port, timeout=DEADLINE_S)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        sent, received = answer.read(), dict(answer.getheaders())
        connection.close()
        if headers.get("Accept-Encoding") and received.get("content-encoding") == "gzip":
            sent = gzip.decompress(sent)
        return answer.status, received, sent.decode()

    def changes(self, sid: str, since: object) -> Any:
        """Poll as a tab does; return the status if no JSON came."""
        status, _, text = self.get(f"/sweep/{sid}/changes?since={since}")
        return json.loads(text) if status == 200 else status

    def patch(self, sid: str, since: object) -> Any:
        """Poll until something changed."""
        until = time.monotonic() + DEADLINE_S
        while (found := self.changes(sid, since)) == 304:
            assert time.monotonic() < until
            time.sleep(0.02)
        return found

    def moment(self, sid: str) -> int:
        """Open a sweep's page; return the moment that it shows."""
        found = re.search(r'id="data">([^<]+)<', self.get(f"/sweep/{sid}")[2])
        assert found
        return int(json.loads(gzip.decompress(base64.b64decode(found[1])))[0]["at"])


@pytest.fixture
def serve(
    environ: dict[str, str], tmp_path: object, redis: Redis
) -> Iterator[Callable[..., Served]]:
    """Return a function that starts the dashboard."""
    running = []

    def start(*words: str) -> Served:
        command = [HPQ, "dashboard", "--port", "0", *words]
        process = subprocess.Popen(
            command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        running.append(process)
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, process.communicate()
        there, until = urlsplit(url), time.monotonic() + DEADLINE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", there.port), timeout=1).close()
                return Served(process, url)
            except OSError:
                assert process.poll() is None and time.monotonic() < until
                time.sleep(0.02)

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def begin(
    store: TrialStore, who: WorkerPresence, take: Callable[[], Claim]
) -> Callable[..., Claim]:
    """Return a function that claims a trial and reports values of acc."""

    def run(*values: float, log: bytes = b"") -> Claim:
        claim = take()
        report(store, who, claim, log, acc=values)
        return claim

    return run
