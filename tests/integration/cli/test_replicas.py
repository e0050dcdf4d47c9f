"""What a command says of replicas, of Sentinels, and of a server whose data is older."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace

import pytest
from redis.sentinel import Sentinel
from rq.worker.base import StopRequested

from hpq.acknowledged import Marks, report_lost
from hpq.connection.client import connect
from hpq.notice import Notice
from hpq.store.control import SweepControl
from hpq.store.scripts import Durability, Mark, StoreContext
from hpq_producer.invitation import Invitation
from tests.support.ids import ids, refused

SENTINEL = "redis+sentinel://user@one:26379,two/primary/0"


def newest(redis, keys, sid: str) -> Mark:
    """Return a mark of the newest event of a sweep."""
    ((event, fields),) = redis.xrevrange(keys.sweep(sid, "events"), count=1)
    return Mark(sid, event.decode(), us=fields[b"us"].decode())


def test_a_change_that_no_replica_has_is_reported_once_and_counted(
    sweep_of, hpq, redis, keys
) -> None:
    sid, waits = sweep_of(2).id, {"HPQ_WAIT_REPLICAS": "1"}
    done = hpq("cancel", f"{sid}/1", f"{sid}/2", "--yes", **waits)
    assert done.returncode == 0 and ids(done.stderr).count("replicas-behind") == 1
    assert int(redis.hget(keys.counters, "replica_misses")) >= 1
    assert "replicas-behind" not in ids(hpq("resume", sid).stderr)


def test_a_primary_without_its_replicas_refuses_a_command(sweep_of, hpq, redis) -> None:
    sid = sweep_of(1).id
    redis.config_set("min-replicas-to-write", 1)
    try:
        refused(hpq("pause", sid), "replicas-behind", "start a replica", exit=3)
    finally:
        redis.config_set("min-replicas-to-write", 0)


def test_a_server_without_the_last_change_is_reported_once(sweep_of, hpq, redis) -> None:
    sid = sweep_of(1).id
    assert hpq("pause", sid).returncode == 0
    redis.flushall()
    done = hpq("ls")
    assert "server-went-back" in ids(done.stderr) and f"{sid} is gone" in done.stderr
    again = hpq("ls")
    # It may be another server at the same address, so other users are not warned.
    assert "server-went-back" not in ids(again.stderr) and "lost what it had" not in again.stderr


def test_each_sweep_that_a_server_lost_is_named_whatever_was_changed_last(
    sweep_of, hpq, redis
) -> None:
    sids = [sweep_of(1, f"demo-{n:05d}").id for n in range(3)]
    for sid in sids:
        assert hpq("pause", sid).returncode == 0
    assert hpq("rm", sids[2], "--yes").returncode == 0
    redis.flushall()
    done = hpq("ls").stderr
    assert all(f"{sid} is gone" in done for sid in sids[:2])


def test_a_change_that_was_lost_is_in_the_audit(sweep_of, hpq, redis, keys) -> None:
    sid = sweep_of(1).id
    hpq("pause", sid)
    (last,) = redis.xrevrange(keys.sweep(sid, "events"), count=1)
    redis.xdel(keys.sweep(sid, "events"), last[0])
    assert "server-went-back" in ids(hpq("ls").stderr)
    assert "lost what it had" in hpq("ls").stderr
    assert '"went_back": {' in hpq("audit", sid, "--json").stdout


def test_a_sweep_that_was_removed_is_not_missed(sweep_of, hpq) -> None:
    sid = sweep_of(1).id
    hpq("pause", sid)
    assert hpq("rm", sid, "--yes").returncode == 0
    assert "server-went-back" not in ids(hpq("ls").stderr)


def test_a_sweep_that_an_archive_replaced_is_not_missed_and_its_restore_waits(
    sweep_of, hpq
) -> None:
    sid = sweep_of(1).id
    assert hpq("archive", sid, "kept.hpq").returncode == 0
    assert hpq("pause", sid).returncode == 0
    assert hpq("rm", sid, "--yes").returncode == 0
    done = hpq("archive", "--restore", "kept.hpq", HPQ_HOME="other", HPQ_WAIT_REPLICAS="1")
    assert done.returncode == 0 and "replicas-behind" in ids(done.stderr)
    assert "server-went-back" not in ids(hpq("ls").stderr)


@pytest.mark.parametrize(("since_ms", "is_missed"), [(-1_000, True), (1_000, False)])
def test_a_lost_sweep_is_missed_unless_the_list_of_removals_may_have_dropped_it(
    sweep_of, redis, keys, store_context, since_ms: int, is_missed: bool
) -> None:
    sid = sweep_of(1).id
    mark = newest(redis, keys, sid)
    redis.flushall()
    redis.zadd(keys.removed, {f"old-{n:05d}": mark.at_ms + since_ms + n / 1e4 for n in range(1000)})
    notice, _ = report_lost(store_context, [mark])
    assert (notice is not None) is is_missed
    redis.hset(keys.history, sid, "{}")  # moved into the file store
    assert report_lost(store_context, [mark]) == (None, [])


def test_a_damaged_key_hides_no_loss(sweep_of, redis, keys, store_context) -> None:
    sid = sweep_of(1).id
    mark, damaged = newest(redis, keys, sid), Mark("damaged-00000", "1-1")
    redis.set(keys.sweep(damaged.sweep, "events"), "")
    assert report_lost(store_context, [damaged, mark]) == (None, [damaged, mark])
    notice, kept = report_lost(store_context, [damaged, replace(mark, event="1-1")])
    assert notice and kept[0] == damaged and kept[1].event != mark.event


def test_a_worker_looks_for_its_events_only_after_a_new_connection(
    sweep_of, redis, keys, store_context
) -> None:
    marks, lost = Marks(), Mark(sweep_of(1).id, "1-1")
    for is_new in (True, False, True):
        if is_new:
            redis.connection_pool.disconnect()
            redis.ping()
        marks.keep(lost)
        assert (marks.check(store_context) is not None) is is_new


def test_a_call_that_is_sent_again_leaves_a_mark_as_the_first(sweep_of, redis, keys) -> None:
    kept = list[Mark]()
    context = StoreContext.open(redis, keys, durability=Durability(0, kept.append))
    sid = sweep_of(1).id
    context.scripts.run("seal", sweep=sid, digest="", owner="", again=False, manifest="")
    redis.hset(keys.sweep(sid), "file:stage", "1 1 {}")
    fields = {"first": 2, "count": 1, "file": "{}", "varying": "[]", "digest": ""}
    context.scripts.run("grow", sweep=sid, stage="stage", **fields)
    assert kept == 2 * [newest(redis, keys, sid)]


def test_a_change_of_many_trials_waits_once_and_drains_and_removals_wait(
    sweep_of, redis, keys
) -> None:
    missed = list[Notice]()
    context = StoreContext.open(redis, keys, durability=Durability(1, missed=missed.append))
    control, sid = SweepControl(context), sweep_of(1_100).id
    assert control.cancel(sid, range(1, 1_101)) == 1_100 and len(missed) == 1
    control.drain("nobody")
    control.remove(sid)
    assert [one.code for one in missed] == 3 * ["replicas-behind"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["connect"], "sentinel-unsupported"),
        (["redis-acl", "--rotate"], "sentinel-unsupported"),
        (["manifests", "--with", "keda=2", "--set", f"HPQ_REDIS_URL={SENTINEL}"],
         "sentinel-unsupported"),
    ],
)  # fmt: skip
def test_what_cannot_follow_sentinels_is_refused(hpq, words: list[str], code: str) -> None:
    refused(hpq(*words, HPQ_REDIS_URL=SENTINEL), code)


@pytest.mark.parametrize(
    "url", ["redis+sentinel://one:26379", "redis+sentinel://one/p/x", "rediss+sentinel://one/p/0"]
)
def test_a_url_of_sentinels_names_hosts_and_the_primary(hpq, url: str) -> None:
    refused(hpq("ls", HPQ_REDIS_URL=url), "setting-invalid", "redis+sentinel://HOST:26379")


def test_sentinels_that_do_not_answer_are_out_of_reach(hpq) -> None:
    url = "redis+sentinel://me:secret@127.0.0.1:1,127.0.0.1:2/primary/0"
    done = hpq("ls", HPQ_REDIS_URL=url)
    refused(done, "redis-unreachable", "'primary': 2 of the Sentinels", exit=3)
    assert "secret" not in done.stderr


def test_an_invitation_has_the_sentinels_and_the_number_of_replicas(hpq, tmp_path) -> None:
    hpq("invite", "--file", tmp_path / "token", HPQ_WAIT_REPLICAS="2")
    assert Invitation.decode((tmp_path / "token").read_text()).settings["HPQ_WAIT_REPLICAS"] == "2"
    made = Invitation.of(SENTINEL.replace("user", "user:secret"), "key", {}, {})
    assert (made.url, made.files["password"]) == (SENTINEL, "secret")


def test_a_wait_that_a_signal_ends_leaves_no_reply_to_the_next_command(
    redis, port: int, monkeypatch
) -> None:
    """As SIGTERM ends an idle worker's wait for a ticket."""
    monkeypatch.setattr(Sentinel, "discover_master", lambda *_: ("127.0.0.1", port))
    client = connect("redis+sentinel://127.0.0.1/primary/0", timeout_s=60)

    def signal_the_wait() -> None:
        while not any(one["cmd"] == "blpop" for one in redis.client_list()):
            pass
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    def handler(*_: object) -> None:
        raise StopRequested

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        thread = threading.Thread(target=signal_the_wait, daemon=True)
        thread.start()
        with pytest.raises(StopRequested):
            client.blpop(["nothing"], timeout=30)
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert client.ping() is True
