"""Notices of sweeps that are held, stalled or over: one webhook, once, however many look."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import pytest
from redis import Redis

from hpq.domain.attempt import WorkerPresence
from hpq.domain.budget import Budget
from hpq.domain.sweep import Goal, Metric
from hpq.domain.trial import TrialId
from hpq.errors import SettingsError
from hpq.settings import Settings, read
from hpq.store.control import SweepControl
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from hpq_worker.lease.webhooks import Notices
from tests.conftest import MakeSweep
from tests.support.constants import DEADLINE_S
from tests.support.hook import Hook, serving
from tests.support.ids import raises
from tests.support.store_calls import end, take


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    # A notice that is late on a busy machine is not sent again, and not given up.
    monkeypatch.setattr("hpq_worker.lease.webhooks.TIMEOUT_S", DEADLINE_S)
    with serving() as one:
        yield one


@pytest.fixture
def workers(hook: Hook, reader: StoreReader, store: TrialStore) -> Iterator[list[Notices]]:
    found = [Notices(Settings(notify=hook.url), reader, store) for _ in range(3)]
    yield found
    for one in found:
        one.close()


def look(workers: list[Notices]) -> None:
    for one in workers:
        one.look(at_once=True)


def test_the_end_of_a_sweep_is_told_once_with_its_best(
    hook: Hook,
    workers: list[Notices],
    store: TrialStore,
    who: WorkerPresence,
    sweep_of: MakeSweep,
    redis: Redis,
) -> None:
    sweep_of(1, metric=Metric(name="acc", goal=Goal.MAXIMIZE))
    look(workers)
    end(store, take(store, who, "a"), 0.75)
    look(workers)
    look(workers)
    said = hook.next()
    assert "demo-00000 is finished" in said and "1 of 1" in said and "acc 0.75" in said
    for one in workers:
        one.close()
    assert hook.posted.empty()
    raw = b"".join(redis.dump(key) or b"" for key in redis.scan_iter())
    assert b"s3cret" not in raw, "the URL is a secret, and never goes to Redis"


def test_an_alert_of_a_script_is_sent_by_the_worker_of_its_trial(
    hook: Hook, workers: list[Notices], sweep_of: MakeSweep, reader: StoreReader, store: TrialStore
) -> None:
    sweep = sweep_of(1)
    trial = TrialId(sweep=sweep.id, number=1)
    workers[0].alert(sweep, trial, "WARN disk: \x1b[31m<full>")
    body = hook.posted.get(timeout=DEADLINE_S)
    assert (body["event"], body["sweep"], body["trial"]) == ("alert", sweep.id, 1)
    assert "WARN disk" in body["text"] and "&lt;full&gt;" in body["text"]
    assert "\x1b" not in body["text"]
    mute = Notices(Settings(), reader, store)
    mute.alert(sweep, trial, "not sent")
    mute.close()
    assert hook.posted.empty()


@pytest.mark.parametrize("key", ["hpq:s:bad:events", "hpq:notice:bad", "hpq:s:bad:rank"])
def test_a_damaged_sweep_keeps_no_notice_of_another_back(
    hook: Hook,
    workers: list[Notices],
    store: TrialStore,
    who: WorkerPresence,
    sweep_of: MakeSweep,
    redis: Redis,
    key: str,
) -> None:
    """The events, the last notice, or the ranking of a sweep that is read first are a list."""
    metric = Metric(name="acc", goal=Goal.MAXIMIZE)
    for sid in ("bad", "good"):
        sweep_of(1, sid, metric=metric, digest=sid)
    look(workers)
    for nonce in ("a", "b"):
        end(store, take(store, who, nonce), 0.75)
    redis.delete(key)
    redis.rpush(key, "x")
    look(workers)
    while "good is finished" not in hook.next():
        pass


def test_what_was_over_long_before_a_worker_came_is_no_news(
    hook: Hook,
    reader: StoreReader,
    store: TrialStore,
    workers: list[Notices],
    sweep_of: MakeSweep,
    control: SweepControl,
) -> None:
    sweep_of(1, "old-00000")
    control.cancel("old-00000")
    late = Notices(Settings(notify=hook.url), reader, store, news_s=-1)
    late.look(at_once=True)
    late.close()
    assert hook.posted.empty()
    look(workers)
    assert "old-00000 is cancelled" in hook.next(), "for the others it is news"


def test_old_ends_cost_no_round_trip_each(
    hook: Hook,
    reader: StoreReader,
    store: TrialStore,
    sweep_of: MakeSweep,
    control: SweepControl,
    redis: Redis,
) -> None:
    """Every look reads when they ended, since no notice of them is ever sent."""
    count = 15
    for number in range(count):
        sid = f"old-{number:05}"
        sweep_of(1, sid, digest=sid)
        control.cancel(sid)
    late = Notices(Settings(notify=hook.url), reader, store, news_s=-1)
    redis.config_resetstat()
    late.look(at_once=True)
    reads = redis.info("stats")["total_reads_processed"]
    late.close()
    assert reads < count and hook.posted.empty()


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_second_end_after_a_retry_and_a_second_hold_are_told_too(
    hook: Hook,
    workers: list[Notices],
    store: TrialStore,
    who: WorkerPresence,
    sweep_of: MakeSweep,
    control: SweepControl,
    redis: Redis,
    keys: Keys,
    is_seen: bool,
) -> None:
    """Also if no worker looked while the sweep ran."""
    sid = sweep_of(2).id

    def run_on() -> None:
        if is_seen:
            look(workers)
        assert hook.posted.empty()

    look(workers)
    control.cancel(sid, [1])
    for why in ("poor data", "no data"):
        redis.hset(keys.sweep(sid), mapping={"state": "held", "why": f"alike {why}"})
        look(workers)
        assert why in hook.next()
        control.resume(sid)
        run_on()
    end(store, take(store, who, "a"), 0.5)
    look(workers)
    assert "is finished" in hook.next()
    control.retry(sid, [1])
    run_on()
    end(store, take(store, who, "b"), 0.25)
    look(workers)
    assert "2 of 2 finished" in hook.next()
    look(workers)
    assert hook.posted.empty()


@pytest.mark.parametrize("answer", [500, 302, 0])
def test_a_webhook_that_fails_is_tried_again_and_its_url_stays_out_of_logs(
    answer: int,
    hook: Hook,
    workers: list[Notices],
    sweep_of: MakeSweep,
    control: SweepControl,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hook.answers = [answer]
    sweep_of(1)
    look(workers)
    control.cancel("demo-00000")
    with caplog.at_level(logging.DEBUG):
        look(workers)
        assert "is cancelled" in hook.next()
    assert "not sent" in caplog.text and "s3cret" not in caplog.text


@pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")  # of Apprise
def test_a_service_of_apprise_is_told_and_an_unknown_one_is_refused(
    hook: Hook, reader: StoreReader, store: TrialStore, sweep_of: MakeSweep, control: SweepControl
) -> None:
    pytest.importorskip("apprise", reason="pip install 'hpq[notify]'")
    one = Notices(Settings(notify=hook.url.replace("http://", "json://")), reader, store)
    sweep_of(1)
    control.cancel("demo-00000")
    one.look(at_once=True)
    assert "is cancelled" in hook.posted.get(timeout=DEADLINE_S)["message"]
    one.close()
    with raises("setting-invalid"):
        Notices(Settings(notify="nosuch://host"), reader, store)


def test_without_apprise_the_error_names_the_interpreter(
    reader: StoreReader, store: TrialStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with raises("extra-missing", f"{sys.executable} -m pip install apprise"):
        Notices(Settings(notify="json://host"), reader, store)


def test_a_notice_that_failed_is_tried_again_though_its_worker_exits(
    hook: Hook, workers: list[Notices], sweep_of: MakeSweep, control: SweepControl
) -> None:
    hook.answers = [500]
    sweep_of(1)
    look(workers)
    control.cancel("demo-00000")
    look(workers)
    for one in workers:
        one.close()
    assert "is cancelled" in hook.next()


@pytest.mark.parametrize(
    "url", ["https://me:pw@host/x", "https://host/a b", "ftp://host", "https://"]
)
def test_a_url_that_no_webhook_has_is_refused(url: str) -> None:
    with pytest.raises(SettingsError):
        read({"HPQ_NOTIFY": url})


def test_a_queue_that_runs_nothing_is_told_as_stalled_and_again_after_it_ran(
    hook: Hook, reader: StoreReader, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    workers = [Notices(Settings(notify=hook.url), reader, store, stalled_s=0) for _ in range(2)]
    first = sweep_of(2)
    assert first
    running = take(store, who, "a")
    look(workers)  # one trial runs
    look(workers)
    assert hook.posted.empty()
    end(store, running, 0.5)
    look(workers)
    assert "demo-00000 is stalled" in hook.next()
    running = take(store, who, "b")
    look(workers)
    assert hook.posted.empty()
    end(store, running, 0.5)
    look(workers)
    assert "is finished" in hook.next()
    for one in workers:
        one.close()
    assert hook.posted.empty()


def test_the_end_of_a_sweep_that_waits_no_more_and_is_not_among_the_newest_is_told(
    hook: Hook,
    workers: list[Notices],
    store: TrialStore,
    who: WorkerPresence,
    sweep_of: MakeSweep,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hpq_worker.lease.webhooks._NEWEST", 1)
    sweep_of(1, "old-00000")
    look(workers)
    running = take(store, who)
    sweep_of(1, "new-00000")
    look(workers)
    end(store, running, 0.5)
    look(workers)
    assert "old-00000 is finished" in hook.next()
    assert hook.posted.empty()


def test_one_worker_of_many_looks_and_the_next_one_after_its_death_misses_nothing(
    hook: Hook,
    workers: list[Notices],
    sweep_of: MakeSweep,
    control: SweepControl,
    redis: Redis,
    keys: Keys,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hpq.store.trials._LOOK_MS", int(1_000 * DEADLINE_S))
    sweep_of(1)
    first, second, _ = workers
    first.look()
    control.cancel("demo-00000")
    redis.config_resetstat()
    second.look()
    calls = redis.info("commandstats")
    assert {name for name in calls if "config" not in name} == {"cmdstat_set"}
    assert hook.posted.empty(), "the first worker looks"
    redis.delete(keys.queue("default", "checked"))  # as it expires after the first worker died
    second.look()
    assert "is cancelled" in hook.next()
    look(workers)
    assert hook.posted.empty()


def test_a_full_server_delays_a_notice_and_fails_no_look(
    hook: Hook,
    workers: list[Notices],
    sweep_of: MakeSweep,
    control: SweepControl,
    redis: Redis,
    keys: Keys,
) -> None:
    sweep_of(1)
    workers[0].look()
    redis.delete(keys.queue("default", "checked"))
    control.cancel("demo-00000")
    redis.config_set("maxmemory", 1)
    try:
        workers[1].look()
    finally:
        redis.config_set("maxmemory", 0)
    workers[2].look()
    assert "demo-00000 is cancelled" in hook.next() and hook.posted.empty()


def test_a_worker_without_a_webhook_hides_no_change_and_sends_no_command(
    hook: Hook,
    workers: list[Notices],
    reader: StoreReader,
    store: TrialStore,
    sweep_of: MakeSweep,
    control: SweepControl,
    redis: Redis,
) -> None:
    sweep_of(1)
    look(workers)
    control.cancel("demo-00000")
    redis.config_resetstat()
    Notices(Settings(), reader, store).look(at_once=True)
    assert {name for name in redis.info("commandstats") if "config" not in name} == set()
    look(workers)
    assert "is cancelled" in hook.next()


def test_a_budget_that_is_nearly_spent_is_told_once_and_a_spent_one_too(
    hook: Hook,
    workers: list[Notices],
    store: TrialStore,
    who: WorkerPresence,
    sweep_of: MakeSweep,
    control: SweepControl,
    redis: Redis,
    keys: Keys,
) -> None:
    sid = sweep_of(9, budget=Budget.of_hours(10, 0)).id
    look(workers)

    def run(nonce: str, hours: int) -> None:
        claim = take(store, who, nonce)
        redis.hincrby(keys.trial(claim.trial), "claimed_ms", -3_600_000 * hours)
        end(store, claim, 0.5)
        look(workers)

    run("a", 7)
    assert hook.posted.empty()
    run("b", 2)
    assert "is near its budget" in hook.next()
    control.pause(sid)
    look(workers)
    control.resume(sid)
    look(workers)
    assert hook.posted.empty(), "once"
    run("c", 2)
    said = hook.next()
    assert "is held" in said and "budget" in said
    assert hook.posted.empty()
