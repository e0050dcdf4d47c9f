"""`hpq dashboard`: a real server process, asked over HTTP and watched by a browser."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from redis import Redis

from hpq.domain.attempt import Outcome, ReportBatch, WorkerPresence
from hpq.domain.sweep import Sweep
from hpq.domain.trial import Claim, Point, TrialState
from hpq.store.control import SweepControl
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from tests.integration.page.conftest import Tab
from tests.support.commands import HPQ
from tests.support.constants import DEADLINE_S

for library in ("starlette", "uvicorn", "jinja2", "plotly"):
    pytest.importorskip(library, reason=f"{library} is not installed")
live = pytest.importorskip("hpq_producer.page.live")

HOSTILE = "<img src=x onerror=document.title='owned'>"


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
        found = answer.status, dict(answer.getheaders()), answer.read().decode()
        connection.close()
        return found

    @contextmanager
    def stream(self, topic: str, after: str = "0", **headers: str) -> Iterator[Events]:
        there = urlsplit(self.url)
        connection = http.client.HTTPConnection(there.hostname, there.port, timeout=DEADLINE_S)
        headers = {"Cookie": "=".join(self.cookie), **headers}
        connection.request("GET", f"/events?topic={topic}&after={after}", headers=headers)
        answer = connection.getresponse()
        try:
            yield Events(answer)
        finally:
            answer.close()
            connection.close()


class Events:
    """The events of an open stream."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.answer = answer

    def next(self) -> tuple[str, str, str]:
        """Return id, name and data of the next event."""
        found, until = {"id": "", "event": "", "data": ""}, time.monotonic() + DEADLINE_S
        while line := self.answer.readline().decode():
            assert time.monotonic() < until  # a quiet stream has comments
            name, _, value = line.rstrip("\n").partition(": ")
            found[name] = value
            if line == "\n" and found["event"]:
                return found["id"], found["event"], found["data"]
        raise AssertionError("the stream ended")


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
        points = tuple(Point(step=k, name="acc", value=v) for k, v in enumerate(values, 1))
        batch = ReportBatch(seq=1, step=len(values), objective=values[-1], points=points, log=log)
        store.beat(claim, who, batch, lease_ms=30_000)
        return claim

    return run


def finish(store: TrialStore, claim: Claim, value: float) -> None:
    store.commit(claim, Outcome(state=TrialState.FINISHED, objective=value, step=2))


def test_a_finished_trial_appears_on_the_open_page(
    serve, sweep_of, begin, store: TrialStore, tab: Callable[..., Tab]
) -> None:
    sweep: Sweep = sweep_of(4)
    finish(store, begin(0.1, 0.5), 0.5)
    second = begin(0.2, 0.7)
    shown = serve().show(tab(), f"/sweep/{sweep.id}")
    shown.until("document.querySelector('#live').textContent.startsWith('live')")
    assert "acc 0.5000" in shown.text("h1")
    finish(store, second, 0.75)
    shown.until("document.querySelector('h1').textContent.includes('0.7500')")
    shown.until(
        "document.querySelectorAll('#table tbody tr td:nth-child(2)')[0].textContent === 'finished'"
    )
    assert shown.page.evaluate("document.querySelector('#table tbody tr').dataset.n") == "2"
    assert shown.messages == []
    own = urlsplit(shown.page.url).netloc
    assert all(
        urlsplit(u).netloc == own or u.startswith(("data:", "blob:")) for u in shown.requests
    )


def test_a_metric_is_read_when_it_is_chosen(
    serve, sweep_of, store: TrialStore, who: WorkerPresence, take, tab: Callable[..., Tab]
) -> None:
    sweep: Sweep = sweep_of(2)
    points = tuple(Point(step=k, name=n, value=k) for k in (1, 2) for n in ("acc", "train/a b"))
    batch = ReportBatch(seq=1, step=2, objective=2.0, points=points)
    store.beat(take(), who, batch, lease_ms=30_000)
    shown = serve().show(tab(), f"/sweep/{sweep.id}")
    assert not any("/curves/" in url for url in shown.requests)
    shown.page.select_option("#metric", "train/a b")
    shown.until("document.querySelector('#curves-n').textContent.startsWith('train/a b by step')")
    assert any("/curves/" in url for url in shown.requests) and shown.messages == []


def test_a_running_trial_moves_without_an_event(
    serve, sweep_of, begin, store: TrialStore, who: WorkerPresence, tab: Callable[..., Tab]
) -> None:
    sweep: Sweep = sweep_of(2)
    claim = begin(0.1, 0.2)
    shown = serve().show(tab(), f"/sweep/{sweep.id}")
    shown.until("document.querySelector('#live').textContent.startsWith('live')")
    points = (Point(step=3, name="acc", value=0.625),)
    store.beat(
        claim, who, ReportBatch(seq=2, step=3, objective=0.625, points=points), lease_ms=30_000
    )
    shown.until("document.querySelector('#table tbody').textContent.includes('0.625')")
    assert shown.messages == []


def test_a_selected_trial_shows_attempts_artifacts_and_the_end_of_its_log(
    serve, sweep_of, begin, tab: Callable[..., Tab]
) -> None:
    sweep: Sweep = sweep_of(2)
    begin(0.1, 0.2, log=f"epoch 1\n{HOSTILE}\n".encode())
    shown = serve().show(tab(), f"/sweep/{sweep.id}#{sweep.id}/1")
    shown.until("document.querySelector('#trial pre') !== null")
    assert HOSTILE in shown.text("#trial pre") and "owned" not in shown.page.title()
    assert shown.count("#trial img") == 0 and shown.messages == []


def test_a_log_that_arrives_after_the_panel_was_drawn_again_appears(
    serve, sweep_of, begin, tab: Callable[..., Tab]
) -> None:
    """Each drawing of the panel asks for the trial; here the answers come after the last one."""
    sweep: Sweep = sweep_of(2)
    begin(0.1, 0.2, log=b"epoch 1\n")
    shown, held, is_free = tab(), list[Any](), False
    shown.page.route(
        "**/trial/**", lambda route: route.continue_() if is_free else held.append(route)
    )
    serve().show(shown, f"/sweep/{sweep.id}#{sweep.id}/1")
    shown.until("document.querySelector('#live').textContent.includes('updated')")
    assert len(held) > 1
    is_free = True
    for route in held:
        route.continue_()
    shown.until("document.querySelector('#trial pre') !== null")
    assert "epoch 1" in shown.text("#trial pre") and shown.messages == []


def test_new_sweeps_and_workers_appear_in_the_lists(
    serve, sweep_of, begin, store: TrialStore, who: WorkerPresence, tab: Callable[..., Tab]
) -> None:
    served = serve()
    shown = served.show(tab())
    assert "No sweep yet" in shown.text("#listing")
    sweep: Sweep = sweep_of(2)
    shown.until("document.querySelector('#listing a') !== null")
    shown.page.click("#listing a")
    shown.page.wait_for_url("**/sweep/*")  # until it is loaded, the new page has no body
    shown.until("document.body.dataset.ready === 'yes'")
    assert sweep.id in shown.text(".sweep") and shown.messages == []
    workers = served.show(tab(), "/workers")
    store.present(who, idle=True, lifetime_ms=30_000)
    workers.until("document.querySelector('#listing').textContent.includes('w1')")
    assert workers.messages == []


def test_a_click_that_a_new_sweep_interrupts_opens_its_link(
    serve, sweep_of, tab: Callable[..., Tab]
) -> None:
    first: Sweep = sweep_of(2)
    served = serve()
    shown, other = served.show(tab()), served.show(tab())
    shown.page.hover("#listing a")
    shown.page.mouse.down()
    sweep_of(3, "demo-11111")
    other.until("document.querySelectorAll('#listing tbody tr').length === 2")
    shown.page.evaluate("fetch('/')")  # the server sent the list to both tabs; this one has it now
    shown.page.mouse.up()
    shown.page.wait_for_url(f"**/sweep/{first.id}")
    assert shown.messages == []


def test_a_sweep_removed_while_shown_keeps_its_last_state(
    serve, sweep_of, begin, store: TrialStore, control: SweepControl, tab: Callable[..., Tab]
) -> None:
    sweep: Sweep = sweep_of(1)
    finish(store, begin(0.1, 0.5), 0.5)
    shown = serve().show(tab(), f"/sweep/{sweep.id}")
    shown.until("document.querySelector('#live').textContent.startsWith('live')")
    control.remove(sweep.id)
    shown.until("document.querySelector('#live').textContent.includes('removed')")
    assert "acc 0.5000" in shown.text("h1") and shown.messages == []


def test_a_browser_that_returns_gets_what_it_missed(
    serve, sweep_of, begin, store: TrialStore
) -> None:
    sweep: Sweep = sweep_of(4)
    finish(store, begin(0.1, 0.5), 0.5)
    served = serve()
    with served.stream(sweep.id) as events:
        last, name, _ = events.next()
        assert name == "patch" and last
    finish(store, begin(0.1, 0.25), 0.25)
    with served.stream(sweep.id, **{"Last-Event-ID": last}) as events:
        # The first patch holds what the server has read so far; a later one holds the rest.
        patches = (json.loads(events.next()[2])["trials"] for _ in iter(int, 1))
        assert next(p for p in patches if p["y"] == [0.25])["n"] == [2]


def test_a_browser_whose_events_were_trimmed_loads_the_page_again(
    serve, sweep_of, begin, store: TrialStore, redis: Redis, keys: Keys
) -> None:
    sweep: Sweep = sweep_of(4)
    first = redis.xrange(keys.sweep(sweep.id, "events"), count=1)[0][0].decode()
    finish(store, begin(0.1, 0.5), 0.5)
    redis.xtrim(keys.sweep(sweep.id, "events"), maxlen=1, approximate=False)
    served = serve()
    with served.stream(sweep.id, after=first) as events:
        assert events.next()[1] == "reset"


def test_control_c_ends_it_though_a_stream_is_open(serve, sweep_of) -> None:
    sweep: Sweep = sweep_of(2)
    served = serve()
    with served.stream(sweep.id) as events:
        events.next()
        served.process.send_signal(signal.SIGINT)
        _, err = served.process.communicate(timeout=DEADLINE_S)
        assert "Traceback" not in err


def test_control_c_ends_it_though_redis_hangs(serve, sweep_of, redis: Redis) -> None:
    """A call of a server that does not answer is tried again for minutes."""
    sweep: Sweep = sweep_of(2)
    served, server = serve(), redis.info("server")["process_id"]
    with served.stream(sweep.id) as events:
        events.next()
        os.kill(server, signal.SIGSTOP)
        try:
            with ThreadPoolExecutor() as pool:
                pool.submit(served.get, "/")
                served.process.send_signal(signal.SIGINT)
                _, err = served.process.communicate(timeout=60)
        finally:
            os.kill(server, signal.SIGCONT)
        assert "Traceback" not in err


@pytest.mark.parametrize("after", ["abc", "1-1-1", "²-0", "-"])
def test_a_place_in_the_events_that_is_none_begins_at_the_first(
    serve, sweep_of, begin, store: TrialStore, after: str
) -> None:
    sweep: Sweep = sweep_of(2)
    finish(store, begin(0.1, 0.5), 0.5)
    with serve().stream(sweep.id, after=quote(after)) as events:
        _, name, data = events.next()
        assert name == "patch" and json.loads(data)["trials"]["n"] == [1]


def test_a_place_that_no_event_has_reached_loads_the_page_again(serve, sweep_of) -> None:
    sweep: Sweep = sweep_of(2)
    with serve().stream(sweep.id, after=f"{2**70}-0") as events:
        assert events.next()[1] == "reset"


def test_a_sweep_that_was_removed_before_its_page_follows_it_is_gone(
    serve, sweep_of, control: SweepControl, reader: StoreReader
) -> None:
    """A reset would load the page again, which is not found; the open page keeps its last state."""
    sweep: Sweep = sweep_of(2)
    served = serve()
    assert sweep.id in served.get(f"/sweep/{sweep.id}")[2]
    last = reader.events.last_id(sweep.id)
    control.remove(sweep.id)
    with served.stream(sweep.id, after=last) as events:
        assert events.next()[1] == "gone"


def test_a_stream_of_a_sweep_that_is_gone_says_so_and_one_in_an_outage_comes_back(
    serve, sweep_of, redis: Redis
) -> None:
    """A browser gives a stream up at an HTTP error, so the stream itself tells."""
    sweep: Sweep = sweep_of(2)
    served = serve()
    with served.stream("nothing") as events:
        assert events.next()[1] == "gone"
    redis.config_set("maxclients", 1)
    try:
        redis.client_kill_filter(_type="normal", skipme=True)
        with served.stream(sweep.id) as events:
            assert events.next()[1] == "away"
    finally:
        redis.config_set("maxclients", 10_000)
    with served.stream(sweep.id) as events:
        assert events.next()[1] == "patch"


@pytest.mark.parametrize("part", ["ended", "rank"])
def test_a_page_of_damaged_data_names_the_key_and_follows_the_sweep_once_it_is_mended(
    serve, sweep_of, begin, store: TrialStore, redis: Redis, keys: Keys, part: str
) -> None:
    sweep: Sweep = sweep_of(4)
    finish(store, begin(0.1, 0.5), 0.5)
    served, key = serve(), keys.sweep(sweep.id, part)
    with served.stream(sweep.id) as events:
        assert events.next()[1] == "patch"
        redis.rename(key, "aside")
        redis.set(key, "x")
        redis.xadd(keys.sweep(sweep.id, "events"), {"e": "paused"})
        assert next(e for e in iter(events.next, None) if e[1] == "away")[2].count(key)
        status, _, text = served.get(f"/sweep/{sweep.id}x")
        assert status == 404
        redis.delete(key)
        redis.rename("aside", key)
        assert next(e for e in iter(events.next, None) if e[1] == "patch")
    redis.set("hpq:workers", "x")
    status, _, text = served.get("/workers")
    assert status == 503 and "WRONGTYPE" in text


def test_equal_digits_on_the_screen_do_not_change_the_ranks(
    serve, sweep_of, begin, store: TrialStore, tab: Callable[..., Tab]
) -> None:
    sweep: Sweep = sweep_of(2)
    for value in (0.12345671, 0.12345678):
        finish(store, begin(0.1, value), value)
    shown = serve().show(tab(), f"/sweep/{sweep.id}#{sweep.id}/2")
    shown.until("document.querySelector('#trial').textContent.includes('1 of 2')")


def test_a_page_that_nobody_follows_is_read_anew(serve, sweep_of, begin, store: TrialStore) -> None:
    sweep: Sweep = sweep_of(2)
    finish(store, begin(0.1, 0.5), 0.5)
    served = serve()
    assert "acc 0.5000" in served.get(f"/sweep/{sweep.id}")[2]
    finish(store, begin(0.1, 0.75), 0.75)
    assert "acc 0.7500" in served.get(f"/sweep/{sweep.id}")[2]


def test_it_only_shows(serve) -> None:
    served = serve()
    for method in ("POST", "PUT", "DELETE"):
        assert served.get("/", method)[0] == 405


def test_a_page_of_another_host_is_refused(serve) -> None:
    served = serve("--no-token")
    assert served.get("/", Host="evil.example")[0] == 421
    assert served.get("/", Host="localhost:1")[0] == 200
    assert served.get("/", Host="[")[0] == 421
    status, headers, _ = served.get("/")
    policy = headers["content-security-policy"]
    assert status == 200 and "frame-ancestors 'none'" in policy and "unsafe-eval" not in policy


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_token_is_needed_once(serve, sweep_of, host: str) -> None:
    sweep: Sweep = sweep_of(2)
    served = serve("--host", host)
    name, token = served.cookie
    assert len(token) > 20
    pages = ("/", "/workers", f"/sweep/{sweep.id}", f"/trial/{sweep.id}/1", "/plotly.js")
    for path in (*pages, "/events?topic=/", "/?token=wrong", "/?token=", "/?token=%C3%A9"):
        for cookie in ("", f"{name}=", f"{name}=wrong", f"{name}=\xe9"):
            status, _, text = served.get(path, Cookie=cookie)
            assert status == 403 and sweep.id not in text, (path, cookie)
    status, headers, page = served.get(f"/workers?token={token}", Cookie="")
    cookie = headers["set-cookie"]
    assert status == 200 and "url=/workers" in page and token not in page
    assert "HttpOnly" in cookie and "samesite=strict" in cookie.lower()
    assert served.get("/workers", Cookie=cookie.partition(";")[0])[0] == 200


def test_the_printed_link_opens_pages_that_follow_their_sweep(
    serve, sweep_of, begin, store: TrialStore, tab: Callable[..., Tab]
) -> None:
    sweep_of(2)
    served, shown = serve(), tab()
    assert shown.page.goto(served.url).status == 403
    shown.page.goto(served.link)
    shown.page.wait_for_url(f"{served.url}/")  # without the token, as a link to send would have it
    shown.page.click("#listing a")
    shown.page.wait_for_url("**/sweep/*")
    shown.until("document.querySelector('#live')?.textContent.startsWith('live')")
    finish(store, begin(0.2, 0.75), 0.75)
    shown.until("document.querySelector('h1').textContent.includes('0.7500')")
    assert served.cookie[1] not in shown.page.content()


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
    for path in ("/sweep/nothing", "/trial/demo-00000/9", "/no/such"):
        assert served.get(path)[0] == 404, path


def test_a_port_in_use_is_one_line(serve, hpq) -> None:
    port = urlsplit(serve().url).port
    done = hpq("dashboard", "--port", port)
    assert done.returncode == 2 and "[port-unusable]" in done.stderr


def test_a_slow_browser_gets_a_reset() -> None:
    async def read() -> list[str]:
        slow = live.Subscriber("s", asyncio.get_running_loop())
        for n in range(40):
            slow.put(("patch", str(n), ""))
        await asyncio.sleep(0)
        names = []
        while not slow.queue.empty():
            message = slow.queue.get_nowait()
            assert message is not None
            names.append(message[0])
        return names

    with ThreadPoolExecutor() as pool:  # playwright runs a loop in this thread
        names = pool.submit(asyncio.run, read()).result()
    assert "reset" in names and len(names) <= 16
