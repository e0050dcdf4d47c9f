"""Files in a store, over `archive`, `rm` and `archive --restore`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from hpq.domain.attempt import Reason
from hpq.store.control import SweepControl
from hpq.store.scripts import StoreContext
from hpq.store.sweep_copy import ArchiveRestore
from tests.support.ids import refused
from tests.support.store_calls import beat, end, forged_paths, remove_all, take

SID = "demo-00000"
Hpq = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def here(tmp_path: Path) -> dict[str, str]:
    return {"HPQ_STORE": str(tmp_path / "store")}


@pytest.fixture
def archived(hpq: Hpq, store, sweep_of, who, shelf, here, control: SweepControl) -> str:
    """A sweep with the artifacts of one trial and the checkpoint of another, in a file."""
    sweep_of(2)
    first = take(store, who, "a")
    end(store, first, 1.0, artifacts=shelf.artifacts(first))
    second = take(store, who, "b")
    beat(store, who, second, 1, 1, checkpoint=shelf.put(second, "checkpoint-1"))
    store.release(second, Reason.STOPPING)
    control.pause(SID)
    done = hpq("archive", SID, "s.hpq", **here)
    assert done.returncode == 0, done.stderr
    assert "2 trials" in done.stderr and f"store {shelf.files.id}" in done.stderr
    assert f"hpq rm --keep-files {SID}" in done.stderr
    return SID


def test_a_restored_sweep_names_a_file_that_rm_has_deleted(
    hpq: Hpq, archived, reader, shelf, here
) -> None:
    said = hpq("rm", archived, "--yes", **here).stderr
    assert "2 trials" in said and shelf.files.names("hpq") == []
    assert hpq("archive", "--restore", "s.hpq", **here).returncode == 0
    assert reader.trials.get_many(archived, [1])[0].objective == 1.0
    done = hpq("get", f"{archived}/1", "file", **here)
    refused(done, "no-files", "deleted", exit=4)


def test_files_of_a_sweep_that_is_restored_stay(hpq: Hpq, archived, shelf, here) -> None:
    assert hpq("rm", archived, "--yes").returncode == 0
    assert len(shelf.files.names("hpq")) == 2  # it waits for who has that store
    assert hpq("archive", "--restore", "s.hpq").returncode == 0
    assert len(shelf.left()) == 2, "a restored sweep keeps what is still there"


def test_files_that_rm_is_to_keep_are_there_after_a_restore(
    hpq: Hpq, archived, redis, keys, shelf, here, tmp_path
) -> None:
    said = hpq("rm", archived, "--yes", "--keep-files", **here).stderr
    assert f"{shelf.files.id}, at hpq/{archived}" in said, said
    assert len(shelf.left()) == 2
    assert hpq("archive", "--restore", "s.hpq", **here).returncode == 0
    assert len(shelf.left()) == 2
    assert hpq("get", f"{archived}/1", "file", "--out", "got", **here).returncode == 0
    assert (tmp_path / "got").read_text() == "x"


def test_files_of_a_sweep_that_is_being_restored_stay_and_those_that_go_bar_the_restoring(
    hpq: Hpq, archived, redis, keys, shelf, here, store_context: StoreContext
) -> None:
    assert hpq("rm", archived, "--yes").returncode == 0
    under_way = ArchiveRestore(store_context, archived, 2)
    under_way.write(0, "params", "hash", [b"1", b"{}"])
    assert len(shelf.left()) == 2
    under_way.discard()
    said = []

    class Slow:
        id = shelf.files.id

        def __getattr__(self, name):
            return getattr(shelf.files, name)

        def remove(self, folder: str) -> None:
            said.append(hpq("archive", "--restore", "s.hpq", **here))
            shelf.files.remove(folder)

    remove_all(shelf.garbage, Slow())
    refused(said[0], "restore-busy")
    assert hpq("archive", "--restore", "s.hpq", **here).returncode == 0


def test_get_reads_the_artifacts_of_its_trial_alone(
    hpq: Hpq, store, sweep_of, who, shelf, here, redis, keys, tmp_path
) -> None:
    """Any client of Redis can write a pointer, and `hpq get` may read the whole store."""
    sweep_of(1)
    claim = take(store, who, "a")
    left = shelf.artifacts(claim)
    end(store, claim, 1.0, artifacts=left)
    for path in forged_paths(claim.trial, left.path):
        with suppress(OSError), shelf.files.write(f"{path}/file") as file:
            file.write(b"theirs")
        forged = json.dumps({"store": left.store, "path": path, "files": {"file": 6}})
        redis.hset(keys.trial(claim.trial), "artifacts", forged)
        refused(hpq("get", f"{SID}/1", "file", **here), "value-unreadable", exit=3)
        assert not (tmp_path / "file").exists(), path


def test_rm_deletes_a_sweep_whose_pointers_cannot_be_read(
    hpq: Hpq, store, sweep_of, who, shelf, here, redis, keys
) -> None:
    odd = ("[]", "7", '{"files": [1]}', '{"files": {"a": "x"}}', "\x00", "[" * 100_000, b"\xff")
    for number, text in enumerate(odd):
        sid = sweep_of(1, f"odd-{number:05}").id
        claim = take(store, who, f"n{number}")
        end(store, claim, 1.0, artifacts=shelf.artifacts(claim))
        redis.hset(keys.trial(claim.trial), "artifacts", text)
        done = hpq("rm", sid, "--yes", **here)
        assert done.returncode == 0, (text[:30], done.stderr)
    assert shelf.files.names("hpq") == []
