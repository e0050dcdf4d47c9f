"""Pointers to files through the real scripts: who may move them, and what of the history stays."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from hpq.domain.attempt import (
    AttachReply,
    CommitReply,
    HeartbeatReply,
    Nothing,
    Outcome,
    Reason,
    ReportBatch,
    WorkerPresence,
)
from hpq.domain.sweep import Keep
from hpq.domain.trial import (
    Artifacts,
    Checkpoint,
    Claim,
    Failure,
    FailureKind,
    Point,
    TrialId,
    TrialState,
    Unstored,
)
from hpq.store.control import SweepControl
from hpq.store.trials import TrialStore
from hpq.store.wire.fields import dumps
from hpq_ops.audit.sweep_audit import audit_sweep
from tests.support.store_calls import LEASE, Shelf, beat, end, take

HERE = Checkpoint(store="abcd", path="hpq/s/1/1/checkpoint-1", step=2, counts={"acc": 2})


def steps(reader, claim: Claim) -> list[int]:
    return [p.step for p in reader.trials.metric_history(claim.trial, "acc")]


def expire(store: TrialStore, redis, keys) -> None:
    store.reap("default", lease_ms=LEASE, lost_max=2)
    for name in redis.zrange(keys.leases, 0, -1):
        redis.zadd(keys.leases, {name: 0})
    store.reap("default", lease_ms=LEASE, lost_max=2)


def test_the_next_attempt_is_handed_the_checkpoint_also_when_it_asks_twice(
    store, reader, sweep_of, who
) -> None:
    sweep_of(1)
    first = take(store, who, "a")
    assert first.checkpoint is None
    assert beat(store, who, first, 1, 1, 2, checkpoint=HERE) is HeartbeatReply.OK
    assert reader.trials.get(first.trial).checkpoint == HERE
    store.release(first, Reason.STOPPING)
    second = take(store, who, "b")
    assert second.checkpoint == HERE and second == take(store, who, "b")
    assert reader.trials.get(first.trial).step == 2


def test_a_pointer_from_another_client_goes_with_the_first_end_of_its_trial(
    store, reader, sweep_of, who, redis, keys
) -> None:
    """Also of an attempt that ends before its first heartbeat."""
    sweep = sweep_of(1)
    trial = TrialId(sweep=sweep.id, number=1)
    redis.hset(keys.trial(trial), "checkpoint", dumps(asdict(HERE)))
    end(store, take(store, who), 0.5)
    assert reader.trials.get(trial).checkpoint is None
    assert audit_sweep(reader, sweep.id).violations == ()


def test_a_late_attempt_moves_no_pointer(store, reader, sweep_of, who) -> None:
    sweep_of(1)
    first = take(store, who, "a")
    store.release(first, Reason.STOPPING)
    second = take(store, who, "b")
    assert beat(store, who, first, 1, 1, checkpoint=HERE) is HeartbeatReply.LOST
    assert reader.trials.get(first.trial).checkpoint is None
    assert beat(store, who, second, 1, 1) is HeartbeatReply.OK


def test_a_pointer_that_cannot_be_read_is_named_and_ends_no_worker(
    store, sweep_of, who, redis, keys
) -> None:
    sweep_of(1)
    claim = take(store, who, "a")
    odd = b'{"store":"s","path":7}', b'{"store":"s","path":"p","counts":{"a":"x"}}'
    for text in (b"\xff", b"{", b"[]", b"7", b"{}", *odd):
        redis.hset(keys.trial(claim.trial), "checkpoint", text)
        again = take(store, who, "a")
        assert again.trial == claim.trial and not again.unreadable
        assert again.checkpoint == Checkpoint(store="unknown", path=""), "the training restarts"
    newer = b'{"store":"abcd","path":"p","step":3,"color":"blue"}'
    redis.hset(keys.trial(claim.trial), "checkpoint", newer)
    assert take(store, who, "a").checkpoint == Checkpoint(store="abcd", path="p", step=3)


def test_a_restart_forgets_the_history_once_and_the_checkpoint_when_it_has_its_own(
    store, reader, sweep_of, who
) -> None:
    sweep = sweep_of(1)
    first = take(store, who, "a")
    beat(store, who, first, 1, 1, 2, checkpoint=HERE)
    store.release(first, Reason.STOPPING)
    second = take(store, who, "b")
    for _ in range(2):  # the reply was lost
        assert beat(store, who, second, 1, 1, restarted="another store") is HeartbeatReply.OK
    trial = reader.trials.get(first.trial)
    assert (trial.checkpoint, trial.restarted) == (HERE, "another store")
    assert steps(reader, first) == [1]
    assert [e.what for e in reader.events.read(sweep.id)].count("restarted") == 1
    store.release(second, Reason.STOPPING)
    third = take(store, who, "c")
    assert third.checkpoint == HERE and reader.trials.get(first.trial).restarted == ""
    beat(store, who, third, 1, 1, restarted="another store")
    own = Checkpoint(store="efgh", path="hpq/s/1/3/checkpoint-1", step=1)
    beat(store, who, third, 2, 2, checkpoint=own)
    store.release(third, Reason.STOPPING)
    assert take(store, who, "d").checkpoint == own


def test_a_restart_from_the_checkpoint_forgets_only_what_was_reported_after_it(
    store, reader, sweep_of, who
) -> None:
    sweep_of(1)
    first = take(store, who, "a")
    beat(store, who, first, 1, 1, 2, 3, checkpoint=HERE)
    kept = reader.trials.metric_history(first.trial, "acc")[1].value
    store.release(first, Reason.STOPPING)
    second = take(store, who, "b")
    points = (Point(4, "only", 1.0), Point(4, "acc", 9.0))
    store.beat(second, who, ReportBatch(seq=1, step=4, points=points), lease_ms=LEASE)
    again = ReportBatch(seq=2, step=2, restarted="why", kept_step=2)
    store.beat(second, who, again, lease_ms=LEASE)
    assert steps(reader, first) == [1, 2]
    assert reader.trials.get(first.trial).metrics == {"acc": kept}
    beat(store, who, second, 3, 2, 3)  # the script counts its own steps
    assert steps(reader, first) == [1, 2, 3]


def has(store: TrialStore, name: str, mark: str, **more: str) -> WorkerPresence:
    """A worker that says that it has a store of files."""
    fields = {"state": "busy", "store_id": mark, **more}
    it = WorkerPresence(name=name, host=f"h-{name}", queue="default", fields=fields)
    store.present(it, idle=False, lifetime_ms=3 * LEASE)
    return it


def test_a_trial_waits_for_a_worker_that_has_its_checkpoint_while_there_is_one(
    store, sweep_of, redis, keys
) -> None:
    sweep_of(2)
    good, bare = has(store, "good", "abcd"), has(store, "bare", "efgh")
    first = take(store, good, "a")
    beat(store, good, first, 1, 1, checkpoint=HERE)
    store.release(first, Reason.STOPPING)
    assert take(store, bare, "b").trial.number == 2  # the mount is missing: it takes another
    assert store.claim(bare, nonce="c", lease_ms=LEASE) == Nothing()
    assert take(store, good, "d").checkpoint == HERE


@pytest.mark.parametrize(
    "more", [{"state": "stopping"}, {"refuses": '{"demo-00000":"no data"}'}, {"store_id": ""}]
)
def test_a_trial_starts_again_where_no_worker_that_may_take_it_has_its_checkpoint(
    store, sweep_of, more
) -> None:
    sweep_of(1)
    good, bare = has(store, "good", "abcd"), has(store, "bare", "")
    first = take(store, good, "a")
    beat(store, good, first, 1, 1, checkpoint=HERE)
    store.release(first, Reason.STOPPING)
    has(store, "good", **{"mark": "abcd", **more})
    assert take(store, bare, "b").checkpoint == HERE


def test_a_new_checkpoint_is_progress_and_the_same_step_again_is_none(
    store, reader, sweep_of, who, redis, keys
) -> None:
    sweep_of(1)
    for n in (1, 2, 3):  # further each time than its last checkpoint, never than at first
        claim = take(store, who, f"a{n}")
        at = Checkpoint(store="abcd", path=f"p/{n}", step=n)
        beat(store, who, claim, 1, 10 if n == 1 else n, checkpoint=at)
        expire(store, redis, keys)
        assert reader.trials.get(claim.trial).state is TrialState.QUEUED
    claim = take(store, who, "b")
    beat(store, who, claim, 1, 3, checkpoint=Checkpoint(store="abcd", path="p/4", step=3))
    expire(store, redis, keys)
    failure = reader.trials.get(claim.trial).failure
    assert failure is not None and failure.kind is FailureKind.POISON


def test_artifacts_come_with_the_commit_once(store, reader, sweep_of, who) -> None:
    sweep_of(1)
    claim = take(store, who, "a")
    left = Artifacts(store="abcd", path="p/1", files={"model": 3})
    assert end(store, claim, 1.0, artifacts=left) is CommitReply.DONE
    other = Artifacts(store="abcd", path="p/2", files={"other": 3})
    assert end(store, claim, 1.0, artifacts=other) is CommitReply.ALREADY
    assert reader.trials.get(claim.trial).artifacts == left


LATE = Unstored(store="abcd", path="p/late", folder="/home/me/out")
STORED = Artifacts(store="abcd", path="p/late", files={"model": 3})


def test_files_that_waited_for_their_store_are_named_once(store, reader, sweep_of, who) -> None:
    sweep = sweep_of(2)
    claim = take(store, who, "a")
    assert store.attach_files(claim, STORED) is AttachReply.UNKNOWN  # the result is on its way
    end(store, claim, 1.0, unstored=LATE)
    assert reader.trials.get(claim.trial).unstored == LATE
    assert reader.sweeps.get(sweep.id).unstored == 1
    for _ in range(2):  # the first reply was lost
        assert store.attach_files(claim, STORED) is AttachReply.ATTACHED
    trial = reader.trials.get(claim.trial)
    assert (trial.artifacts, trial.unstored) == (STORED, None)
    assert reader.sweeps.get(sweep.id).unstored == 0
    assert [e.what for e in reader.events.of_trial(claim.trial)] == [
        "claimed",
        "finished",
        "stored",
    ]
    other = take(store, who, "b")
    end(store, other, 1.0)
    assert store.attach_files(other, STORED) is AttachReply.STALE  # it left no files
    assert audit_sweep(reader, sweep.id).violations == ()


def test_files_come_too_late_for_a_trial_that_does_not_need_them(
    store, reader, sweep_of, who, control: SweepControl, redis, keys
) -> None:
    sweep = sweep_of(3, keep=Keep(best=1))  # a higher acc is better
    claims = [take(store, who, f"n{n}") for n in range(3)]
    for claim, value in zip(claims, (0.1, 0.2, 0.3), strict=True):
        end(store, claim, value, unstored=LATE)
    assert reader.sweeps.get(sweep.id).unstored == 1
    assert [reader.trials.get(one.trial).gone for one in claims] == ["keep", "keep", ""]
    assert store.attach_files(claims[0], STORED) is AttachReply.STALE
    made_up = replace(claims[2], nonce="made up")
    assert store.attach_files(made_up, STORED) is AttachReply.STALE
    control.retry(sweep.id, [3])
    assert reader.sweeps.get(sweep.id).unstored == 0
    assert store.attach_files(claims[2], STORED) is AttachReply.STALE
    again = take(store, who, "again")
    assert store.attach_files(claims[2], STORED) is AttachReply.STALE
    end(store, again, 0.4, unstored=LATE)
    ahead = replace(again, attempt=3)
    assert (
        store.attach_files(ahead, STORED) is AttachReply.UNKNOWN
    )  # the server lost its newest data
    assert audit_sweep(reader, sweep.id).violations == ()
    other = replace(again, trial=TrialId(sweep="other-00000", number=1))
    assert store.attach_files(other, STORED) is AttachReply.UNKNOWN
    control.remove(sweep.id, keep_files=True)
    assert store.attach_files(again, STORED) is AttachReply.UNKNOWN
    redis.zadd(keys.removed, {sweep.id: 7})  # as a removal with its files
    assert store.attach_files(again, STORED) is AttachReply.STALE


def test_only_what_came_to_its_end_loses_its_checkpoint(
    store, reader, sweep_of, who, control: SweepControl
) -> None:
    sweep_of(2)
    done = take(store, who, "a")
    beat(store, who, done, 1, 1, checkpoint=HERE)
    end(store, done, 1.0)
    failed = take(store, who, "b")
    beat(store, who, failed, 1, 1, checkpoint=HERE)
    late = Failure(kind=FailureKind.TIMEOUT, message="late")
    store.commit(failed, Outcome(state=TrialState.FAILED, failure=late))
    assert reader.trials.get(done.trial).checkpoint is None
    assert reader.trials.get(failed.trial).checkpoint == HERE
    for number in (1, 2):
        control.retry(done.trial.sweep, [number])
    again = take(store, who, "c")
    assert again.checkpoint is None  # it would only come to its end again
    assert reader.trials.get(again.trial).step == 0 and steps(reader, again) == []
    assert not any("from" in event.fields for event in reader.events.of_trial(again.trial))
    assert take(store, who, "d").checkpoint == HERE


def test_keep_lets_the_files_of_the_others_go_at_once(
    store, reader, sweep_of, who, control: SweepControl
) -> None:
    sweep = sweep_of(4, keep=Keep(best=1, last=1))  # a higher acc is better
    left = Artifacts(store="abcd", path="p", files={"model": 3})

    def having() -> list[int]:
        return [t.id.number for t in reader.trials.all(sweep.id) if t.artifacts]

    seen = []
    for n, value in enumerate([0.5, 0.9, 0.9, 0.1], start=1):
        end(store, take(store, who, f"n{n}"), value, artifacts=left)
        seen.append(having())
    assert seen == [[1], [2], [2, 3], [2, 3, 4]]  # 2 and 3 are equally good
    control.retry(sweep.id, [2])
    assert having() == [3, 4]
    end(store, take(store, who, "again"), 0.95, artifacts=left)
    assert having() == [2]  # now the best and the last


def test_what_a_lost_reply_a_crash_or_a_later_attempt_leaves_goes_all_the_same(
    store, sweep_of, who, shelf, control: SweepControl
) -> None:
    sweep_of(1)
    first = take(store, who, "a")
    beat(store, who, first, 1, 1, checkpoint=shelf.put(first, "checkpoint-1"))
    shelf.put(first, "checkpoint-2")  # killed in the middle of this one
    store.release(first, Reason.STOPPING)
    second = take(store, who, "b")
    own = shelf.put(second, "checkpoint-1")
    beat(store, who, second, 1, 2, checkpoint=own)
    left = shelf.artifacts(second)
    for word in (CommitReply.DONE, CommitReply.ALREADY):  # the first reply was lost
        outcome = Outcome(state=TrialState.FINISHED, objective=1.0, artifacts=left)
        assert store.commit(second, outcome) is word
    assert shelf.left() == ["demo-00000/1/2-b/artifacts"]
    control.retry("demo-00000", [1])
    assert shelf.left() == []


def test_a_worker_whose_mount_is_missing_costs_no_checkpoint(
    store, sweep_of, who, shelf, tmp_path, redis, keys
) -> None:
    sweep_of(1)
    empty = Shelf(tmp_path / "not-mounted", redis, keys)
    first = take(store, who, "a")
    kept = shelf.put(first, "checkpoint-9")
    beat(store, who, first, 1, 9, checkpoint=kept)
    store.release(first, Reason.STOPPING)
    second = take(store, who, "b")
    beat(store, who, second, 1, 1, restarted="another store")
    assert shelf.left() == ["demo-00000/1/1-a/checkpoint-9"]
    store.release(second, Reason.STOPPING)
    third = take(store, who, "c")
    assert third.checkpoint == kept
    beat(store, who, third, 1, 1, restarted="another store")
    beat(store, who, third, 2, 2, checkpoint=empty.put(third, "checkpoint-1"))
    assert shelf.left() == []
    assert empty.left() == ["demo-00000/1/3-c/checkpoint-1"]
    assert empty.garbage.recent_stores() == {shelf.files.id, empty.files.id}


def test_a_restart_without_its_checkpoint_names_the_files_and_not_its_own(
    store, sweep_of, who, shelf
) -> None:
    sweep_of(1)
    first = take(store, who, "a")
    beat(store, who, first, 1, 1, checkpoint=shelf.put(first, "checkpoint-1"))
    store.release(first, Reason.STOPPING)
    second = take(store, who, "b")
    beat(store, who, second, 1, 1, restarted="its files cannot be read")
    own = shelf.put(second, "checkpoint-1")
    assert len(shelf.left()) == 2  # not yet published
    beat(store, who, second, 2, 2, checkpoint=own)
    assert shelf.left() == ["demo-00000/1/2-b/checkpoint-1"]


def test_files_of_an_attempt_that_may_come_back_stay(store, sweep_of, who, shelf, redis, keys):
    sweep_of(1)
    first = take(store, who, "a")
    beat(store, who, first, 1, 1, checkpoint=shelf.put(first, "checkpoint-1"))
    expire(store, redis, keys)
    newer = shelf.put(first, "checkpoint-2")
    assert len(shelf.left()) == 2
    assert beat(store, who, first, 2, 2, checkpoint=newer) is HeartbeatReply.OK


def test_what_is_in_another_store_waits_for_who_has_it(
    store, sweep_of, who, shelf, tmp_path, redis, keys, control: SweepControl
) -> None:
    sweep_of(2)
    other = Shelf(tmp_path / "other", redis, keys)
    first = take(store, who, "a")
    beat(store, who, first, 1, 1, checkpoint=shelf.put(first, "checkpoint-1"))
    end(store, first, 1.0)
    running = take(store, who, "b")
    beat(store, who, running, 1, 1, checkpoint=other.put(running, "checkpoint-1"))
    assert sorted(control.remove("demo-00000")) == sorted([shelf.files.id, other.files.id])
    assert other.left() == []
    other.put(running, "checkpoint-2")  # it hears at its next beat only
    assert other.left() == []
    assert [p.name for p in (tmp_path / "store").glob("hpq/*")] == ["demo-00000"]
    assert shelf.left() == []


def test_keep_lets_go_of_the_checkpoint_of_a_trial_that_no_commit_has_ended(
    store, sweep_of, who, shelf, redis, keys, control: SweepControl
) -> None:
    sweep_of(4, keep=Keep(best=1))
    for nonce in ("a", "b"):  # poison: its checkpoint is no progress over the one before it
        claim = take(store, who, nonce)
        beat(store, who, claim, 1, 2, checkpoint=shelf.put(claim, "checkpoint-1"))
        expire(store, redis, keys)
    assert shelf.left() == []
    given = take(store, who, "c")
    beat(store, who, given, 1, 2, checkpoint=shelf.put(given, "checkpoint-1"))
    store.release(given, Reason.STOPPING)
    control.cancel(given.trial.sweep, [given.trial.number])
    end(store, take(store, who, "d"), 0.5)
    assert shelf.left() == []


@pytest.mark.parametrize("keep", [None, Keep(best=1)])
@pytest.mark.parametrize("how", ["release", "reap"])
def test_what_was_told_to_stop_early_lets_its_checkpoint_go_also_without_its_worker(
    store, reader, sweep_of, who, shelf, redis, keys, how, keep
) -> None:
    sweep_of(2, keep=keep)
    end(store, take(store, who, "a"), 0.9)
    claim = take(store, who, "b")
    beat(store, who, claim, 1, 1, checkpoint=shelf.put(claim, "checkpoint-1"))
    redis.hset(keys.trial(claim.trial), mapping={"stop": "prune", "objective": "0.1"})
    if how == "release":
        store.release(claim, Reason.STOPPING)
    else:
        redis.hset(keys.trial(claim.trial), "beat_ms", 1)  # long ago
        expire(store, redis, keys)
    trial = reader.trials.get(claim.trial)
    assert (trial.state, trial.checkpoint) == (TrialState.PRUNED, None)
    assert shelf.left() == []
    assert not redis.exists(keys.sweep(claim.trial.sweep, "files"))


@pytest.mark.parametrize("text", [b"\xff", b"{", b"[]", b"7", b"{}"])
def test_while_a_pointer_cannot_be_read_no_file_of_its_trial_goes(
    store, sweep_of, who, shelf, redis, keys, text
) -> None:
    sweep_of(1)
    first = take(store, who, "a")
    kept = shelf.put(first, "checkpoint-1")
    beat(store, who, first, 1, 1, checkpoint=kept)
    store.release(first, Reason.STOPPING)
    redis.hset(keys.trial(first.trial), "checkpoint", text)
    assert shelf.left() == [kept.path.removeprefix("hpq/")]
