"""A sweep as one file, and back: every key as it was, or nothing at all."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from hpq.access.session import Session
from hpq.archive.transfer import restore, write
from hpq.domain.attempt import Nothing, Outcome, Reason, ReportBatch
from hpq.domain.sweep import EarlyTerminate, Launch, Metric, TerminationRule
from hpq.domain.trial import Claim, Failure, FailureKind, Point, TrialState
from hpq.errors import UserError
from hpq.settings import read
from hpq.store import scripts
from hpq.store.control import SweepControl
from hpq.store.scripts import StoreContext
from hpq.store.sweep_copy import ArchiveRestore
from hpq_ops.audit.sweep_audit import audit_sweep
from tests.support.commands import HPQ
from tests.support.ids import refused

LEASE = 30_000
SID = "demo-00000"
Hpq = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def session(redis: Redis, redis_url: str, keys, reader, store_context, tmp_path: Path) -> Session:
    settings = read({"HPQ_REDIS_URL": redis_url, "HPQ_HOME": str(tmp_path / "home"), "USER": "me"})
    return Session(
        settings=settings,
        url=redis_url,
        redis=redis,
        keys=keys,
        reader=reader,
        context=store_context,
    )


def dump(redis: Redis) -> dict[bytes, object]:
    """What every key of the sweep holds, by type, and what the others say of it."""
    found: dict[bytes, object] = {}
    readers = {
        b"hash": redis.hgetall,
        b"zset": lambda k: redis.zrange(k, 0, -1, withscores=True),
        b"set": redis.smembers,
        b"stream": redis.xrange,
    }
    for key in redis.keys("hpq:[st]:*"):
        if not key.endswith(b":restoring"):
            found[key] = readers[redis.type(key)](key)
            assert redis.ttl(key) == -1, key
    for row in found.values():
        if isinstance(row, dict):
            row.pop(b"restored_ms", None)  # when it came back is new
    for name in ("digests", "last", "provenance", "code", "sweeps", "c:default:open"):
        key = f"hpq:{name}".encode()
        if redis.exists(key):
            found[key] = readers[redis.type(key)](key)
    found[b"demand"] = redis.llen("hpq:demand:default")
    return found


@pytest.fixture
def lived(store, sweep_of, who, redis, keys, control: SweepControl) -> str:
    """A sweep with everything in it: ends of all kinds, requeues, binary logs, waiting trials."""
    sweep_of(
        40,
        SID,
        launch=Launch(program="a b.py", command=("${env}", "x"), code="d1"),
        metric=Metric(name="a/b c"),
        early=EarlyTerminate(rule=TerminationRule.HYPERBAND, bands=(1, 30, 900, 2700)),
        spec={"a": [1, {"b": None}], "text": "\x1b[31mé"},
    )
    redis.hset(keys.code, "d1", '{"a b.py":"00"}')
    store.keep_provenance("ran-on", '{"gpu":"none"}')
    nonces = iter(range(100))

    def take():
        return store.claim(who, nonce=f"n{next(nonces)}", lease_ms=LEASE, provenance="ran-on")

    for value in (0.5, 1 / 3, -2e-300):
        claim = take()
        points = tuple(Point(step=s, name="a/b c", value=s / 7) for s in range(900))
        more = (*points, Point(step=1, name="émile", value=float("nan")))
        log = b"\xff\x00 not text\n" + os.urandom(2000)
        store.beat(claim, who, ReportBatch(seq=1, step=3, log=log, points=more), lease_ms=LEASE)
        store.beat(claim, who, ReportBatch(seq=2, step=4, log=b"end\n"), lease_ms=LEASE)
        store.commit(claim, Outcome(state=TrialState.FINISHED, objective=value, step=4))
    failure = Failure(kind=FailureKind.USER_ERROR, message="no", fingerprint="f")
    store.commit(take(), Outcome(state=TrialState.FAILED, failure=failure))
    store.release(take(), Reason.STOPPING)
    control.cancel(SID, [7, 8])
    control.pause(SID)
    return SID


def test_a_sweep_comes_back_as_it_was_to_every_key(
    hpq: Hpq, lived, redis, reader, tmp_path, monkeypatch
) -> None:
    before = dump(redis)
    assert before[b"demand"] == 0 and len(before) > 20
    done = hpq("archive", lived, "s.hpq")
    assert done.returncode == 0 and f"{lived}: 40 trials " in done.stderr
    assert dump(redis) == before
    assert hpq("rm", lived, "--yes").returncode == 0
    redis.delete("hpq:code", "hpq:provenance")
    assert not reader.sweeps.ids()
    done = hpq("archive", "--restore", "s.hpq", "--json")
    assert json.loads(done.stdout) == {
        "sweep": lived, "trials": 40, "file": "s.hpq", "restored": True,
    }, done.stderr  # fmt: skip
    assert dump(redis) == before
    assert audit_sweep(reader, lived).violations == ()


def test_a_restored_sweep_goes_on(
    hpq: Hpq, lived, redis, store, reader, who, control: SweepControl
) -> None:
    assert hpq("archive", lived, "s.hpq").returncode == 0
    assert hpq("rm", lived, "--yes").returncode == 0
    assert hpq("archive", "--restore", "s.hpq").returncode == 0
    control.resume(lived)
    assert redis.llen("hpq:demand:default") == reader.sweeps.get(lived).counts.queued == 34
    assert redis.llen("rq:queue:hpq:hpq:default") > 0
    ran = 0
    while isinstance(claim := store.claim(who, nonce=f"later-{ran}", lease_ms=LEASE), Claim):
        assert ran or (claim.trial.number, claim.attempt) == (5, 2)  # what was requeued goes first
        store.commit(claim, Outcome(state=TrialState.FINISHED, objective=1.0))
        ran += 1
    found = audit_sweep(reader, lived)
    assert ran == 34 and found.violations == () and found.open == 0


def test_an_archive_is_written_whole_and_over_nothing(hpq: Hpq, lived, tmp_path) -> None:
    (tmp_path / "s.hpq").write_text("mine")
    done = hpq("archive", lived, "s.hpq")
    refused(done, "file-exists")
    assert (tmp_path / "s.hpq").read_text() == "mine"
    (tmp_path / "s.hpq").unlink()
    assert hpq("archive", lived, "s.hpq").returncode == 0
    first = (tmp_path / "s.hpq").read_bytes()
    assert hpq("archive", lived, "t.hpq").returncode == 0
    assert (tmp_path / "t.hpq").read_bytes() == first  # the same sweep, the same file
    assert hpq("archive", lived, "no/such/folder.hpq").returncode == 2
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["s.hpq", "t.hpq"]


def test_a_backup_has_each_sweep_as_it_is_now_and_omits_what_runs(
    hpq: Hpq, lived, sweep_of, store, who, control: SweepControl, tmp_path
) -> None:
    for _ in range(2):  # the second replaces the files of the first
        done = hpq("archive", "--all", "backup", "--json")
        assert done.returncode == 0 and [f["sweep"] for f in json.loads(done.stdout)] == [lived]
        control.resume(lived)
    assert hpq("archive", lived, "now.hpq").returncode == 0
    sweep_of(1, "young-00000")
    assert isinstance(store.claim(who, nonce="y", lease_ms=LEASE, only="young-00000"), Claim)
    done = hpq("archive", "--all", "backup")
    assert done.returncode == 1, done.stderr
    assert "young-00000 is omitted" in done.stderr and "[trials-running]" in done.stderr
    written = {path.name: path.read_bytes() for path in (tmp_path / "backup").iterdir()}
    assert written == {f"{lived}.hpq": (tmp_path / "now.hpq").read_bytes()}


def test_an_archive_holds_no_secret(hpq: Hpq, lived, redis_url, tmp_path) -> None:
    key = "very-secret-code-key"
    assert hpq("archive", lived, "s.hpq", HPQ_CODE_KEY=key).returncode == 0
    text = gzip.decompress((tmp_path / "s.hpq").read_bytes())
    assert key.encode() not in text and redis_url.removeprefix("unix://").encode() not in text


def test_a_sweep_that_runs_or_moves_is_not_archived(
    hpq: Hpq, sweep_of, store, who, tmp_path
) -> None:
    sweep_of(2, SID)
    assert isinstance(store.claim(who, nonce="a", lease_ms=LEASE), Claim)
    done = hpq("archive", SID, "s.hpq")
    refused(done, "trials-running", f"hpq pause {SID}")
    assert not (tmp_path / "s.hpq").exists()


def test_an_archive_too_large_for_what_is_left_is_refused_before_it_begins(
    hpq: Hpq, lived, redis, tmp_path
) -> None:
    file = tmp_path / "a.gz"
    assert hpq("archive", SID, file).returncode == 0
    assert hpq("rm", SID, "--yes").returncode == 0
    used = int(redis.info("memory")["used_memory"])
    try:
        redis.config_set("maxmemory", int(used / 0.9))  # more than hpq fills is used already
        done = hpq("archive", "--restore", file)
        assert done.returncode == 3
        takes = re.search(r"40 trials\D* ([\d.]+) (KiB|MiB)", done.stderr)
        assert not redis.keys("hpq:[st]:*")
        more = int(float(takes[1]) * {"KiB": 1 << 10, "MiB": 1 << 20}[takes[2]])
        assert 40 * 450 <= more < 8 << 20
        redis.config_set("maxmemory", int((used + more + (8 << 20)) / 0.8))
        assert hpq("archive", "--restore", file).returncode == 0
    finally:
        redis.config_set("maxmemory", 0)


def test_a_sweep_whose_id_is_there_is_not_restored_over_it(hpq: Hpq, lived, redis) -> None:
    assert hpq("archive", lived, "s.hpq").returncode == 0
    before = dump(redis)
    done = hpq("archive", "--restore", "s.hpq")
    assert done.returncode == 2 and f"hpq rm {lived}" in done.stderr
    assert dump(redis) == before


def lines_of(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def packed(lines: list[str]) -> bytes:
    return gzip.compress(("\n".join(lines) + "\n").encode())


def edited(lines: list[str], number: int, **changes: object) -> bytes:
    data = json.loads(lines[number]) | changes
    return packed([*lines[:number], json.dumps(data), *lines[number + 1 :]])


INVALID = "archive-invalid"
DAMAGES: dict[str, tuple[Callable[[bytes, list[str]], bytes], str]] = {
    "cut in the middle": (lambda raw, _: raw[: len(raw) // 2], "archive-torn"),
    "without its last line": (lambda _, lines: packed(lines[:-1]), "archive-torn"),
    "without a line of items": (lambda _, lines: packed(lines[:3] + lines[4:]), "archive-torn"),
    "with a flipped byte": (
        lambda raw, _: raw[:200] + bytes([raw[200] ^ 255]) + raw[201:],
        "",
    ),
    "not gzipped": (lambda _, lines: "\n".join(lines).encode(), INVALID),
    "empty": (lambda *_: b"", INVALID),
    "another JSON": (lambda *_: packed(['{"a": 1}']), INVALID),
    "of a newer hpq": (
        lambda _, lines: edited(lines, 0, **{"hpq-archive": 2}),
        "hpq-too-old",
    ),
    "of a sweep with another's name": (
        lambda _, lines: edited(lines, 0, sweep="../x"),
        INVALID,
    ),
    "with a key that is none": (lambda _, lines: edited(lines, 2, part="a:b"), INVALID),
    "with a trial beyond the last": (
        lambda _, lines: edited(lines, 2, trial=41),
        INVALID,
    ),
    "with items of another kind": (
        lambda _, lines: edited(lines, 2, items=[["1"]]),
        INVALID,
    ),
    "with more items than hpq writes in a line": (
        lambda _, lines: edited(lines, 3, part="stores", kind="set", items=[["a"]] * 501),
        INVALID,
    ),
    "with an item that is no text": (
        lambda _, lines: edited(lines, 2, items=[[1, 2]]),
        INVALID,
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_nothing_is_restored_of_a_file_that_is(
    session: Session, lived, store, redis, tmp_path, damage: str, control: SweepControl
) -> None:
    """Archive: a file is cut, flipped, edited, newer, or of something else."""
    path = tmp_path / "s.hpq"
    write(session.context, lived, path)
    control.remove(lived)
    before = set(redis.keys("*"))
    spoil, what = DAMAGES[damage]
    path.write_bytes(spoil(path.read_bytes(), lines_of(path)))
    with pytest.raises(UserError) as caught:
        restore(session.context, path)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{path}: ") and what in ("", caught.value.code)
    assert set(redis.keys("*")) == before


TINY = '["a"], ' * (24 << 17) + '["a"]'
EMPTY = "[], " * (24 << 18) + "[]"
LONG = '["' + "a" * (72 << 20) + '"]'


@pytest.mark.parametrize("items", [TINY, EMPTY, LONG], ids=["tiny", "empty", "long"])
def test_a_small_file_cannot_take_all_memory(
    environ: dict[str, str], redis, tmp_path, items: str
) -> None:
    """A line of 24 to 72 MiB, which takes a few KiB in the file and up to 100 times in memory."""
    head = {"hpq-archive": 1, "hpq": "0", "sweep": SID, "trials": 1}
    row = '{"trial": 0, "part": "ids", "kind": "set", "items": [' + items + "]}"
    (tmp_path / "s.hpq").write_bytes(packed([json.dumps(head), row, '{"end": 1}']))
    assert (tmp_path / "s.hpq").stat().st_size < 1 << 18
    words = ["prlimit", f"--as={700 << 20}", HPQ, "archive", "--restore", "s.hpq"]
    done = subprocess.run(
        words, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    refused(done, INVALID, "hpq archive SWEEP")


def test_a_file_without_end_is_refused_before_it_is_read_whole(session: Session, tmp_path) -> None:
    head = {"hpq-archive": 1, "hpq": "0", "sweep": SID, "trials": 1}
    row = {"trial": 1, "part": "log", "kind": "stream", "items": [["1-1", "d", "x" * (4 << 20)]]}
    with gzip.open(tmp_path / "s.hpq", "wt", compresslevel=1) as file:
        file.write(json.dumps(head) + "\n")
        for _ in range(60):
            file.write(json.dumps(row) + "\n")
    with pytest.raises(UserError, match="larger than what hpq writes"):
        restore(session.context, tmp_path / "s.hpq")


def test_a_damaged_file_is_one_line_and_exit_code_2(hpq: Hpq, tmp_path) -> None:
    (tmp_path / "s.hpq").write_text("not an archive")
    for name in ("s.hpq", "none.hpq"):
        done = hpq("archive", "--restore", name)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert hpq("archive", "demo").returncode == 2


def test_a_restoring_that_dies_is_invisible_and_expires_and_can_be_done_again(
    hpq: Hpq, lived, redis, reader, store, who, tmp_path, monkeypatch, store_context: StoreContext
) -> None:
    """Archive: a restore dies in its midst."""
    before = dump(redis)
    assert hpq("archive", lived, "s.hpq").returncode == 0
    assert hpq("rm", lived, "--yes").returncode == 0
    half = ArchiveRestore(store_context, lived, 40)
    half.write(0, "params", "hash", [b"1", b'{"x":1}'])
    half.write(0, "waiting", "zset", [b"1", b"1"])
    half.write(3, "", "hash", [b"state", b"finished", b"attempt", b"1"])
    assert not reader.sweeps.ids() and store.claim(who, nonce="a", lease_ms=LEASE) == Nothing()
    mine = [k for k in redis.keys("hpq:[st]:*")]
    assert len(mine) == 4 and all(0 < redis.ttl(key) <= 3600 for key in mine)
    done = hpq("archive", "--restore", "s.hpq")
    refused(done, "restore-busy")
    half.discard()
    assert not redis.keys("hpq:[st]:*")
    assert hpq("archive", "--restore", "s.hpq").returncode == 0
    assert dump(redis) == before


def test_rows_sent_twice_are_there_once(
    redis, keys, store, lived, monkeypatch, control: SweepControl, store_context: StoreContext
) -> None:
    """As a client does where the reply is lost."""
    run = scripts.Scripts.run

    def twice(self, *rows, **fields):
        run(self, *rows, **fields)
        return run(self, *rows, **fields)

    monkeypatch.setattr(scripts.Scripts, "run", twice)
    fields = redis.hgetall(keys.sweep(lived))
    control.remove(lived)
    one = ArchiveRestore(store_context, lived, 1)
    one.write(0, "params", "hash", [b"1", b'{"x":1}'])
    one.write(0, "waiting", "zset", [b"1", b"1"])
    stream = [b"5-1", b"4", b"e", b"created", b"count", b"1", b"9-0", b"2", b"e", b"pause"]
    one.write(0, "events", "stream", stream)
    one.write(0, "events", "stream", [b"9-1", b"2", b"e", b"resume"])
    one.finish(fields)
    assert [eid for eid, _ in redis.xrange(keys.sweep(lived, "events"))] == [b"5-1", b"9-0", b"9-1"]
    assert store.sweep(lived).id == lived
    assert all(redis.ttl(keys.sweep(lived, p)) == -1 for p in ("", "params", "waiting", "events"))


def test_a_restoring_whose_rows_have_expired_leaves_nothing(
    redis, keys, store, lived, reader, control: SweepControl, store_context: StoreContext
) -> None:
    fields = redis.hgetall(keys.sweep(lived))
    control.remove(lived)
    one = ArchiveRestore(store_context, lived, 1)
    one.write(0, "params", "hash", [b"1", b'{"x":1}'])
    one.write(0, "waiting", "zset", [b"1", b"1"])
    redis.delete(keys.sweep(lived, "params"))
    with pytest.raises(Exception, match="expired"):
        one.finish(fields)
    assert not reader.sweeps.ids() and redis.ttl(keys.sweep(lived, "waiting")) > 0
