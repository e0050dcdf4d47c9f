"""`hpq dashboard`: a real server process, asked over HTTP and watched by a browser."""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from redis import Redis

from hpq.domain.attempt import Outcome, ReportBatch, WorkerPresence
from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import Counts, SweepView
from hpq.domain.trial import Claim, Point, TrialState
from hpq.store.control import SweepControl
from hpq.store.enqueue import SweepWriter
from hpq.store.keys import Keys
from hpq.store.trials import TrialStore
from hpq.store.wire.trial import encode_new
from tests.integration.page.conftest import Tab
from tests.support.commands import HPQ
from tests.support.constants import DEADLINE_S
from tests.support.made_sweeps import RANGES, drawn_sets, made
from tests.support.store_calls import LEASE, Shelf, end, move_all, take

for library in ("starlette", "uvicorn", "jinja2", "plotly"):
    pytest.importorskip(library, reason=f"{library} is not installed")

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
        points = tuple(Point(step=k, name="acc", value=v) for k, v in enumerate(values, 1))
        batch = ReportBatch(seq=1, step=len(values), objective=values[-1], points=points, log=log)
        store.beat(claim, who, batch, lease_ms=30_000)
        return claim

    return run


@pytest.fixture
def report(store: TrialStore, who: WorkerPresence) -> Callable[..., None]:
    """Return a function that reports one more value of acc."""

    def send(claim: Claim, step: int, value: float) -> None:
        points = (Point(step=step, name="acc", value=value),)
        batch = ReportBatch(seq=step, step=step, objective=value, points=points)
        store.beat(claim, who, batch, lease_ms=30_000)

    return send


def finish(store: TrialStore, claim: Claim, value: float) -> None:
    store.commit(claim, Outcome(state=TrialState.FINISHED, objective=value, step=2))


def test_a_sweep_of_the_history_has_its_pages(
    serve, environ, tmp_path, sweep_of, store, who, keys, redis
) -> None:
    environ["HPQ_STORE"] = str(tmp_path / "store")
    shelf, sid = Shelf(tmp_path / "store", redis, keys), sweep_of(1, "old-00000").id
    claim = take(store, who, "a")
    point = Point(step=1, name="acc", value=0.5)
    batch = ReportBatch(seq=1, step=1, log=b"a line\n", points=(point,))
    store.beat(claim, who, batch, lease_ms=LEASE)
    end(store, claim, 0.5)
    move_all(environ, shelf.files)
    sweep_of(1, "live-00000")
    served = serve()
    for one in (sid, "live-00000", sid):
        assert served.moment(one) > 0
    assert "a line" in served.get(f"/trial/{sid}/1")[2]
    assert json.loads(served.get(f"/curves/{sid}?metric=acc")[2])
    assert sid not in served.get("/")[2], "the list is that of Redis"
    assert served.get("/sweep/none-00000")[0] == 404


def test_a_finished_trial_appears_on_the_open_page(
    serve, sweep_of, begin, store: TrialStore, tab: Callable[..., Tab]
) -> None:
    sweep: SweepView = sweep_of(4)
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
    sweep: SweepView = sweep_of(2)
    points = tuple(Point(step=k, name=n, value=k) for k in (1, 2) for n in ("acc", "train/a b"))
    batch = ReportBatch(seq=1, step=2, objective=2.0, points=points)
    store.beat(take(), who, batch, lease_ms=30_000)
    shown = serve().show(tab(), f"/sweep/{sweep.id}")
    assert not any("/curves/" in url for url in shown.requests)
    shown.page.select_option("#metric", "train/a b")
    shown.until("document.querySelector('#curves-n').textContent.startsWith('train/a b by step')")
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
    begin(0.3, 0.4)
    shown.until("document.querySelector('#curves-n').textContent.includes('2 trials')")
    assert shown.messages == []


def test_a_selected_trial_shows_attempts_artifacts_and_the_end_of_its_log(
    serve, sweep_of, begin, tab: Callable[..., Tab]
) -> None:
    sweep: SweepView = sweep_of(2)
    begin(0.1, 0.2, log=f"epoch 1\n{HOSTILE}\n".encode())
    shown = serve().show(tab(), f"/sweep/{sweep.id}#{sweep.id}/1")
    shown.until("document.querySelector('#trial pre') !== null")
    assert HOSTILE in shown.text("#trial pre") and "owned" not in shown.page.title()
    assert shown.count("#trial img") == 0 and shown.messages == []


def test_a_log_that_arrives_after_the_panel_was_drawn_again_appears(
    serve, sweep_of, begin, report, tab: Callable[..., Tab]
) -> None:
    """Each drawing of the panel asks for the trial; here the answers come after the last one."""
    sweep: SweepView = sweep_of(2)
    claim = begin(0.1, 0.2, log=b"epoch 1\n")
    shown, held, is_free = tab(), list[Any](), False
    shown.page.route(
        "**/trial/**", lambda route: route.continue_() if is_free else held.append(route)
    )
    serve().show(shown, f"/sweep/{sweep.id}#{sweep.id}/1")
    before = len(held)
    report(claim, 3, 0.625)
    shown.until("document.querySelector('#table tbody').textContent.includes('0.625')")
    assert len(held) > before > 0
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
    sweep: SweepView = sweep_of(2)
    shown.until("document.querySelector('#listing a') !== null")
    shown.page.click("#listing a")
    shown.page.wait_for_url("**/sweep/*")  # until it is loaded, the new page has no body
    shown.until("document.body.dataset.ready === 'yes'")
    assert sweep.id in shown.text(".sweep") and shown.messages == []
    workers = served.show(tab(), "/workers")
    store.present(who, idle=True, lifetime_ms=30_000)
    workers.until("document.querySelector('#listing').textContent.includes('w1')")
    assert workers.messages == []


def test_a_list_that_did_not_change_is_not_sent_again(serve, sweep_of) -> None:
    served = serve()
    moment = json.loads(served.get("/changes")[2])["at"]
    assert served.get(f"/changes?since={moment}")[0] == 304
    sweep: SweepView = sweep_of(2)
    until = time.monotonic() + DEADLINE_S
    while (answer := served.get(f"/changes?since={moment}"))[0] == 304:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert sweep.id in json.loads(answer[2])["html"]


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
    finish(store, begin(0.1, 0.5), 0.5)
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
    finish(store, begin(0.1, 0.5), 0.5)
    shown = serve().show(tab(), f"/sweep/{sweep.id}")
    shown.until("document.querySelector('#live').textContent.startsWith('live')")
    redis.config_set("maxclients", 1)
    try:
        redis.client_kill_filter(_type="normal", skipme=True)
        shown.until("document.querySelector('#live').textContent.startsWith('not live since')")
    finally:
        redis.config_set("maxclients", 10_000)
    finish(store, begin(0.1, 0.75), 0.75)
    shown.until("document.querySelector('h1').textContent.includes('0.7500')")
    shown.until("document.querySelector('#live').textContent.startsWith('live')")


def test_a_tab_that_polls_again_gets_what_it_missed(
    serve, sweep_of, begin, store: TrialStore
) -> None:
    sweep: SweepView = sweep_of(4)
    finish(store, begin(0.1, 0.5), 0.5)
    served = serve()
    first = served.moment(sweep.id)
    assert served.changes(sweep.id, first) == 304
    at = first
    for n, value in ((2, 0.25), (3, 0.75)):
        finish(store, begin(0.1, value), value)
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
        finish(store, begin(value), value)
    served = serve()
    first = served.moment(sweep.id)
    finish(store, begin(-1.0), -1.0)
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
    finish(store, claim, 0.5)
    found = served.patch(sweep.id, first)
    assert found["trials"]["n"] == [1] and found["trials"]["y"] == [0.5]


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
                reads = commands(redis, "xread")
                assert reads <= time.monotonic() - began + 1 < DEADLINE_S
        return commands(redis, *READS) / reads

    assert 0 < cost(1) == cost(20)


def test_polls_of_a_quiet_sweep_read_no_trial(
    serve, sweep_of, begin, store: TrialStore, redis: Redis
) -> None:
    sweep: SweepView = sweep_of(4)
    finish(store, begin(0.1, 0.5), 0.5)
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
    writer.stage_results(sid, ((t.id.number, t) for t in data.trials))
    assert writer.seal(replace(data.sweep, counts=Counts())) is None
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
        finish(store, claim, 0.8123456789)
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
    finish(store, begin(0.1, 0.5), 0.5)
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
        finish(store, begin(0.1, value), value)
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
    status, headers, _ = served.get("/")
    policy = headers["content-security-policy"]
    assert status == 200 and "frame-ancestors 'none'" in policy and "unsafe-eval" not in policy


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_token_is_needed_once(serve, sweep_of, host: str) -> None:
    sweep: SweepView = sweep_of(2)
    served = serve("--host", host)
    name, token = served.cookie
    assert len(token) > 20
    pages = ("/", "/workers", f"/sweep/{sweep.id}", f"/trial/{sweep.id}/1", "/plotly.js")
    polls = ("/changes", f"/sweep/{sweep.id}/changes?since=0")
    for path in (*pages, *polls, "/?token=wrong", "/?token=", "/?token=%C3%A9"):
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
    claimed = begin(0.2, 0.75)  # a page is loaded again when the first trial begins
    served, shown = serve(), tab()
    assert shown.page.goto(served.url).status == 403
    shown.page.goto(served.link)
    shown.page.wait_for_url(f"{served.url}/")  # without the token, as a link to send would have it
    shown.page.click("#listing a")
    shown.page.wait_for_url("**/sweep/*")
    shown.until("document.querySelector('#live')?.textContent.startsWith('live')")
    finish(store, claimed, 0.75)
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
    for path in ("/sweep/nothing", "/trial/demo-00000/9", "/no/such", "/no/changes"):
        assert served.get(path)[0] == 404, path


def test_a_port_in_use_is_one_line(serve, hpq) -> None:
    port = urlsplit(serve().url).port
    done = hpq("dashboard", "--port", port)
    assert done.returncode == 2 and "[port-unusable]" in done.stderr
