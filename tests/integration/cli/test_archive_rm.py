"""`hpq archive --older AGE --rm DIR`: a sweep is in Redis, whole in its file, or in both."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from redis import Redis

from hpq.archive.transfer import read_whole
from hpq.domain.attempt import CommitReply, ReportBatch, WorkerPresence
from hpq.domain.trial import Claim
from hpq.errors import UserError
from hpq.store.control import SweepControl
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from hpq_ops.audit.sweep_audit import audit_sweep
from hpq_producer.commands.admin import archive
from hpq_worker.consumer.run_limit import RunLimit
from tests.support.desk import Desk, run_here
from tests.support.ids import ids, refused
from tests.support.store_calls import LEASE, Shelf, ask, end, take, was_killed

SID = "demo-00000"
Hpq = Callable[..., subprocess.CompletedProcess[str]]
# The code that may be killed at each line.
STEPS = ("admin/archive.py", "store/control.py")


@pytest.fixture
def here(environ: dict[str, str], tmp_path: Path) -> dict[str, str]:
    environ["HPQ_STORE"] = str(tmp_path / "store")
    return environ


@pytest.fixture
def over(here, store: TrialStore, sweep_of, who, shelf: Shelf) -> Callable[[str], Claim]:
    """Return a function that creates a sweep that is over, with a log and a file."""

    def make(sid: str) -> Claim:
        sweep_of(2, sid)
        for nonce, value in (("a", 0.25), ("b", 0.5)):
            claim = take(store, who, f"{sid} {nonce}", only=sid)
            store.beat(claim, who, ReportBatch(seq=1, step=1, log=b"\xff line\n"), lease_ms=LEASE)
            end(store, claim, value, artifacts=shelf.artifacts(claim))
        return claim

    return make


def test_a_sweep_that_was_archived_and_deleted_comes_back_with_its_files(
    hpq: Hpq, over, shelf: Shelf, store, redis: Redis, reader: StoreReader, caplog, tmp_path
) -> None:
    claim = over(SID)
    shown = hpq("results", SID, "--json").stdout
    done = hpq("archive", "--older", "0", "--rm", "old", "--json")
    assert json.loads(done.stdout) == [
        {"sweep": SID, "trials": 2, "file": f"old/{SID}.hpq", "restored": False}
    ], done.stderr
    assert f"2 trials remain in store {shelf.files.id}" in done.stderr
    refused(hpq("show", SID), "sweep-not-found", exit=4)
    assert not redis.keys(f"hpq:[st]:{SID}*")
    assert end(store, claim, 0.5) is CommitReply.STALE, "a late result is no lost one"
    with caplog.at_level("INFO", "hpq"):
        assert RunLimit(read_sweep=lambda: reader.sweeps.get(SID)).is_done()
    assert len(shelf.left()) == 2, "no look at the store deletes what the archive names"
    assert hpq("archive", "--restore", f"old/{SID}.hpq").returncode == 0
    assert hpq("results", SID, "--json").stdout == shown
    assert hpq("get", f"{SID}/1", "file").returncode == 0 and (tmp_path / "file").exists()
    assert hpq("archive", "--older", "1h", "--rm", "old").returncode == 0
    assert reader.sweeps.exists(SID), "its age has begun anew"


def damage(_: object, sid: str, path: Path, **more: bool) -> object:
    """Write an archive without its end."""
    header = _write(_, sid, path, **more)
    path.write_bytes(path.read_bytes()[:-20])
    return header


def swap(_: object, sid: str, path: Path, **more: bool) -> object:
    """Write a file that is whole, but no archive."""
    header = _write(_, sid, path, **more)
    path.write_text("{}")
    return header


_write = archive.write


@pytest.mark.parametrize(("write", "code"), [(damage, "archive-torn"), (swap, "archive-invalid")])
def test_a_sweep_whose_archive_is_not_whole_on_disk_stays(
    hpq: Hpq, over, reader: StoreReader, monkeypatch, write, code: str
) -> None:
    over(SID)
    monkeypatch.setattr(archive, "write", write)
    done = hpq("archive", "--older", "0", "--rm", "old")
    assert (done.returncode, ids(done.stderr)) == (1, [code]), done.stderr
    assert reader.sweeps.exists(SID) and audit_sweep(reader, SID).violations == ()


def test_a_sweep_that_is_retried_while_it_is_archived_stays_and_others_go(
    hpq: Hpq, over, reader: StoreReader, control: SweepControl, monkeypatch
) -> None:
    over(SID)
    over("other-00000")

    def retry(path: Path) -> object:
        if path.stem == SID:
            control.retry(SID, [1])
        return read_whole(path)

    monkeypatch.setattr(archive, "read_whole", retry)
    done = hpq("archive", "--older", "0", "--rm", "old")
    assert (done.returncode, ids(done.stderr)) == (1, ["sweep-changed"]), done.stderr
    assert reader.sweeps.ids() == [SID]


def test_a_folder_that_cannot_be_written_deletes_nothing(
    hpq: Hpq, over, reader: StoreReader, tmp_path
) -> None:
    over(SID)
    (tmp_path / "file").touch()
    refused(hpq("archive", "--older", "0", "--rm", "file/old"), "file-unwritable")
    refused(hpq("archive", "--older", "0", "--rm", "file"), "file-exists")
    assert reader.sweeps.ids() == [SID]


def test_what_a_killed_process_of_the_same_id_left_stops_no_archive(
    desk: Desk, over, reader: StoreReader
) -> None:
    """The command of a CronJob has the same process id in each pod."""
    over(SID)
    draft = desk.folder / "old" / f".{SID}.hpq.{os.getpid()}.tmp"
    draft.parent.mkdir()
    draft.touch()
    done = desk.hpq("archive", "--older", "0", "--rm", "old")
    assert done.returncode == 0 and reader.sweeps.ids() == [], done.stderr


def test_a_removal_needs_the_last_event_of_a_sweep_that_is_over(
    over, sweep_of, control: SweepControl, redis: Redis, reader: StoreReader
) -> None:
    over(SID)
    waits = sweep_of(1, "waits-00000").id
    last = {sid: reader.events.last_id(sid) for sid in (SID, waits)}
    for sid, event in ((SID, "1-1"), (waits, last[waits])):
        with pytest.raises(UserError) as caught:
            control.remove(sid, keep_files=True, last_event=event)
        assert caught.value.code == "sweep-changed" and reader.sweeps.exists(sid)
    for _ in range(2):  # as a client does whose reply was lost
        control.remove(SID, keep_files=True, last_event=last[SID])
    assert reader.sweeps.ids() == [waits]


GRID = """program: train.py
method: grid
metric: {name: acc, goal: maximize}
parameters: {x: {values: [1, 2]}}
"""


def test_a_sweep_stays_while_trials_of_another_copy_its_results(
    desk: Desk, store: TrialStore, who: WorkerPresence, control: SweepControl
) -> None:
    def train() -> None:
        while isinstance(claim := ask(store, who), Claim):
            end(store, claim, 0.5)

    old = desk.sweep(GRID)
    train()
    new = desk.sweep(GRID.replace("[1, 2]", "[1, 2, 3]"), "--reuse")
    third = desk.sweep(GRID.replace("[1, 2]", "[1, 4]"), "--reuse", "--any-code")
    words = ("archive", "--older", "0", "--rm", "old")
    done = desk.hpq(*words)
    assert (done.returncode, ids(done.stderr)) == (1, ["sweep-reused"]), done.stderr
    assert {new, third} <= {word.strip(",") for word in done.stderr.split()}
    assert set(desk.reader.sweeps.ids()) == {old, new, third}
    assert not (desk.folder / "old" / f"{old}.hpq").exists()
    assert control.retry(third, [1]) == 1, "it trains the trial, and copies nothing any more"
    control.remove(new)
    train()
    done = desk.hpq(*words)
    assert done.returncode == 0 and desk.reader.sweeps.ids() == [], done.stderr
    for name in (old, third):
        assert desk.hpq("archive", "--restore", f"old/{name}.hpq").returncode == 0


def test_a_copy_goes_before_its_origin(desk: Desk, store: TrialStore, who: WorkerPresence) -> None:
    old = desk.sweep(GRID)
    for nonce in "ab":
        end(store, take(store, who, nonce), 0.5)
    new = desk.sweep(GRID, "--new", "--reuse")
    done = desk.hpq("archive", "--older", "0", "--rm", "old")
    assert done.returncode == 0 and desk.reader.sweeps.ids() == [], done.stderr
    assert {path.stem for path in (desk.folder / "old").iterdir()} == {old, new}


def kill_points(seed: int) -> Iterator[int]:
    steps, line = random.Random(seed), 0
    while True:
        yield (line := line + steps.randint(1, 4))


@pytest.mark.slow
def test_a_command_killed_at_any_step_leaves_the_sweep_in_redis_or_whole_in_its_file(
    over, here, redis: Redis, reader: StoreReader, tmp_path
) -> None:
    """Archive: kill -9 of `hpq archive --rm`, at any line."""
    act = partial(run_here, ("archive", "--older", "0", "--rm", "old"), tmp_path, here)
    places = set()
    for n, line in enumerate(kill_points(7)):
        sid = f"demo-{n:05d}"
        over(sid)
        is_killed = was_killed(line, STEPS, act)
        path = tmp_path / "old" / f"{sid}.hpq"
        is_archived = path.exists()
        if is_archived:
            assert read_whole(path)[0].trials == 2, f"killed at line {line}"
        if reader.sweeps.exists(sid):
            assert audit_sweep(reader, sid).violations == (), f"killed at line {line}"
            assert [t.objective for t in reader.trials.all(sid)] == [0.25, 0.5]
        else:
            assert is_archived, f"killed at line {line}"
        places.add((is_archived, reader.sweeps.exists(sid), bool(redis.keys(f"hpq:[st]:{sid}*"))))
        assert act().returncode == 0  # the next night
        assert not reader.sweeps.ids() and not redis.smembers("hpq:removing")
        assert not redis.keys(f"hpq:[st]:{sid}*")
        if not is_killed:
            break
    # Before and after the file, and after the sweep became invisible: with keys left, and without.
    assert places == {(False, True, True), (True, True, True), (True, False, True),
                      (True, False, False)}  # fmt: skip
