"""Results on disk: whatever lies there, and whatever the file system lacks, no worker stops."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import (
    BusyLoadingError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from hpq.domain.attempt import CommitReply, Outcome
from hpq.domain.trial import Artifacts, Claim, TrialId, TrialState
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.scripts import StoreContext
from hpq.store.trials import TrialStore
from hpq.store.wire.attempt import encode_outcome
from hpq_worker.lease.spool import Spool

DONE = Outcome(
    state=TrialState.FINISHED, objective=0.5, step=1, ran_ms=5,
    artifacts=Artifacts(store="abcd", path="p", files={"a": 1}),
)  # fmt: skip


@pytest.fixture
def kept(tmp_path: Path, sweep_of, take) -> tuple[Claim, Path]:
    """The result of a running trial, on disk; its worker is gone."""
    sweep_of(1)
    claim, spool = take(), Spool(tmp_path, "hpq")
    spool.put(claim, DONE)
    spool.close()
    (path,) = (tmp_path / "spool" / "hpq").iterdir()
    return claim, path


ODD: list[dict[str, Any]] = [
    {"objective": "abc"}, {"objective": {}}, {"objective": True}, {"objective": float("nan")},
    {"best": "z"}, {"best": float("inf")}, {"ran_ms": "x"}, {"ran_ms": -5}, {"ran_ms": 1.5},
    {"step": 10**400}, {"step": "1"}, {"step": -1}, {"artifacts": 5}, {"artifacts": {"store": "a"}},
    {"artifacts": {"store": "a", "path": "b", "files": 3}},
    {"artifacts": {"store": "a", "path": 7, "files": {}}},
    {"artifacts": {"store": "a", "path": "b", "files": {"a": "x"}}},
    {"failure": {"kind": "user_error", "message": 5}}, {"failure": "x"}, {"state": "running"},
    {"failure": {"kind": "user_error", "message": "m", "fingerprint": []}}, {"state": "{"},
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: json.dumps(odd)[:60])
def test_a_file_with_an_odd_field_is_set_aside_whole(
    tmp_path: Path, store: TrialStore, reader: StoreReader, redis: Redis, keys: Keys, kept, odd
) -> None:
    """F11: a result on disk has a field of the wrong type, or a number that is not finite."""
    claim, path = kept
    data = json.loads(path.read_text())
    data["outcome"].update(odd)
    path.write_text(json.dumps(data))
    before = redis.hgetall(keys.trial(claim.trial))
    assert Spool(tmp_path, "hpq").flush(store) == 0
    assert redis.hgetall(keys.trial(claim.trial)) == before
    assert reader.trials.get(claim.trial).state is TrialState.RUNNING
    assert [p.suffix for p in path.parent.iterdir()] == [".bad"]


@pytest.mark.parametrize("odd", [
    {"sweep": 5}, {"sweep": "../x"}, {"number": "one"}, {"number": 0}, {"attempt": None},
    {"attempt": 2**70}, {"nonce": 7}, {"outcome": []},
])  # fmt: skip
def test_so_is_one_that_names_no_attempt(tmp_path: Path, store: TrialStore, kept, odd) -> None:
    _, path = kept
    path.write_text(json.dumps(json.loads(path.read_text()) | odd))
    assert Spool(tmp_path, "hpq").flush(store) == 0
    assert [p.suffix for p in path.parent.iterdir()] == [".bad"]


class Refusing(TrialStore):
    """Sends a commit that the script cannot take, as an odd file might make us."""

    def commit(self, claim: Claim, outcome: Outcome) -> Any:
        """The running time is not a number."""
        fields: Any = encode_outcome(outcome) | {"ran_ms": "x"}
        of: Any = {"sweep": claim.trial.sweep, "number": 1, "attempt": claim.attempt}
        return self._scripts.run("commit", **of, nonce=claim.nonce, **fields)


def test_a_commit_that_the_script_refuses_changes_nothing_and_is_not_sent_for_ever(
    tmp_path: Path, redis: Redis, keys: Keys, kept
) -> None:
    """F11: a commit with an argument that is no number."""
    claim, path = kept
    before = redis.hgetall(keys.trial(claim.trial))
    assert Spool(tmp_path, "hpq").flush(Refusing(StoreContext.open(redis, keys, mints=False))) == 0
    assert redis.hgetall(keys.trial(claim.trial)) == before  # no half of it
    assert [p.suffix for p in path.parent.iterdir()] == [".bad"]


REFUSALS: list[RedisError] = [
    OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
    ReadOnlyError("You can't write against a read only replica. script: 1, on @user_script:1."),
    NoPermissionError("this user has no permissions to run the 'evalsha' command"),
    ResponseError("MISCONF Redis is configured to save RDB snapshots, but it is unable to"),
    ResponseError("BUSY Redis is busy running a script. You can only call SCRIPT KILL"),
    ResponseError("NOREPLICAS Not enough good replicas to write."),
    ResponseError("ACL failure in script: User is unable to run the 'hset' command"),
    ResponseError("Error running script (call to f_1): @user_script:1: -READONLY You can't write"),
    BusyLoadingError("Redis is loading the dataset in memory"),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda e: str(e)[:30])
def test_what_the_server_itself_refuses_leaves_the_result_where_it_is(
    tmp_path: Path, store: TrialStore, kept, refusal, monkeypatch
) -> None:
    _, path = kept

    def refuse(*_: object) -> None:
        raise refusal

    monkeypatch.setattr(store, "commit", refuse)
    with pytest.raises(RedisError):
        Spool(tmp_path, "hpq").flush(store)
    assert path.exists()


FLOCK = fcntl.flock


def flock_of_nfs(fd: int, operation: int) -> None:
    """An exclusive lock needs a descriptor that is open for writing, as `man 2 flock` has it."""
    mode = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
    if operation & fcntl.LOCK_EX and mode == os.O_RDONLY:
        raise OSError(errno.EBADF, "Bad file descriptor")
    FLOCK(fd, operation)


def no_flock(_fd: int, _operation: int) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


@pytest.mark.parametrize("flock", [flock_of_nfs, no_flock])
def test_a_result_is_kept_and_committed_whatever_locks_the_file_system_has(
    tmp_path: Path, store: TrialStore, reader: StoreReader, sweep_of, take, monkeypatch, flock
) -> None:
    """Files: HPQ_HOME on NFS, or where there are no locks at all."""
    monkeypatch.setattr(fcntl, "flock", flock)
    sweep_of(1)
    claim, mine = take(), Spool(tmp_path, "hpq")
    mine.put(claim, DONE)
    assert mine.flush(store) == 0  # it sees to it itself: its reports go first
    mine.close()
    assert Spool(tmp_path, "hpq").flush(store) == 1
    assert reader.trials.get(claim.trial).state is TrialState.FINISHED
    assert not list((tmp_path / "spool" / "hpq").iterdir())


def test_what_cannot_be_kept_leaves_neither_a_file_nor_a_descriptor(
    tmp_path: Path, sweep_of, take, monkeypatch
) -> None:
    sweep_of(1)
    claim, spool = take(), Spool(tmp_path, "hpq")
    spool.put(claim, DONE)
    spool.close()
    (path,) = (tmp_path / "spool" / "hpq").iterdir()
    path.unlink()
    path.mkdir()  # what is moved there meets a directory
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError):
        spool.put(claim, DONE)
    assert len(os.listdir("/proc/self/fd")) == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_result_is_on_the_disk_before_and_after_it_has_its_name(
    tmp_path: Path, sweep_of, take, monkeypatch
) -> None:
    """A machine that loses its power right after: the name leads to the whole file."""
    sweep_of(1)
    done: list[str] = []
    sync, move = os.fsync, Path.replace

    def fsync(fd: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        sync(fd)

    def replace(path: Path, to: Path) -> Path:
        done.append("name")
        return move(path, to)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    Spool(tmp_path, "hpq").put(take(), DONE)
    assert done[-3:] == ["file", "name", "folder"]


def test_what_redis_does_not_know_is_asked_for_at_the_start_and_then_now_and_then(
    tmp_path: Path, redis: Redis, keys: Keys, monkeypatch
) -> None:
    """F14: results of a sweep that is gone lie on disk; a claim does not ask for each again."""
    asked: list[Claim] = []

    class Unknown(TrialStore):
        def commit(self, claim: Claim, outcome: Outcome) -> CommitReply:
            asked.append(claim)
            return CommitReply.UNKNOWN

    store = Unknown(StoreContext.open(redis, keys, mints=False))
    before = Spool(tmp_path, "hpq")
    for number in range(1, 4):
        trial = TrialId(sweep="gone-00000", number=number)
        before.put(Claim(trial=trial, attempt=1, nonce="n"), DONE)
    before.close()
    now = [1_000.0]
    spool = Spool(tmp_path, "hpq", clock=lambda: now[0])
    asked.clear()
    for _ in range(5):
        spool.flush(store)
    assert len(asked) == 3
    assert len(list((tmp_path / "spool" / "hpq").glob("*.unknown"))) == 3
    now[0] += 301
    spool.flush(store)
    assert len(asked) == 6
    spool.flush(store)
    assert len(asked) == 6
    spool.retry_unknown()  # Redis was away: it may have come back with other data
    spool.flush(store)
    assert len(asked) == 9
    Spool(tmp_path, "hpq").flush(store)
    assert len(asked) == 12


def test_a_result_on_disk_is_left_to_its_worker_while_that_lives(
    tmp_path: Path, store: TrialStore, reader: StoreReader, sweep_of, take
) -> None:
    sweep_of(1)
    mine, others = Spool(tmp_path, "hpq"), Spool(tmp_path, "hpq")
    mine.put(claim := take(), Outcome(state=TrialState.FINISHED))
    assert others.flush(store) == 0 and reader.trials.get(claim.trial).state is TrialState.RUNNING
    mine.close()
    assert others.flush(store) == 1 and reader.trials.get(claim.trial).state is TrialState.FINISHED


@pytest.mark.parametrize("was_aside", [False, True])
def test_a_spooled_result_of_a_removed_sweep_is_dropped(
    tmp_path, store, sweep_of, take, control, was_aside
) -> None:
    sweep, spool = sweep_of(1), Spool(tmp_path, "hpq")
    spool.put(claim := take(), Outcome(state=TrialState.FINISHED))
    if was_aside:
        spool.remove_answered(claim, CommitReply.UNKNOWN)
    spool.close()
    control.remove(sweep.id)
    assert spool.flush(store) == 1
    assert not list(tmp_path.rglob("*.*"))


def test_a_spooled_result_that_redis_does_not_know_stays_on_disk(
    tmp_path, store, sweep_of, take, redis
) -> None:
    sweep_of(1)
    spool = Spool(tmp_path, "hpq")
    spool.put(take(), Outcome(state=TrialState.FINISHED))
    spool.close()
    redis.flushall()
    for _ in range(2):
        assert spool.flush(store) == 0
        assert [p.suffix for p in tmp_path.rglob("*.*")] == [".unknown"]
