"""What a command says of replicas, and of a server whose data is older."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpq.acknowledged import Marks, report_lost
from hpq.notice import Notice
from hpq.store.control import SweepControl
from hpq.store.scripts import Durability, Mark, StoreContext
from tests.support.ids import ids, refused


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
