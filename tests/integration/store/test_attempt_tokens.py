"""Two executions under one attempt number, as a rolled-back server makes them: one of them owns it.

A server that lost its last second, or a sweep that was restored from an archive, gives the same
attempt out again while its first worker still trains. The claim's nonce tells the two apart.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from hpq.domain.attempt import (
    CommitReply,
    HeartbeatReply,
    Outcome,
    Reason,
    ReportBatch,
    WorkerPresence,
)
from hpq.domain.trial import Claim, TrialState
from hpq.filestore.base import folder_of
from hpq.filestore.stores import open_files
from hpq.settings import read
from hpq.store.file_garbage import FileGarbage
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.scripts import StoreContext
from hpq.store.trials import TrialStore
from hpq_ops.audit.sweep_audit import audit_sweep
from hpq_worker.attempt.attempt import AttemptRunner
from hpq_worker.lease.spool import Spool
from tests.support.store_calls import remove_all
from tests.support.worker_parts import worker_parts

Take = Callable[[], Claim]
LEASE = 30_000


def result(value: float) -> Outcome:
    return Outcome(state=TrialState.FINISHED, objective=value, step=1)


@pytest.fixture
def twice(redis: Redis, keys: Keys, sweep_of, take) -> tuple[Claim, Claim]:
    """Two claims of attempt 1; between them the server lost what the first had written."""
    sid = sweep_of(1).id
    first: Claim = take()
    redis.delete(keys.trial(first.trial))
    redis.zrem(keys.leases, str(first.trial))
    redis.zrem(keys.sweep(sid, "running"), 1)
    redis.zadd(keys.sweep(sid, "waiting"), {"1": 1})
    redis.zadd(keys.queue("default", "pending"), {sid: 1})
    (claimed,) = [i for i, f in redis.xrange(keys.sweep(sid, "events")) if f[b"e"] == b"claimed"]
    redis.xdel(keys.sweep(sid, "events"), claimed)
    second: Claim = take()
    assert first.attempt == second.attempt == 1
    return first, second


def test_of_two_claims_of_one_attempt_the_later_one_owns_the_trial(
    store: TrialStore, reader: StoreReader, who: WorkerPresence, twice
) -> None:
    """Promise 1: a server forgets a claim and gives the attempt out again; both workers report."""
    first, second = twice
    batch = ReportBatch(seq=9, step=9, objective=0.1, log=b"the older one")
    assert store.beat(first, who, batch, lease_ms=LEASE) is HeartbeatReply.LOST
    assert store.release(first, Reason.STOPPING) == "stale"
    assert store.commit(first, result(0.1)) is CommitReply.STALE
    batch = ReportBatch(seq=1, step=3, objective=0.3, log=b"the newer one")
    assert store.beat(second, who, batch, lease_ms=LEASE) is HeartbeatReply.OK
    assert (
        reader.trials.get(second.trial).step == 3
    )  # no report of it was taken for one of the other
    assert store.commit(second, result(0.9)) is CommitReply.DONE
    assert reader.trials.get(second.trial).objective == 0.9
    assert not audit_sweep(reader, second.trial.sweep).violations


def test_two_executions_of_one_attempt_share_no_folder(
    tmp_path: Path, redis: Redis, keys: Keys, store: TrialStore, twice
) -> None:
    """Files: two workers with one attempt's number write checkpoints into one store."""
    first, second = twice
    files = open_files(str(tmp_path))
    folders = [folder_of("hpq", first.trial, token) for token in (first.token, second.token, "1")]
    assert len(set(folders)) == 3 and all("/1/1" in folder for folder in folders)
    for folder in folders:
        with files.write(f"{folder}/checkpoint-1/model") as file:
            file.write(folder.encode())
    garbage = FileGarbage(StoreContext.open(redis, keys))
    remove_all(garbage, files)
    assert len(files.names("hpq")) == 3  # it may still write
    store.commit(second, result(0.9))
    remove_all(garbage, files)
    assert files.names("hpq") == []


def test_results_of_two_executions_of_one_attempt_lie_side_by_side_on_disk(
    tmp_path: Path, store: TrialStore, reader: StoreReader, twice
) -> None:
    first, second = twice
    spool = Spool(tmp_path, "hpq")
    spool.put(first, result(0.1))
    spool.put(second, result(0.9))
    spool.close()
    assert Spool(tmp_path, "hpq").flush(store) == 2  # one of them is answered for as stale
    assert reader.trials.get(second.trial).objective == 0.9
    assert not list((tmp_path / "spool" / "hpq").iterdir())


def test_an_attempt_beats_before_it_has_its_directories(
    tmp_path: Path,
    store: TrialStore,
    store_context: StoreContext,
    who: WorkerPresence,
    sweep_of,
    take,
) -> None:
    """A disk that is slow, or a directory that another holds, must not cost the lease."""
    sweep, claim = sweep_of(1), take()
    (tmp_path / "work").write_text("no directory can be made here")
    settings = read({"HPQ_HOME": str(tmp_path), "HPQ_REDIS_URL": "unix:///x", "USER": "me"})
    parts = worker_parts(settings, store, FileGarbage(store_context), who)
    with pytest.raises(OSError):
        AttemptRunner(parts).run(claim, sweep)
    assert parts.heartbeat._claim == claim
    parts.heartbeat.end()
