"""Files that wait on a worker's disk for their store: they arrive once, or go when unneeded."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from redis.exceptions import ConnectionError as RedisAway

from hpq.domain.trial import Artifacts, Claim
from hpq.filestore.base import Files
from hpq.filestore.stores import open_files
from hpq.store.control import SweepControl
from hpq.store.trials import TrialStore
from hpq_worker.files import artifacts
from hpq_worker.files.artifacts import UnstoredFiles
from hpq_worker.files.workdir import DirectoryLock, work_folder
from tests.support.store_calls import end, take

LeftBy = Callable[..., Path]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return open_files(str(tmp_path / "store"))


@pytest.fixture
def left_by(tmp_path: Path, files: Files, store: TrialStore) -> LeftBy:
    """Return a function that ends an attempt whose files the store did not take."""

    def leave(claim: Claim, store_id: str = "", prefix: str = "hpq") -> Path:
        work = work_folder(tmp_path, claim)
        (work / "out" / "deep").mkdir(parents=True)
        (work / "out" / "deep" / "model").write_text("trained")
        waiting = artifacts.keep_unstored(work, prefix, store_id or files.id, claim)
        end(store, claim, 1.0, unstored=waiting)
        return work

    return leave


def deliver(tmp_path: Path, store: TrialStore, files: Files) -> None:
    """As a worker does that has just started."""
    UnstoredFiles(tmp_path, "hpq", store).deliver(files, lambda: True)


def test_files_arrive_when_the_store_is_back(
    tmp_path, store, reader, sweep_of, who, files, left_by, caplog
) -> None:
    sweep_of(1)
    claim = take(store, who, "a")
    work = left_by(claim)
    (tmp_path / "store").rename(tmp_path / "away")
    worker = UnstoredFiles(tmp_path, "hpq", store)
    for _ in range(3):
        worker.deliver(files, lambda: True)
    assert artifacts.is_unstored(work) and reader.trials.get(claim.trial).unstored
    assert len(caplog.records) == 1  # one line for all tries
    (tmp_path / "away").rename(tmp_path / "store")
    worker.deliver(files, lambda: True)
    stored = reader.trials.get(claim.trial).artifacts
    assert stored is not None and stored.files == {"deep/model": 7}
    with files.read(f"{stored.path}/deep/model") as file:
        assert file.read() == b"trained"
    assert not work.exists()


def test_a_worker_that_dies_between_the_copy_and_the_answer_loses_nothing(
    tmp_path, store, reader, sweep_of, who, files, left_by, monkeypatch
) -> None:
    sweep_of(1)
    claim = take(store, who, "a")
    work = left_by(claim)

    def away(*_: object) -> None:
        raise RedisAway("gone")

    with monkeypatch.context() as patch, pytest.raises(RedisAway):
        patch.setattr(store, "attach_files", away)
        deliver(tmp_path, store, files)
    assert (work / "out" / "deep" / "model").exists()
    deliver(tmp_path, store, files)
    assert reader.trials.get(claim.trial).artifacts and not work.exists()


def test_files_of_a_result_that_is_on_its_way_are_copied_once(
    tmp_path, store, reader, sweep_of, who, files
) -> None:
    sweep_of(1)
    claim = take(store, who, "a")
    work = work_folder(tmp_path, claim)
    (work / "out").mkdir(parents=True)
    (work / "out" / "model").write_text("trained")
    waiting = artifacts.keep_unstored(work, "hpq", files.id, claim)
    worker = UnstoredFiles(tmp_path, "hpq", store)
    worker.deliver(files, lambda: True)
    (work / "out" / "model").unlink()  # so a second copy would have no file
    worker.deliver(files, lambda: True)
    assert artifacts.is_unstored(work)
    end(store, claim, 1.0, unstored=waiting)
    worker.deliver(files, lambda: True)
    stored = reader.trials.get(claim.trial).artifacts
    assert stored == Artifacts(store=files.id, path=waiting.path, files={"model": 7})


def test_files_of_a_trial_that_was_retried_go(
    tmp_path, store, reader, sweep_of, who, files, left_by, control: SweepControl
) -> None:
    sweep = sweep_of(1)
    claim = take(store, who, "a")
    work = left_by(claim)
    control.retry(sweep.id, [1])
    deliver(tmp_path, store, files)
    assert not work.exists() and files.names("hpq") == []
    assert reader.trials.get(claim.trial).artifacts is None


def test_files_that_are_another_s_stay(
    tmp_path, store, reader, sweep_of, who, files, left_by
) -> None:
    """Of another store or prefix, of an attempt that has not ended, and held by another worker."""
    sweep_of(4)
    elsewhere = left_by(take(store, who, "a"), store_id="abcd1234")
    other = left_by(take(store, who, "b"), prefix="other")
    running = left_by(take(store, who, "c"))
    lock = DirectoryLock(running)
    held = left_by(take(store, who, "d"))
    holder = os.open(held / "unstored", os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    deliver(tmp_path, store, files)
    assert all(map(artifacts.is_unstored, (elsewhere, other, running, held)))
    assert files.names("hpq") == []
    os.close(holder)
    lock.release()
    deliver(tmp_path, store, files)
    assert artifacts.is_unstored(elsewhere) and artifacts.is_unstored(other)
    assert not running.exists() and not held.exists()
