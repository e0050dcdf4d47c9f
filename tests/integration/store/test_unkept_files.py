"""Files that are in no store: from the batch that says why to the views of their sweep."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from hpq.domain.attempt import Outcome, Reason, ReportBatch
from hpq.domain.trial import TrialState
from hpq.settings import read
from hpq.store.file_garbage import FileGarbage
from hpq_worker.consumer.presence import PresenceRecord
from tests.support.worker_parts import worker_parts

LEASE = 30_000
WHY = "checkpoint-not-kept cannot store a checkpoint: No space left"


@pytest.fixture
def tell(store, who):
    """Send why files of a trial are not kept, or that they are."""
    seq = dict[object, int]()

    def send(claim, unkept: str | None) -> None:
        seq[claim.trial] = seq.get(claim.trial, 0) + 1
        batch = ReportBatch(seq=seq[claim.trial], unkept=unkept)
        store.beat(claim, who, batch, lease_ms=LEASE)

    return send


def test_a_sweep_counts_the_trials_whose_files_are_not_kept(
    store, reader, sweep_of, take, tell
) -> None:
    sid = sweep_of(3).id
    one, two, three = take(), take(), take()
    said = []
    for claim, unkept in ((one, WHY), (one, WHY), (two, WHY), (one, None), (one, ""), (three, "")):
        tell(claim, unkept)
        said.append(reader.sweeps.get(sid).unkept)
    assert said == [1, 1, 2, 2, 1, 1]
    last = ReportBatch(seq=9, unkept="files-not-kept HPQ_STORE is not set")
    store.commit(three, Outcome(state=TrialState.FINISHED), last)
    sweep = reader.sweeps.get(sid)
    assert sweep.unkept == 2 and sweep.unkept_why is not None
    assert sweep.unkept_why.code == "files-not-kept"
    assert sweep.unkept_why.text == "#3: HPQ_STORE is not set"


def test_every_view_of_a_sweep_says_which_files_are_not_kept(sweep_of, take, tell, hpq) -> None:
    sid = sweep_of(1).id
    tell(take(), WHY)
    other = sweep_of(1, "other-00000").id
    for words in (
        ["ls"], ["watch", sid, "--once"], ["summary", sid], ["summary", sid, other],
        ["summary", sid, "--json"], ["show", sid], ["doctor"],
    ):  # fmt: skip
        done = hpq(*words, COLUMNS="300")
        assert "cannot store a checkpoint: No space left" in done.stdout + done.stderr, words
    data = json.loads(hpq("ls", "--json").stdout)[-1]["files_not_kept"]
    assert (data["trials"], data["code"]) == (1, "checkpoint-not-kept")


def test_a_worker_tells_how_little_space_its_disk_has(
    store, reader, who, sweep_of, take, hpq, store_context, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("hpq.filestore.stores.LOW_BYTES", 2**70)
    settings = read({"HPQ_HOME": str(tmp_path), "HPQ_REDIS_URL": "unix:///x", "USER": "me"})
    parts = worker_parts(settings, store, FileGarbage(store_context), who)
    loop = SimpleNamespace(trial="", backoff=SimpleNamespace(reasons={}, fault=""))
    present, _ = PresenceRecord(parts, "cpu", loop).current()  # type: ignore[arg-type]
    store.present(present, idle=True, lifetime_ms=LEASE)
    (worker,) = reader.workers.live()
    assert str(tmp_path) in worker.low_disk
    sid = sweep_of(1).id
    take()
    monkeypatch.undo()
    for words in (
        ["ls"], ["watch", sid, "--once"], ["summary", sid], ["summary", sid, "--json"], ["doctor"],
    ):  # fmt: skip
        done = hpq(*words, COLUMNS="300")
        assert f"{tmp_path} has" in done.stdout + done.stderr, words


def test_every_view_of_a_sweep_says_which_trial_returns_again_and_again(
    store, who, sweep_of, take, hpq
) -> None:
    sid = sweep_of(1).id
    for _ in range(3):
        store.release(take(), Reason.STOPPING)
    for words in (
        ["ls"], ["watch", sid, "--once"], ["summary", sid], ["summary", sid, "--json"], ["doctor"],
    ):  # fmt: skip
        done = hpq(*words, COLUMNS="300")
        assert f"hpq show {sid}/1" in done.stdout + done.stderr, words
    assert json.loads(hpq("ls", "--json").stdout)[0]["returned"]["trial"] == 1
