"""Buttons of `hpq dashboard --allow-actions`: who may click, and what a click changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import pytest
from redis import Redis

from hpq.domain.attempt import Reason
from hpq.domain.sweep import SweepState, SweepView
from hpq.domain.trial import TrialId, TrialState
from hpq.redis.acl import users
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from tests.integration.page.conftest import Served, Tab
from tests.support.store_calls import end

for library in ("starlette", "uvicorn", "jinja2", "plotly"):
    pytest.importorskip(library, reason=f"{library} is not installed")


def act(served: Served, sid: str, verb: str, *words: str, **more: str) -> tuple[int, Any]:
    """Send what a click sends; return the status and the answer."""
    query = urlencode([("verb", verb), *(("word", w) for w in words), *more.items()])
    status, _, text = served.get(f"/sweep/{sid}/act?{query}", "POST", Origin=served.url)
    return status, json.loads(text)


def answered(shown: Tab, button: str = "") -> str:
    """Click a button of the question; return what the page says then."""
    if button:
        shown.page.click(f"dialog button:text-is('{button}')")
    shown.until("!document.querySelector('.meta + [role=status]').hidden")
    return shown.text(".meta + [role=status]")


def test_a_click_changes_the_sweep_and_the_open_page(
    serve, sweep_of, begin, reader: StoreReader, tab: Callable[..., Tab]
) -> None:
    sweep: SweepView = sweep_of(4)
    begin(0.1, 0.2)
    shown = serve("--allow-actions").show(tab(), f"/sweep/{sweep.id}")
    assert "acts as me" in shown.text(".nav")
    shown.page.click("[data-verb=pause]")
    shown.until("document.querySelector('[data-verb=resume]') !== null")
    assert reader.sweeps.get(sweep.id).state is SweepState.PAUSED
    assert "paused; 1 trial continues" in answered(shown)
    shown.page.click("[data-verb=resume]")
    shown.until("document.querySelector('[data-verb=pause]') !== null")
    shown.page.click("[data-key=note]")
    shown.page.fill("dialog textarea", "lr < 0.1 & <b>wide</b>")
    assert shown.count("dialog[aria-labelledby=asked] #asked") == 1
    shown.page.click("dialog button:text-is('Save')")
    shown.until("document.querySelector('.mark') !== null")
    assert reader.sweeps.get(sweep.id).note == "lr < 0.1 & <b>wide</b>" in shown.text(".mark")
    shown.page.click("[data-key=priority]")
    shown.page.fill("dialog input", "7")
    shown.page.keyboard.press("Enter")
    shown.until("document.querySelector('[data-key=priority]').textContent.includes('7')")
    shown.page.click("[data-verb=cancel]")
    shown.page.wait_for_selector("dialog[open]")
    shown.page.keyboard.press("Enter")  # the answer that changes nothing has the focus
    shown.until("!document.querySelector('dialog').open")
    assert reader.sweeps.get(sweep.id).state is SweepState.RUNNING
    shown.page.click("[data-verb=cancel]")
    shown.page.click("dialog button:text-is('Yes')")
    shown.until("document.querySelector('[data-verb=pause]') === null")
    assert reader.sweeps.get(sweep.id).counts.cancelled == 3
    assert all("409 (Conflict)" in one for one in shown.messages)  # the questions


def test_a_sweep_of_another_user_is_refused_as_by_the_command_until_forced(
    serve, sweep_of, hpq, reader: StoreReader, tab: Callable[..., Tab]
) -> None:
    sweep: SweepView = sweep_of(2, owner="ada")
    refused = hpq("pause", sweep.id).stderr.removeprefix("hpq: ").strip()
    assert refused.endswith("[sweep-of-another]")
    served = serve("--allow-actions")
    for verb, words in (("stop", []), ("cancel", ["1"]), ("retry", ["1"]), ("set", ["priority=3"])):
        status, said = act(served, sweep.id, verb, *words, yes="1")
        assert (status, said["code"]) == (403, "sweep-of-another")
    shown = served.show(tab(), f"/sweep/{sweep.id}")
    shown.page.click("[data-verb=pause]")
    shown.page.wait_for_selector("dialog[open]")
    assert refused in shown.text("dialog") and answered(shown, "No") == refused
    assert reader.sweeps.get(sweep.id).state is SweepState.RUNNING
    shown.page.click("[data-verb=pause]")
    assert "paused" in answered(shown, "Yes, with --force")
    assert reader.sweeps.get(sweep.id).state is SweepState.PAUSED
    assert reader.sweeps.get(sweep.id).priority == 0
    assert all("403 (Forbidden)" in one for one in shown.messages)


def test_a_trial_is_cancelled_and_retried(
    serve, sweep_of, begin, store, reader, tab: Callable[..., Tab]
) -> None:
    sweep: SweepView = sweep_of(3)
    end(store, begin(0.1, 0.5), 0.5)
    served = serve("--allow-actions")

    def state(n: int) -> TrialState:
        return reader.trials.get(TrialId(sweep=sweep.id, number=n)).state

    assert act(served, sweep.id, "cancel", "2")[1]["code"] == "confirmation-missing"
    assert act(served, sweep.id, "cancel", "2", yes="")[0] == 200
    assert [state(n) for n in (1, 2, 3)] == ["finished", "cancelled", "queued"]
    status, said = act(served, sweep.id, "retry", "1")
    assert (status, said["code"]) == (409, "confirmation-missing")
    assert act(served, sweep.id, "retry", "2")[0] == 200
    assert act(served, sweep.id, "retry", "1", yes="")[0] == 200
    assert state(1) is state(2) is TrialState.QUEUED
    assert act(served, sweep.id, "cancel", "9", yes="")[1]["code"] == "trial-not-found"
    for verb, word in (("cancel", ""), ("cancel", "x"), ("set", "nope=1"), ("rm", "1")):
        assert act(served, sweep.id, verb, word, yes="")[0] == 409, (verb, word)
    for sid in ("none-00000", sweep.id[:-1]):  # a click names no other sweep by a prefix
        status, said = act(served, sid, "pause")
        assert (status, said["code"]) == (404, "sweep-not-found")
    assert reader.sweeps.get(sweep.id).counts.queued == 3
    shown = served.show(tab(), f"/sweep/{sweep.id}/1")
    assert shown.text("h1") == "Trial #1" and "started" not in shown.text("#listing .meta")
    shown = served.show(shown, f"/sweep/{sweep.id}/3")
    shown.page.click("[data-verb=cancel]")
    assert "1 trial cancelled" in answered(shown, "Yes")
    shown.until("document.querySelector('[data-verb=retry]') !== null")
    assert state(3) is TrialState.CANCELLED and state(2) is TrialState.QUEUED


def test_chosen_trials_are_cancelled_at_once_and_queued_again(
    serve, sweep_of, begin, store, reader, tab: Callable[..., Tab]
) -> None:
    sweep: SweepView = sweep_of(6)
    claims = [begin(value) for value in (0.5, 0.4, 0.3, 0.2)]

    def states() -> str:
        found = [reader.trials.get(TrialId(sweep=sweep.id, number=n)).state for n in range(1, 7)]
        return " ".join(found)

    shown = serve("--allow-actions").show(tab(), f"/sweep/{sweep.id}")
    assert not shown.page.is_visible("#chosen")
    for n in (2, 4):
        shown.page.check(f"#table [data-n='{n}'] input")
    assert shown.text("#chosen-n") == "2 trials chosen" and not shown.page.is_visible("#trial")
    assert not shown.page.is_visible("#chosen [data-verb=retry]")
    shown.page.click("#chosen [data-verb=cancel]")
    assert "2 trials cancelled" in answered(shown, "Yes")
    for claim in claims:
        store.release(claim, Reason.STOPPING)
    assert states() == "queued cancelled queued cancelled queued queued"
    shown.until("document.querySelector('#chosen [data-verb=cancel]').hidden")
    shown.page.fill("#where", "x < 2")
    shown.page.press("#where", "Enter")
    shown.until("document.querySelectorAll('#table tbody tr').length === 1")
    shown.page.check("#table thead input")  # adds those that match
    assert shown.text("#chosen-n") == "3 trials chosen"
    assert shown.text("#chosen code") == f"hpq cancel {sweep.id} 1"
    shown.page.click("#chosen [data-verb=retry]")
    shown.until(
        "document.querySelector('.meta + [role=status]').textContent.includes('queued again')"
    )
    assert states() == "queued queued queued queued queued queued"
    shown.page.click("#unchoose")
    assert not shown.page.is_visible("#chosen") and not shown.page.is_checked("#table thead input")
    assert all("409 (Conflict)" in one for one in shown.messages)


def test_a_page_that_only_reads_prints_the_command_for_chosen_trials(
    serve, sweep_of, begin, store, hpq, reader, tab: Callable[..., Tab]
) -> None:
    sweep: SweepView = sweep_of(4, replicates=2)
    claims = [begin(value) for value in (0.5, 0.4, 0.3)]
    shown = serve().show(tab(), f"/sweep/{sweep.id}")
    shown.page.check("#table tbody tr:first-child input")  # a row of two replicates
    assert shown.text("#chosen-n") == "2 trials chosen" and shown.count("#chosen [data-verb]") == 0
    command = shown.text("#chosen code").split()
    assert hpq(*command[1:], "--yes").returncode == 0
    for claim in claims:
        store.release(claim, Reason.STOPPING)
    counts = reader.sweeps.get(sweep.id).counts
    assert (counts.cancelled, counts.queued) == (2, 2)
    assert shown.messages == []


def test_only_a_click_on_a_page_of_this_dashboard_changes_a_sweep(
    serve, sweep_of, reader: StoreReader, redis: Redis, keys: Keys
) -> None:
    sweep: SweepView = sweep_of(2)
    served, path = serve("--allow-actions"), f"/sweep/{sweep.id}/act?verb=pause"
    host, _, port = served.url.removeprefix("http://").partition(":")

    def status(method: str = "POST", **headers: str) -> int:
        return served.get(path, method, **{"Origin": served.url, **headers})[0]

    other = f"http://{host}:{int(port) - 1}"
    secure = served.url.replace("http:", "https:")
    for origin in ("", "null", other, secure, f"http://{host}", "http://evil.example", "http://["):
        assert status(Origin=origin) == 403, origin
    name, token = served.cookie
    for cookie in ("", f"{name}=", f"{name}=wrong", f"hpq-dashboard-1={token}"):
        refused = served.get(path, "POST", Cookie=cookie, Origin=served.url)
        assert (refused[0], json.loads(refused[2])["code"]) == (403, "forbidden"), cookie
    evil = f"evil.example:{port}"
    assert status(Host=evil) == status(Host=evil, Origin=f"http://{evil}") == 421
    assert [status(method) for method in ("GET", "HEAD", "PUT", "DELETE")] == [404, 404, 405, 405]
    served.get(f"{path}&token={token}", "POST", Cookie="", Origin=served.url)  # stores the cookie
    for page in ("", "/changes?verb=pause", "/act"):
        served.get(f"/sweep/{sweep.id}{page}")
    assert reader.sweeps.get(sweep.id).state is SweepState.RUNNING
    assert status() == 200 and reader.sweeps.get(sweep.id).state is SweepState.PAUSED
    redis.delete(key := keys.sweep(sweep.id))
    redis.set(key, "x")
    refused = act(served, sweep.id, "pause")
    assert (refused[0], refused[1]["code"]) == (503, "value-unreadable")


def test_without_the_option_or_the_right_to_write_the_page_says_why_it_only_shows(
    serve, sweep_of, environ: dict[str, str], redis: Redis, redis_url: str, reader: StoreReader
) -> None:
    sweep: SweepView = sweep_of(2)
    version = tuple(int(n) for n in redis.info("server")["redis_version"].split(".")[:2])
    (viewer,) = (user for user in users("hpq", version) if user.role == "viewer")
    redis.execute_command("ACL", "SETUSER", viewer.name, "reset", "on", ">secret", *viewer.rules)

    def refused(served: Served) -> Mapping[str, str]:
        page = served.get(f"/sweep/{sweep.id}")[2]
        assert "read-only" in page and 'data-verb="' not in page
        assert "read-only" in served.get("/")[2]
        status, said = act(served, sweep.id, "pause", force="", yes="")
        assert status == 403 and reader.sweeps.get(sweep.id).state is SweepState.RUNNING
        return dict(said)

    try:
        assert refused(serve())["code"] == "forbidden"
        environ["HPQ_REDIS_URL"] = redis_url.replace("://", f"://{viewer.name}:secret@")
        served = serve("--allow-actions")
        assert refused(served)["code"] == "redis-read-only"
    finally:
        redis.execute_command("ACL", "DELUSER", viewer.name)
    served.process.terminate()
    assert "[redis-read-only]" in served.process.communicate()[1]


def test_actions_need_the_token(hpq, redis: Redis) -> None:
    done = hpq("dashboard", "--port", "0", "--allow-actions", "--no-token")
    assert done.returncode == 2 and "--no-token" in done.stderr
