"""The same machine with files in two stores: whatever is called, what is pointed to is there."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from hpq.domain.attempt import AttachReply, HeartbeatReply, Outcome, ReportBatch, WorkerPresence
from hpq.domain.sweep import Keep, SweepView
from hpq.domain.trial import (
    Artifacts,
    Checkpoint,
    Claim,
    Failure,
    FailureKind,
    TrialId,
    TrialState,
    Unstored,
)
from hpq.filestore.base import Files, folder_of
from hpq.filestore.stores import open_files
from hpq.store.file_garbage import FileGarbage
from hpq.store.scripts import StoreContext
from tests.support.store_calls import remove_all
from tests.support.store_machine import LEASE, OF_FILES, SID, Machine

ALIVE = (HeartbeatReply.OK, HeartbeatReply.STOP, HeartbeatReply.PRUNE)


class FilesMachine(Machine):
    """Workers 0 and 2 have one store, worker 1 another; each does as
    `worker/hpq_worker/files/checkpoints` does.
    """

    keep: Keep | None = None

    # What the plain machine looks at already; the steps go to what moves files.
    claim_again_late = beat = tell = cap = None  # type: ignore[assignment]
    checks = OF_FILES

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="hpq-t-")
        self.stores = [open_files(f"{self.folder}/{name}") for name in "ab"]
        self.garbage = FileGarbage(StoreContext.open(self.redis, self.keys))
        self.number = 0
        self.copies: dict[str, list[Checkpoint]] = {}  # of each attempt, in its worker's store
        self.over: set[str] = set()  # attempts that have heard that they are lost
        self.late: list[tuple[Files, Claim, str]] = []  # whose files are not stored yet

    def enqueue(self, sweep: SweepView) -> None:
        super().enqueue(replace(sweep, keep=self.keep))

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)

    def files_of(self, worker: WorkerPresence) -> Files:
        return self.stores[self.workers.index(worker) % 2]

    def put(self, files: Files, path: str) -> None:
        with files.write(f"{path}/file") as file:
            file.write(b"x")

    @rule(who=st.integers(0, 2), state=st.sampled_from(["idle", "busy", "stopping"]))
    def present(self, who: int, state: str) -> None:
        it = self.workers[who]
        fields = {"state": state, "store_id": self.files_of(it).id}
        self.store.present(replace(it, fields=fields), idle=state == "idle", lifetime_ms=LEASE)

    def begin(self, worker: WorkerPresence, claim: Claim, batch: ReportBatch) -> ReportBatch:
        """What the first beat of an attempt says of the checkpoint that it was handed."""
        if claim.checkpoint is None:
            return batch
        if claim.checkpoint.store != self.files_of(worker).id:
            return replace(batch, restarted="it is in another store")
        self.copies[f"{claim.trial}/{claim.token}"].append(claim.checkpoint)
        return batch

    @precondition(lambda self: self.held)
    @rule(data=st.data(), is_heard=st.booleans())
    def checkpoint(self, data: st.DataObject, is_heard: bool) -> None:
        worker, claim = self.pick(data)
        files, name = self.files_of(worker), f"{claim.trial}/{claim.token}"
        if name in self.over:
            return
        self.number, self.seq = self.number + 1, self.seq + 1
        path = f"{folder_of('hpq', claim.trial, claim.token)}/checkpoint-{self.number}"
        here = Checkpoint(store=files.id, path=path, step=1)
        batch = ReportBatch(seq=self.seq, step=1, objective=0.5, checkpoint=here)
        if name not in self.copies:
            self.copies[name] = []
            batch = self.begin(worker, claim, batch)
        self.put(files, path)
        self.copies[name].append(here)
        answer = self.store.beat(claim, worker, batch, lease_ms=LEASE)
        if answer not in ALIVE:
            self.over.add(name)
        elif is_heard:  # else the reply was lost, and the older ones stay for now
            for old in self.copies[name][:-1]:
                files.remove(old.path)
            del self.copies[name][:-1]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), value=st.floats(-1, 1), is_tidied=st.booleans())
    def finish(self, data: st.DataObject, value: float, is_tidied: bool) -> None:
        worker, claim = self.pick(data)
        files, name = self.files_of(worker), f"{claim.trial}/{claim.token}"
        if name in self.over:
            return
        path = f"{folder_of('hpq', claim.trial, claim.token)}/artifacts"
        self.put(files, path)
        if is_tidied:
            remove_all(self.garbage, files)
        left = Artifacts(store=files.id, path=path, files={"file": 1})
        outcome = Outcome(state=TrialState.FINISHED, objective=value, step=1, artifacts=left)
        self.store.commit(claim, outcome)
        self.over.add(name)
        self.garbage.remove_of_trial(files, claim.trial, has_keep=self.keep is not None)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), value=st.floats(-1, 1))
    def finish_while_the_store_is_away(self, data: st.DataObject, value: float) -> None:
        worker, claim = self.pick(data)
        files, name = self.files_of(worker), f"{claim.trial}/{claim.token}"
        if name in self.over:
            return
        path = f"{folder_of('hpq', claim.trial, claim.token)}/artifacts-late"
        unstored = Unstored(store=files.id, path=path, folder="/home/me/out")
        self.store.commit(
            claim, Outcome(state=TrialState.FINISHED, objective=value, step=1, unstored=unstored)
        )
        self.over.add(name)
        self.late.append((files, claim, path))

    @precondition(lambda self: self.late)
    @rule(data=st.data(), is_tidied=st.booleans(), is_heard=st.booleans())
    def store_late(self, data: st.DataObject, is_tidied: bool, is_heard: bool) -> None:
        late = data.draw(st.sampled_from(self.late))
        files, claim, path = late
        self.put(files, path)
        if is_tidied:
            remove_all(self.garbage, files)
        stored = Artifacts(store=files.id, path=path, files={"file": 1})
        if self.store.attach_files(claim, stored) is AttachReply.STALE:
            files.remove(path)
        if is_heard:
            self.late.remove(late)

    @invariant()
    def as_many_trials_wait_for_their_store_as_the_sweep_counts(self) -> None:
        trials = self.reader.trials.all(SID)
        waiting = sum(trial.unstored is not None for trial in trials)
        assert self.reader.sweeps.get(SID).unstored == waiting

    @rule(which=st.integers(0, 1))
    def tidy(self, which: int) -> None:
        remove_all(self.garbage, self.stores[which])

    @invariant()
    def what_is_pointed_to_is_there(self) -> None:
        stores = {files.id: files for files in self.stores}
        for number in range(1, self.total + 1):
            key = self.keys.trial(TrialId(sweep=SID, number=number))
            row: Any = self.redis.hmget(key, "checkpoint", "artifacts")
            for at in (json.loads(text) for text in row if text):
                assert stores[at["store"]].names(at["path"]) == ["file"]


class GuardedMachine(FilesMachine):
    """The same of sets with replicates, a target, and files of the best and last only, of a sweep
    that the breaker may hold.
    """

    keep = Keep(best=1, last=1)

    def enqueue(self, sweep: SweepView) -> None:
        assert sweep.metric is not None
        metric = replace(sweep.metric, target=0.9)
        super().enqueue(replace(sweep, metric=metric, replicates=2))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def fail_alike(self, data: st.DataObject) -> None:
        """Fail a trial like the four ends before it: the breaker holds the sweep."""
        self.redis.hset(self.keys.sweep(SID), "tail", "w0\tm\nw1\tm\n" * 2)
        failure = Failure(kind=FailureKind.USER_ERROR, message="m", fingerprint="m")
        self.store.commit(self.pick(data)[1], Outcome(state=TrialState.FAILED, failure=failure))


@pytest.mark.parametrize("kind", [FilesMachine, GuardedMachine])
def test_no_order_of_calls_loses_a_file_that_is_pointed_to(
    redis_url: str, kind: type[FilesMachine]
) -> None:
    kind.url = redis_url
    machine = kind.TestCase
    machine.settings = settings(
        max_examples=8,
        stateful_step_count=50,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    machine("runTest").runTest()
