"""Commands on sweeps that were moved into the file store: reading, restoring, deleting."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

import hpq as api
from hpq.connection.client import connect
from hpq.domain.attempt import CommitReply, ReportBatch
from hpq.domain.trial import Point
from hpq.filestore.local import open_files
from hpq.settings import read
from hpq.store.trials import TrialStore
from hpq.store.wire.sweep import encode_moved
from hpq_producer.embedded_redis.attach import attach
from hpq_producer.page.live import LiveSweep
from hpq_producer.session import reader_of
from hpq_worker.consumer.run_limit import RunLimit
from tests.support.ids import refused
from tests.support.store_calls import LEASE, Shelf, end, move_all, take

SID, LIVE = "demo-00000", "live-00000"
Hpq = Callable[..., subprocess.CompletedProcess[str]]
READS: tuple[tuple[str, ...], ...] = (
    ("show", SID, "--json"),
    ("show", f"{SID}/2", "--json"),
    ("show", SID, "--provenance"),
    ("summary", SID, "--json"),
    ("best", SID, "--json"),
    ("diff", SID, LIVE, "--json"),
    ("diff", f"{LIVE}/1", f"{SID}/1"),
    ("results", SID, "-o", "csv"),
    ("results", "demo", "--history", "-o", "csv"),
    ("logs", f"{SID}/1"),
    ("audit", SID, "--json"),
    ("wait", SID, "--json"),
    ("get", f"{SID}/1"),
)


@pytest.fixture
def here(environ: dict[str, str], tmp_path: Path) -> dict[str, str]:
    environ["HPQ_STORE"] = str(tmp_path / "store")
    environ["HPQ_CODE_KEY"] = "k" * 32
    return environ


@pytest.fixture
def two(here, store: TrialStore, sweep_of, who, shelf: Shelf) -> None:
    """One sweep that is over, and one that waits."""
    sweep_of(3, SID, tags=("paper",))
    for nonce, value in (("a", 0.25), ("b", 0.5), ("c", 0.125)):
        claim = take(store, who, nonce)
        points = tuple(Point(step=s, name="acc", value=value * s) for s in range(1, 9))
        batch = ReportBatch(seq=1, step=8, log=b"\xff a line\n", points=points)
        store.beat(claim, who, batch, lease_ms=LEASE)
        end(store, claim, value, artifacts=shelf.artifacts(claim))
    sweep_of(1, LIVE)


@pytest.fixture
def move(here: dict[str, str], shelf: Shelf) -> Callable[[], None]:
    """Return a function that moves the sweeps that are over."""
    return lambda: move_all(here, shelf.files)


def test_every_view_of_a_moved_sweep_is_as_before(
    hpq: Hpq, two, move, redis: Redis, reader, here, monkeypatch, tmp_path
) -> None:
    before = {words: hpq(*words) for words in READS}
    listed = json.loads(hpq("ls", "--json").stdout)
    keys = set(redis.keys("*"))
    move()
    for words, done in before.items():
        again = hpq(*words)
        assert (again.returncode, again.stdout) == (done.returncode, done.stdout), (
            words,
            again.stderr,
        )
    assert {one["id"] for one in json.loads(hpq("ls", "--json").stdout)} == {LIVE}
    everything = {one["id"]: one for one in json.loads(hpq("ls", "--all", "--json").stdout)}
    was = {one["id"]: one for one in listed}
    assert everything[SID].pop("moved_to") and was[SID].pop("moved_to") is None
    assert everything[SID] == was[SID]
    assert ", moved " in hpq("ls", "--all").stdout
    for words in ((), ("--where", "state == held"), ("--tag", "none")):
        assert "1 sweep moved to the file store: hpq ls --all" in hpq("ls", *words).stderr
    said = hpq("ls", "--all", "--tag", "paper")
    assert SID in said.stdout and "1 sweep ended long ago" in said.stderr
    assert SID in hpq("summary", SID, LIVE).stdout, "one of two is in Redis"
    assert hpq("report", SID, LIVE).returncode == 0
    assert hpq("get", f"{SID}/1", "file").returncode == 0 and (tmp_path / "file").exists()
    # Nothing came back to Redis.
    assert not reader.sweeps.exists(SID) and set(redis.keys("*")) <= keys | {b"hpq:history"}
    for name, value in here.items():
        monkeypatch.setenv(name, value)
    sweep = api.Sweep("demo")
    assert (sweep.id, sweep.state, sweep.best().objective) == (SID, "finished", 0.5)
    assert [trial.log() for trial in sweep] and len(sweep.to_pandas()) == 3


def test_what_changes_a_moved_sweep_is_refused_until_it_is_restored(
    hpq: Hpq, two, move, reader, redis, caplog, store, who
) -> None:
    move()
    remedy = f"hpq archive --restore {SID}"
    for words in (
        ("pause", SID), ("resume", SID), ("stop", SID, "--yes"), ("cancel", SID, "--yes"),
        ("run", SID), ("retry", SID), ("set", SID, "priority=1"), ("best", SID, "--confirm", "2"),
    ):  # fmt: skip
        refused(hpq(*words), "sweep-moved", remedy, exit=4)
    end(store, take(store, who, "d"), 0.5)
    for both in ((SID, LIVE), (LIVE, SID)):
        refused(hpq("best", *both, "--confirm", "2"), "sweep-moved", remedy, exit=4)
    assert reader.sweeps.ids() == [LIVE], "nothing was queued"
    with caplog.at_level("INFO", "hpq"):
        assert RunLimit(read_sweep=lambda: reader.sweeps.get(SID)).is_done()
    assert "moved to the file store, exiting" in caplog.text
    assert hpq("archive", "--restore", "demo").returncode == 0
    assert reader.sweeps.exists(SID) and not redis.hexists("hpq:history", SID)
    assert redis.hexists(f"hpq:s:{SID}", "restored_ms"), "from when its age counts"
    assert hpq("pause", SID).returncode != 4
    refused(hpq("archive", "--restore", SID), "sweep-exists", SID)
    move()
    assert not reader.sweeps.exists(SID)


def test_a_read_that_died_in_its_midst_keeps_no_later_one_waiting(
    hpq: Hpq, two, move, tmp_path, control
) -> None:
    """History: a command dies while it restores a sweep into its cache."""
    move()
    control.remove(LIVE)
    assert SID in hpq("show").stdout, "the last sweep of a user may be in the history"
    with connect(attach(tmp_path / "home" / "cache" / "history").url) as cache:
        cache.flushall()
        cache.set(f"hpq:s:{SID}:restoring", "token of the dead", ex=3600)
    assert hpq("show", SID).returncode == 0


def test_archives_of_moved_sweeps_are_copied_from_the_store_and_verified(
    hpq: Hpq, two, move, reader, tmp_path
) -> None:
    """History: `archive --all` omitted moved sweeps in silence, and a single one was refused."""
    move()
    assert hpq("archive", "demo", "one.hpq").returncode == 0
    refused(hpq("archive", SID, "one.hpq"), "file-exists")
    done = hpq("archive", "--all", "backup", "--json")
    assert done.returncode == 0
    assert {one["sweep"]: one["trials"] for one in json.loads(done.stdout)} == {SID: 3, LIVE: 1}
    copy = tmp_path / "backup" / f"{SID}.hpq"
    assert copy.read_bytes() == (tmp_path / "one.hpq").read_bytes()
    done = hpq("archive", "--all", "backup", HPQ_STORE=str(tmp_path / "away"))
    assert done.returncode == 1 and f"{SID} is omitted" in done.stderr and copy.exists()
    assert hpq("rm", SID, "--yes").returncode == 0
    assert hpq("archive", "--restore", str(copy)).returncode == 0 and reader.sweeps.exists(SID)


def test_rm_of_a_moved_sweep_deletes_its_line_its_archive_and_its_files(
    hpq: Hpq, two, move, redis, shelf: Shelf
) -> None:
    move()
    refused(hpq("rm", SID, "--yes", HPQ_USER="you"), "sweep-of-another", exit=4)
    assert shelf.files.names(f"hpq/{SID}")
    assert hpq("rm", SID, "--yes").returncode == 0
    assert not redis.hexists("hpq:history", SID) and not shelf.files.names(f"hpq/{SID}")
    refused(hpq("show", SID), "sweep-not-found", exit=4)


def test_an_archive_that_is_gone_damaged_elsewhere_or_forged_is_named(
    hpq: Hpq, two, move, redis, tmp_path
) -> None:
    move()
    (archive,) = (tmp_path / "store").glob(f"hpq/{SID}/archive-*/{SID}.hpq")
    line = redis.hget("hpq:history", SID)
    assert hpq("show", SID).returncode == 0
    redis.hset("hpq:history", SID, line.replace(b'"signature":"', b'"signature":"0'))
    refused(hpq("show", SID), "archive-unverified", SID)  # though the cache has it
    refused(hpq("archive", "--restore", SID), "archive-unverified", SID)
    redis.hset("hpq:history", mapping={SID: line, "demo-11111": line})
    no_key = {"HPQ_CODE_KEY": "", "HPQ_HOME": str(tmp_path / "keyless")}
    refused(hpq("show", "demo-11111", **no_key), "archive-invalid", "demo-11111")
    redis.hdel("hpq:history", "demo-11111")
    new = {"HPQ_HOME": str(tmp_path / "other")}  # another user, without a cache
    whole = archive.read_bytes()
    archive.write_bytes(whole[:-9] + b"x" * 9)
    refused(hpq("show", SID, **new), "archive-invalid", SID)
    archive.unlink()
    refused(hpq("show", SID, **new), "archive-missing", str(archive.name), exit=4)
    other = tmp_path / "elsewhere"  # not mounted: no command that reads creates a store
    for words in (("show", SID), ("get", f"{SID}/1", "x"), ("archive", SID, "x")):
        refused(hpq(*words, **new, HPQ_STORE=str(other)), "store-unusable", "mount", exit=3)
    assert not other.exists()
    open_files(str(other))
    refused(hpq("show", SID, **new, HPQ_STORE=str(other)), "store-differs", SID, "mount")
    (tmp_path / "file").touch()
    gone = str(tmp_path / "file" / "store")
    refused(hpq("show", SID, **new, HPQ_STORE=gone), "store-unusable", SID, exit=3)
    assert hpq("show", SID).returncode == 0, "what is in the cache is read from there"


def test_a_late_result_of_a_moved_sweep_is_stale(
    hpq: Hpq, here, store: TrialStore, sweep_of, who, move
) -> None:
    sweep_of(1, SID)
    claim = take(store, who, "a")
    end(store, claim, 0.5)
    move()
    assert end(store, claim, 0.5) is CommitReply.STALE


def test_a_name_in_the_history_is_an_id_or_is_ignored(hpq: Hpq, two, move, redis, tmp_path) -> None:
    """History: who could write to Redis made a reader write a file anywhere."""
    move()
    line = redis.hget("hpq:history", SID)
    forged = json.loads(line)
    forged["row"] |= {"owner": "victim", "created_ms": "9" * 13}
    place = tmp_path / "anywhere" / "x"
    names = {
        f"evil/{'../' * 20}{place}": line,
        str(place): json.dumps(forged),
        "evil\x1b[31m": line,
    }
    redis.hset("hpq:history", mapping=names)
    refused(hpq("show", "evil"), "sweep-not-found", exit=4)
    refused(hpq("show", HPQ_USER="victim"), "no-sweep", exit=4)
    for name in names:
        assert hpq("archive", "--restore", name).returncode
    assert not place.parent.exists()
    listed = hpq("ls", "--all")
    assert SID in listed.stdout and "evil" not in listed.stdout + listed.stderr


def test_rm_of_a_half_moved_sweep_asks_and_a_restore_finishes_the_move(
    hpq: Hpq, two, move, redis, keys, shelf: Shelf, reader
) -> None:
    """History: the rm that an error recommended deleted the only copy."""
    move()
    redis.sadd(keys.removing, SID)  # as a mover that died after the script
    refused(hpq("rm", SID, "--yes", HPQ_USER="you"), "sweep-of-another", exit=4)
    refused(hpq("rm", SID), "confirmation-missing", SID)
    assert shelf.files.names(f"hpq/{SID}")
    assert hpq("archive", "--restore", SID).returncode == 0 and reader.sweeps.exists(SID)


@pytest.mark.parametrize("line", [b"{nonsense", b"[]", b'"best"', b'"store"'])
def test_a_damaged_line_is_named_and_can_be_deleted(hpq: Hpq, two, move, redis, line) -> None:
    move()
    data = json.loads(redis.hget("hpq:history", SID))
    if (name := line.decode().strip('"')) in data:
        line = json.dumps(data | {name: ["x"]})
    redis.hset("hpq:history", SID, line)
    listed = hpq("ls", "--all")
    assert listed.returncode == 0 and SID in listed.stdout + listed.stderr
    refused(hpq("show", SID), "value-unreadable", SID, exit=3)
    refused(hpq("rm", SID, "--yes"), "value-unreadable", "--force")
    assert hpq("rm", SID, "--yes", "--force").returncode == 0
    assert not redis.exists("hpq:history")


def test_a_cache_that_is_full_forgets_old_sweeps_and_reads_them_again(
    hpq: Hpq, here, store, sweep_of, who, move, monkeypatch
) -> None:
    """History: a sweep that had left the cache was unreadable from then on."""
    monkeypatch.setattr("hpq_producer.moved_sweeps._MOST", 0)
    ids = [f"demo-{n:05d}" for n in range(3)]
    for sid in ids:
        sweep_of(1, sid)
        end(store, take(store, who, sid), 0.5)
    move()
    reader = reader_of(connect(here["HPQ_REDIS_URL"]), read(here))
    live = LiveSweep(reader, ids[0], read(here), acts=False)
    live.changes("")
    for sid in ids:
        assert hpq("show", sid).returncode == 0
    monkeypatch.setattr("hpq_producer.page.live._FRESH_S", 0)
    assert not reader.sweeps.exists(ids[0]) and live.changes("") == {"reset": True}, "an open page"
    with connect(attach(read(here).cache / "history").url) as cache:
        assert int(cache.config_get("maxmemory")["maxmemory"]) > 0, "an archive may be forged"


def test_an_open_page_shows_its_sweep_after_it_moved(
    two, move, here: dict[str, str], monkeypatch
) -> None:
    """History: it answered not-found from then on."""
    monkeypatch.setattr("hpq_producer.page.live._FRESH_S", 0)
    own = reader_of(connect(here["HPQ_REDIS_URL"]), read(here))
    live = LiveSweep(own, SID, read(here), acts=False)
    live.changes("")
    at = str(live.data.status.at_ms)
    move()
    assert live.changes(at) == {"reset": True} and len(live.data.trials) == 3


def test_the_age_of_a_restored_sweep_begins_anew_for_rm_too(
    hpq: Hpq, two, redis, keys, reader
) -> None:
    redis.hset(keys.sweep(SID), "restored_ms", reader.now_ms() + 86_400_000)
    assert hpq("rm", "--older", "0s", "--yes").returncode == 0 and reader.sweeps.exists(SID)
    redis.hdel(keys.sweep(SID), "restored_ms")
    assert hpq("rm", "--older", "0s", "--yes").returncode == 0 and not reader.sweeps.exists(SID)


def test_10_000_moved_sweeps_take_few_commands_and_only_ls_all_reads_them(
    hpq: Hpq, two, move, redis, reader
) -> None:
    move()
    row = {b"name": b"demo", b"queue": b"default", b"owner": b"me", b"n_finished": b"3",
           b"metric": b'{"name":"acc","goal":"maximize"}', b"goal": b"maximize"}  # fmt: skip
    line = json.loads(redis.hget("hpq:history", SID))
    archive = {k: line[k] for k in ("best", "store", "path", "size", "sha256", "signature")}
    lines = {
        f"demo-{n:05d}": encode_moved(row | {b"created_ms": b"%d" % (n + 1)}, 0, archive)
        for n in range(10_000)
    }
    assert max(map(len, lines.values())) <= 1000
    redis.hset("hpq:history", mapping=lines)
    redis.config_resetstat()
    assert hpq("ls", "--all").stdout.count("demo-") >= 10_000
    stats = redis.info("commandstats")
    assert sum(one["calls"] for one in stats.values()) < 50
    assert stats["cmdstat_hmget"]["calls"] >= 10, "in parts, as all lines may exceed a reply"
    redis.config_resetstat()
    assert "demo-" not in hpq("ls").stdout + hpq("watch", "--all", "--once").stdout
    assert "cmdstat_hkeys" not in redis.info("commandstats")
