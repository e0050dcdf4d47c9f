"""Sweeps that ended long ago move from Redis into a file store, and are at no time in neither."""

from __future__ import annotations

import hashlib
import json
import random
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from hpq.archive import history
from hpq.archive.history import History
from hpq.connection.client import connect
from hpq.domain.attempt import ReportBatch
from hpq.errors import UserError
from hpq.settings import Settings, read
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.scripts import StoreContext
from hpq.store.trials import TrialStore
from hpq_producer.audit.sweep_audit import audit_sweep
from tests.support.store_calls import LEASE, Shelf, end, let_a_millisecond_pass, take, was_killed

DAY_MS = 86_400_000
# The code that may be killed at each line.
STEPS = (
    "archive/history.py",
    "store/archive.py",
    "store/control.py",
    "store/scripts.py",
    "local.py",
)


@pytest.fixture
def settings(tmp_path: Path, redis_url: str) -> Settings:
    """Settings by which a sweep may leave at once."""
    own = {"HPQ_STORE": str(tmp_path / "store"), "HPQ_KEEP_DAYS": "1e-9", "USER": "me"}
    return read({**own, "HPQ_REDIS_URL": redis_url, "HPQ_HOME": str(tmp_path / "home")})


@pytest.fixture
def history_of(settings: Settings, store_context: StoreContext) -> Callable[..., History]:
    """Return a function that creates a mover, after every event has an age."""

    def make(**more: Any) -> History:
        let_a_millisecond_pass(store_context.redis)
        return History(replace(settings, **more), store_context)

    return make


@pytest.fixture
def over(store: TrialStore, sweep_of, who, shelf: Shelf) -> Callable[[str], str]:
    """Return a function that creates a sweep that is over, with curves, a log and a file."""

    def make(sid: str) -> str:
        sweep_of(2, sid, tags=("paper",))
        for nonce, value in (("a", 0.25), ("b", 0.5)):
            claim = take(store, who, f"{sid} {nonce}")
            batch = ReportBatch(seq=1, step=1, log=b"\xff line\n")
            store.beat(claim, who, batch, lease_ms=LEASE)
            end(store, claim, value, artifacts=shelf.artifacts(claim))
        return sid

    return make


def archives(shelf: Shelf, sid: str) -> list[str]:
    return [name for name in shelf.files.names(f"hpq/{sid}") if name.startswith("archive-")]


def is_archived(redis: Redis, shelf: Shelf, sid: str) -> bool:
    """True if Redis has the line of a sweep, and the store the bytes that the line describes."""
    line = redis.hget("hpq:history", sid)
    if line is None:
        return False
    with shelf.files.read(json.loads(line)["path"]) as file:
        return hashlib.sha256(file.read()).hexdigest() == json.loads(line)["sha256"]


def test_a_sweep_that_is_over_moves_with_one_line_left_and_its_files_stay(
    history_of, over, shelf: Shelf, redis: Redis, reader: StoreReader, sweep_of
) -> None:
    sid, waits = over("demo-00000"), sweep_of(1, "other-00000").id
    files = shelf.left()
    history_of().move(shelf.files)
    assert reader.sweeps.ids() == [waits] and not redis.keys(f"hpq:[st]:{sid}*")
    assert is_archived(redis, shelf, sid) and len(archives(shelf, sid)) == 1
    assert len(redis.hget("hpq:history", sid)) <= 1000
    assert set(files) <= set(shelf.left()), "its files and its archive survive every later look"
    assert shelf.garbage.sweeps_in(shelf.files) == [], "no look at the store visits it"
    moved = reader.sweeps.moved(sid)
    assert (moved.view.counts.finished, moved.best, moved.view.tags) == (2, 0.5, ("paper",))


def test_a_line_stays_short_for_long_names(history_of, over, shelf, redis, keys) -> None:
    sid = over("demo-00000")
    redis.hset(keys.sweep(sid), mapping={"owner": "é" * 900, "tags": json.dumps(["t" * 500] * 9)})
    history_of().move(shelf.files)
    assert len(redis.hget("hpq:history", sid)) <= 1000


@pytest.mark.parametrize("days", [0, 30])
def test_a_sweep_stays_while_it_is_young_and_for_good_with_0(
    history_of, over, shelf, reader, days: float
) -> None:
    sid = over("demo-00000")
    history_of(keep_days=days).move(shelf.files)
    assert reader.sweeps.exists(sid)


def test_the_age_of_a_restored_sweep_begins_anew(
    history_of, over, shelf, redis, keys, reader
) -> None:
    sid = over("demo-00000")
    now = reader.now_ms()
    redis.hset(keys.sweep(sid), "restored_ms", now + DAY_MS)  # a day after its last event
    history_of().move(shelf.files)
    assert reader.sweeps.exists(sid)


def test_a_sweep_that_changes_meanwhile_stays(
    history_of, over, shelf, redis, reader, monkeypatch
) -> None:
    sid = over("demo-00000")
    copy_in = history.copy_in

    def change(*args: Any) -> bool:
        redis.xadd(f"hpq:s:{sid}:events", {"e": "set"})
        return copy_in(*args)

    monkeypatch.setattr(history, "copy_in", change)
    history_of().move(shelf.files)
    assert reader.sweeps.exists(sid) and not archives(shelf, sid)


def test_a_store_that_lost_what_was_written_moves_nothing(
    history_of, over, shelf, reader, monkeypatch
) -> None:
    sid = over("demo-00000")
    monkeypatch.setattr(history, "checksum", lambda _: secrets.token_hex())
    history_of().move(shelf.files)
    assert reader.sweeps.exists(sid) and not archives(shelf, sid)


@pytest.mark.parametrize("error", [OSError("full"), UserError("sweep-changed")])
def test_a_sweep_that_cannot_move_keeps_no_other_one(
    history_of, over, shelf, reader, monkeypatch, error: Exception
) -> None:
    """History: one folder of another user stopped all moves."""
    first, second = over("demo-00000"), over("demo-11111")
    write = history.write

    def fail(context: StoreContext, sid: str, file: Path) -> object:
        if sid == first:
            raise error
        return write(context, sid, file)

    monkeypatch.setattr(history, "write", fail)
    history_of().move(shelf.files)
    assert reader.sweeps.ids() == [first] and len(archives(shelf, second)) == 1


def test_an_archive_that_another_line_may_name_stays(history_of, over, shelf, redis) -> None:
    """History: two servers, or a server and its replica that was promoted, share a store."""
    sid = over("demo-00000")
    with shelf.files.write(f"hpq/{sid}/archive-other/{sid}.hpq") as file:
        file.write(b"of another server")
    history_of().move(shelf.files)
    assert is_archived(redis, shelf, sid) and f"archive-other/{sid}.hpq" in archives(shelf, sid)


def test_a_move_needs_the_last_event_of_a_sweep_that_is_over_and_may_be_sent_twice(
    over, sweep_of, control, redis
) -> None:
    sid, waits = over("demo-00000"), sweep_of(1, "other-00000").id
    last = {one: redis.xrevrange(f"hpq:s:{one}:events", count=1)[0][0] for one in (sid, waits)}
    assert not control.move(sid, "1-1", "line") and not control.move(waits, last[waits], "line")
    assert not redis.exists("hpq:history")
    assert control.move(sid, last[sid], "line") and control.move(sid, last[sid], "line")
    assert not control.move(sid, last[sid], "line of another mover")
    assert redis.hgetall("hpq:history") == {sid.encode(): b"line"}


def move(settings: Settings, shelf: Shelf) -> None:
    context = StoreContext.open(connect(settings.redis_url), Keys("hpq"), mints=False)
    History(settings, context).move(shelf.files)


def kill_points(seed: int) -> Iterator[int]:
    steps, line = random.Random(seed), 0
    while True:
        yield (line := line + steps.randint(2, 12))


@pytest.mark.slow
def test_a_mover_killed_at_any_step_leaves_the_sweep_once_or_twice_and_the_next_one_finishes(
    settings, history_of, over, shelf: Shelf, redis: Redis, reader: StoreReader
) -> None:
    """History: kill -9 of a worker that moves a sweep, at any line."""
    places = set()
    for n, line in enumerate(kill_points(7)):
        sid = over(f"demo-{n:05d}")
        let_a_millisecond_pass(redis)
        is_killed = was_killed(line, STEPS, partial(move, settings, shelf))
        is_moved = is_archived(redis, shelf, sid)
        if reader.sweeps.exists(sid):
            assert audit_sweep(reader, sid).violations == (), f"killed at line {line}"
            assert [t.objective for t in reader.trials.all(sid)] == [0.25, 0.5]
        else:
            assert is_moved, f"killed at line {line}"
        places.add((is_moved, bool(archives(shelf, sid)), bool(redis.keys(f"hpq:[st]:{sid}*"))))
        history_of().move(shelf.files)  # the next worker
        assert is_archived(redis, shelf, sid) and len(archives(shelf, sid)) <= 2
        assert not redis.keys(f"hpq:[st]:{sid}*") and not redis.smembers("hpq:removing")
        if not is_killed:
            break
    # Before and after the copy, and after the line: with keys left, and without.
    assert places == {
        (False, False, True), (False, True, True), (True, True, True), (True, True, False)
    }  # fmt: skip
