"""One odd field in Redis is one named row, or one error with its id; nothing else stops for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from redis import Redis

import hpq as api
from hpq.access.session import open_session
from hpq.domain.trial import FailureKind, TrialId
from hpq.errors import DecodeError, Forbidden, HpqError
from hpq.store.reader import StoreReader
from hpq.store.wire import trial as trial_codec
from hpq.store.wire.sweep import decode_sweep
from hpq_producer.actions.by_name import carry_out
from hpq_views.page.clicks import Actions
from hpq_views.page.dashboard import Dashboard
from tests.support import odd_records
from tests.support.ids import ids, refused
from tests.support.odd_records import (
    ENDED,
    ODD,
    OTHER,
    OTHER_TYPES,
    RUNNING,
    SID,
    SWEEP,
    WORKER,
    Snapshot,
    fields_of,
    make_other,
)

VIEWS = {
    SWEEP: (
        ["ls"], ["ls", "--all", "-o", "json"], ["show", SID], ["show", SID, "-o", "json"],
        ["show", SID, "--provenance"], ["watch", SID, "--once"], ["wait", SID, "--timeout", "0"],
        ["summary", SID], ["best", SID], ["audit", SID],
    ),
    ENDED: (
        ["show", f"{SID}/2"], ["show", f"{SID}/2", "-o", "json"], ["results", SID, "-o", "csv"],
        ["results", SID, "-o", "json"], ["results", SID], ["summary", SID], ["best", SID],
        ["best", SID, "-o", "json"], ["watch", SID, "--once"], ["audit", SID],
        ["report", SID, "--out", "x.html"],
    ),
    RUNNING: (
        ["show", f"{SID}/1"], ["show", SID, "-o", "json"], ["watch", SID, "--once", "-o", "json"],
        ["watch", SID, "--once"], ["results", SID], ["ls"], ["wait", SID, "--timeout", "0"],
    ),
    WORKER: (
        ["workers"], ["workers", "-o", "json"], ["show", SID], ["watch", SID, "--once"], ["ls"],
    ),
}  # fmt: skip
# A field that no value of hpq's is like, by record.
UNREADABLE = {SWEEP: ("made:x", "inf"), ENDED: ("step", "1e400"), WORKER: ("pid", "\udcff")}


@pytest.fixture
def world(redis: Redis, sweep_of, store) -> Redis:
    odd_records.fill(redis, sweep_of, store)
    later = 10**13  # a test on a busy machine takes longer than a worker lives without heartbeats
    redis.zadd("hpq:workers", {"w1": later, "w2": later})
    return redis


def is_readable(reader: StoreReader, row: dict[bytes, bytes], key: str) -> bool:
    """Return whether a record of these fields can be decoded; another error than ours is a bug."""
    try:
        if key == SWEEP:
            decode_sweep(key, SID, row, 1, 1, 0)
        elif key == WORKER:
            return not next(w for w in reader.workers.live() if w.name == "w1").unreadable
        else:
            trial_codec.decode_trial(key, TrialId(sweep=SID, number=1), row, {}, dropped=False)
    except DecodeError as error:
        assert str(error).startswith(f"{key}: field "), error
        return False
    return True


# Fields that are read apart from their record: an odd one is one error of the views that need it.
APART = ("dur_n", "dur_sum", "dur_sq", "event_ids")


def check_views(hpq, key: str, what: object, codes: tuple[int, ...]) -> None:
    for words in VIEWS[key]:
        done = hpq(*words)
        assert done.returncode in codes and "internal" not in ids(done.stderr), (what, done)
        assert len(done.stdout) < 200_000, (what, words)
        if done.returncode == 3:
            assert ids(done.stderr)[-1] == "value-unreadable", (what, done)


@pytest.mark.parametrize("key", VIEWS, ids=["sweep", "ended", "running", "worker"])
def test_no_view_breaks_on_an_odd_field_that_can_be_read(
    world: Redis, reader: StoreReader, hpq, key: str
) -> None:
    """Every field that hpq may write, with every odd value: a value, or an error with its name."""
    snapshot, row = Snapshot(world), world.hgetall(key)
    refusing = set[str]()
    for value in ODD:
        snapshot.restore()
        taken = {}
        for field in fields_of(world, key):
            if key == WORKER:
                world.hset(key, field, value)
            if is_readable(reader, {**row, field.encode(): value}, key):
                taken[field] = value
            else:
                refusing.add(field)
            if key == WORKER:
                world.hset(key, field, row.get(field.encode(), b""))
        apart = {field: taken.pop(field) for field in APART if field in taken}
        world.hset(key, mapping=taken)
        check_views(hpq, key, value[:40], (0, 1, 5))
        if apart:
            world.hset(key, mapping=apart)
            check_views(hpq, key, value[:40], (0, 1, 3, 5))
    assert len(refusing) > 5, refusing


def get(page: str, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Return status and text of a page of a dashboard that has just started."""
    for name in ("HPQ_REDIS_URL", "HPQ_HOME", "HPQ_USER"):
        monkeypatch.setenv(name, environ[name])
    scope = {
        "type": "http", "method": "GET", "path": page, "raw_path": page.encode(), "headers":
        [(b"host", b"localhost")], "query_string": b"", "root_path": "", "scheme": "http",
        "http_version": "1.1", "client": ("127.0.0.1", 1), "server": ("localhost", 80),
    }  # fmt: skip
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    with open_session() as session:
        actions = Actions(session, partial(carry_out, session), Forbidden("read-only"))
        app = Dashboard(session, (), "", actions).app()
        with ThreadPoolExecutor(1) as thread:  # tests of pages leave a loop in this one
            thread.submit(lambda: asyncio.run(app(scope, receive, send))).result()
    body = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], body.decode()


Break = Callable[[Redis], object]
# A record that cannot be decoded: its key, and what another client does to it.
BROKEN: dict[str, tuple[str, Break]] = {
    "sweep: made:x inf": (SWEEP, lambda r: r.hset(SWEEP, "made:x", "inf")),
    "sweep: created_ms of no year": (SWEEP, lambda r: r.hset(SWEEP, "created_ms", 2**62)),
    "sweep: a name that is no text": (SWEEP, lambda r: r.hset(SWEEP, "name", b"\xff")),
    "sweep: a stream": (SWEEP, lambda r: make_other(r, SWEEP, "stream")),
    "sweep: running is a list": (SWEEP, lambda r: make_other(r, f"{SWEEP}:running", "list")),
    "sweep: its ranking is a text": (SWEEP, lambda r: make_other(r, f"{SWEEP}:rank", "string")),
    "trial: step 1e400": (ENDED, lambda r: r.hset(ENDED, "step", "1e400")),
    "trial: run_info of NaN": (ENDED, lambda r: r.hset(ENDED, "run_info", '{"x":NaN}')),
    "trial: a metric's name is no text": (ENDED, lambda r: r.hset(ENDED, b"m:\xff", "1")),
    "trial: its record is a list": (ENDED, lambda r: make_other(r, ENDED, "list")),
    "trial: parameters of half a character": (
        ENDED, lambda r: r.hset(f"{SWEEP}:params", "2", '{"x":"\\ud800"}'),
    ),
    "trial: parameters nested deeply": (
        ENDED, lambda r: r.hset(f"{SWEEP}:params", "2", '{"a":' * 300 + "1" + "}" * 300),
    ),
    "worker: pid is no text": (WORKER, lambda r: r.hset(WORKER, "pid", b"\xff")),
    "worker: refuses a list": (WORKER, lambda r: r.hset(WORKER, "refuses", "[7]")),
    "worker: its record is a set": (WORKER, lambda r: make_other(r, WORKER, "set")),
}  # fmt: skip


@pytest.mark.parametrize("value", [b"inf", b"\xff", b"-1", b"9" * 30, "list"])
def test_no_command_fails_for_the_time_by_which_lost_data_are_noticed(
    world: Redis, hpq, value: bytes | str
) -> None:
    assert hpq("ls").returncode == 0
    if isinstance(value, bytes):
        world.hset("hpq:server", "newest_ms", value)
    else:
        make_other(world, "hpq:server", value)
    for words in (["ls"], ["show", OTHER], ["workers"], ["pause", OTHER]):
        assert hpq(*words).returncode == 0, words


OF_TRIAL = ["results", SID, "-o", "json"]


@pytest.mark.parametrize("what", BROKEN)
def test_a_record_that_cannot_be_read_is_one_named_row_of_every_list(
    world: Redis, hpq, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    key, break_it = BROKEN[what]
    break_it(world)
    page = "/workers" if key == WORKER else "/" if key == SWEEP else f"/sweep/{SID}"
    found = {
        SWEEP: (["ls"], ["ls", "--all", "-o", "json"]),
        ENDED: (OF_TRIAL, ["results", SID, "-o", "csv"]),
        WORKER: (["workers"], ["workers", "-o", "json"]),
    }[key]
    for words in found:
        done = hpq(*words)
        named = done.stdout + done.stderr
        assert done.returncode == 0 and "value-unreadable" in named, (words, done)
        assert named.count(f"{key}" if key == SWEEP else "value-unreadable") == 1, (words, done)
    others = hpq(*found[-1]).stdout
    assert (OTHER if key == SWEEP else "w2" if key == WORKER else "pruned") in others
    for words in (["ls"], ["workers"], ["show", OTHER], ["wait", OTHER, "--timeout", "0"]):
        assert hpq(*words).returncode in (0, 5), words
    for words in (["show", SID], ["watch", SID, "--once"], ["summary", SID], ["best", SID]):
        done = hpq(*words)
        assert (done.returncode, ids(done.stderr)[-1:]) == (3, ["value-unreadable"]) or (
            key != SWEEP and done.returncode in (0, 5)
        ), (words, done)
    status, text = get(page, environ, monkeypatch)
    assert status == 200 and (key != SWEEP or (OTHER in text and SID in text))
    if page != f"/sweep/{SID}":
        assert "value-unreadable" in text
    status, text = get(f"{page.rstrip('/')}/changes", environ, monkeypatch)
    assert status == 200 and json.loads(text)


@pytest.mark.parametrize("what", BROKEN)
def test_python_lists_the_others_and_raises_one_error_for_the_record(
    world: Redis, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    key, break_it = BROKEN[what]
    for name in ("HPQ_REDIS_URL", "HPQ_HOME", "HPQ_USER"):
        monkeypatch.setenv(name, environ[name])
    break_it(world)
    assert OTHER in {sweep.id for sweep in api.sweeps()} and OTHER in repr(api.sweeps())
    if key == SWEEP and "ranking" not in what:
        with pytest.raises(HpqError) as caught:
            api.Sweep(SID)
        assert caught.value.code == "value-unreadable"
    elif key == ENDED:
        sweep = api.Sweep(SID)
        failed = [trial.failure for trial in sweep.trials() if trial.failure]
        assert sorted(kind.kind for kind in failed) == ["unreadable", "user_error"]
        with pytest.raises(HpqError) as caught:
            sweep[2]
        assert caught.value.code == "value-unreadable"
    else:
        assert api.Sweep(SID).state


@pytest.mark.parametrize("what", [name for name in BROKEN if name.startswith("trial")])
def test_a_trial_that_cannot_be_read_is_a_row_and_one_error(world: Redis, hpq, what: str) -> None:
    BROKEN[what][1](world)
    rows = {row["trial"]: row for row in json.loads(hpq(*OF_TRIAL).stdout)}
    assert set(rows) == {1, 2, 3, 4, 5}
    failure = rows[2]["failure"]
    assert failure["kind"] == FailureKind.UNREADABLE and "[value-unreadable]" in failure["message"]
    assert rows[1]["failure"] is None and rows[3]["failure"]["message"] == "boom"
    refused(hpq("show", f"{SID}/2"), "value-unreadable", exit=3)


@pytest.mark.parametrize("kind", OTHER_TYPES)
def test_rm_with_force_removes_what_cannot_be_read(world: Redis, hpq, kind: str) -> None:
    snapshot = Snapshot(world)
    names = [n for n in snapshot.keys if n.startswith((SWEEP, f"hpq:t:{SID}/"))]
    if kind == "hash":  # without created_ms it is no sweep; and a hash may have few parameters
        names = [name for name in names if name not in (SWEEP, f"{SWEEP}:params")]
    for name in snapshot.restored(names):
        make_other(world, name, kind)
        done = hpq("rm", SID, "--yes", "--force")
        assert done.returncode == 0, (name, done)
        left = [key.decode() for key in world.keys("*") if f":{SID}".encode() in key]
        listed = (f"{SWEEP}:band:", f"{name}:p:")  # keys that only the lost record listed
        assert not [key for key in left if not key.startswith(listed)], (name, left)
        assert world.exists(f"hpq:s:{OTHER}") and hpq("ls").returncode == 0


def test_rm_of_what_cannot_be_read_names_the_option(world: Redis, hpq) -> None:
    world.hset(SWEEP, "made:x", "inf")
    refused(hpq("rm", SID, "--yes"), "value-unreadable", f"hpq rm --force {SID}", exit=3)
    refused(hpq("rm", SID, "--force"), "confirmation-missing")
    assert hpq("rm", SID, "--yes", "--force").returncode == 0
    assert SID not in hpq("ls").stdout
