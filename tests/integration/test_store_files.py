"""Pointers to files through the real scripts: who may move them, and what of the history stays."""

from __future__ import annotations

from hpq.outcome import Batch, Committed, Doomed, Ended, Outcome, Presence, Reason, Verdict
from hpq.store import Store
from hpq.sweep import Keep
from hpq.trial import Artifacts, Checkpoint, Claim, Failure, FailureKind, Point, TrialState

LEASE = 30_000
HERE = Checkpoint(store="abcd", path="hpq/s/1/1/checkpoint-1", step=2, counts={"acc": 2})


def take(store: Store, who: Presence, nonce: str) -> Claim:
    claim = store.claim(who, nonce=nonce, lease_ms=LEASE)
    assert claim is not None
    return claim


def points(*steps: int) -> tuple[Point, ...]:
    return tuple(Point(step=step, name="acc", value=float(step)) for step in steps)


def beat(store: Store, who: Presence, claim: Claim, seq: int, *steps: int, **more) -> Verdict:
    batch = Batch(seq=seq, step=max(steps, default=0), points=points(*steps), **more)
    return store.beat(claim, who, batch, lease_ms=LEASE)


def end(store: Store, claim: Claim, value: float, **more) -> Ended:
    outcome = Outcome(state=TrialState.FINISHED, objective=value, step=1, **more)
    return store.end(claim, outcome, 0)


def steps(view, claim: Claim) -> list[int]:
    return [p.step for p in view.history(claim.trial, "acc")]


def expire(store: Store, redis, keys) -> None:
    store.reap("default", lease_ms=LEASE, lost_max=2)
    for name in redis.zrange(keys.leases, 0, -1):
        redis.zadd(keys.leases, {name: 0})
    store.reap("default", lease_ms=LEASE, lost_max=2)


def test_the_next_attempt_is_handed_the_checkpoint_also_when_it_asks_twice(
    store, view, sweep_of, who
) -> None:
    sweep_of(1)
    first = take(store, who, "a")
    assert first.checkpoint is None
    assert beat(store, who, first, 1, 1, 2, checkpoint=HERE) is Verdict.OK
    assert view.trial(first.trial).checkpoint == HERE
    store.release(first, Reason.STOPPING)
    second = take(store, who, "b")
    assert second.checkpoint == HERE and second == take(store, who, "b")
    assert view.trial(first.trial).step == 2


def test_a_late_attempt_moves_no_pointer(store, view, sweep_of, who) -> None:
    sweep_of(1)
    first = take(store, who, "a")
    store.release(first, Reason.STOPPING)
    second = take(store, who, "b")
    assert beat(store, who, first, 1, 1, checkpoint=HERE) is Verdict.LOST
    assert view.trial(first.trial).checkpoint is None
    assert beat(store, who, second, 1, 1) is Verdict.OK


def test_a_resumed_history_has_no_doubled_steps_and_no_hole(store, view, sweep_of, who) -> None:
    sweep_of(1)
    first = take(store, who, "a")
    beat(store, who, first, 1, 1, 2, checkpoint=HERE)
    beat(store, who, first, 2, 3, 4, 5)
    store.release(first, Reason.STOPPING)
    second = take(store, who, "b")
    assert steps(view, first) == [1, 2, 3, 4, 5]  # seen, and not yet contradicted
    beat(store, who, second, 1, 3)
    assert steps(view, first) == [1, 2, 3]
    beat(store, who, second, 2, 4, 2)  # what an attempt itself reports is its own affair
    assert steps(view, first) == [1, 2, 3, 4, 2]


def test_a_pointer_that_cannot_be_read_costs_the_checkpoint_and_not_the_worker(
    store, sweep_of, who, redis, keys
) -> None:
    sweep_of(1)
    claim = take(store, who, "a")
    for text in (b"\xff", b"{", b"[]", b"7", b"{}"):
        redis.hset(keys.trial(claim.trial), "checkpoint", text)
        again = take(store, who, "a")
        assert again.checkpoint == Checkpoint(store="unknown", path="")
    newer = b'{"store":"abcd","path":"p","step":3,"colour":"blue"}'
    redis.hset(keys.trial(claim.trial), "checkpoint", newer)
    assert take(store, who, "a").checkpoint == Checkpoint(store="abcd", path="p", step=3)


def test_without_a_checkpoint_the_history_begins_anew(store, view, sweep_of, who) -> None:
    sweep_of(1)
    first = take(store, who, "a")
    beat(store, who, first, 1, 1, 2)
    store.release(first, Reason.STOPPING)
    take(store, who, "b")
    assert steps(view, first) == []


def test_a_restart_forgets_the_checkpoint_and_the_history_once(store, view, sweep_of, who) -> None:
    sweep = sweep_of(1)
    first = take(store, who, "a")
    beat(store, who, first, 1, 1, 2, checkpoint=HERE)
    store.release(first, Reason.STOPPING)
    second = take(store, who, "b")
    for _ in range(2):  # the reply was lost
        assert beat(store, who, second, 1, 1, restarted="another store") is Verdict.OK
    trial = view.trial(first.trial)
    assert (trial.checkpoint, trial.restarted) == (None, "another store")
    assert steps(view, first) == [1]
    assert [e.what for e in view.events(sweep.id)].count("restarted") == 1
    store.release(second, Reason.STOPPING)
    assert take(store, who, "c").checkpoint is None
    assert view.trial(first.trial).restarted == ""


def test_a_new_checkpoint_is_progress_and_the_same_step_again_is_none(
    store, view, sweep_of, who, redis, keys
) -> None:
    sweep_of(1)
    for n in (1, 2, 3):  # further each time than its last checkpoint, never than at first
        claim = take(store, who, f"a{n}")
        at = Checkpoint(store="abcd", path=f"p/{n}", step=n)
        beat(store, who, claim, 1, 10 if n == 1 else n, checkpoint=at)
        expire(store, redis, keys)
        assert view.trial(claim.trial).state is TrialState.QUEUED
    claim = take(store, who, "b")
    beat(store, who, claim, 1, 3, checkpoint=Checkpoint(store="abcd", path="p/4", step=3))
    expire(store, redis, keys)
    failure = view.trial(claim.trial).failure
    assert failure is not None and failure.kind is FailureKind.POISON


def test_artifacts_come_with_the_commit_once(store, view, sweep_of, who) -> None:
    sweep_of(1)
    claim = take(store, who, "a")
    left = Artifacts(store="abcd", path="p/1", files={"model": 3})
    assert end(store, claim, 1.0, artifacts=left).word is Committed.DONE
    other = Artifacts(store="abcd", path="p/2", files={"other": 3})
    assert end(store, claim, 1.0, artifacts=other).word is Committed.ALREADY
    assert view.trial(claim.trial).artifacts == left


def test_only_what_came_to_its_end_loses_its_checkpoint(store, view, sweep_of, who) -> None:
    sweep_of(2)
    done = take(store, who, "a")
    beat(store, who, done, 1, 1, checkpoint=HERE)
    assert end(store, done, 1.0).doomed == (Doomed(trial=done.trial, attempt=1, artifacts=False),)
    failed = take(store, who, "b")
    beat(store, who, failed, 1, 1, checkpoint=HERE)
    late = Failure(kind=FailureKind.TIMEOUT, message="late")
    ended = store.end(failed, Outcome(state=TrialState.FAILED, failure=late), 0)
    assert ended == Ended(word=Committed.DONE)
    for number in (1, 2):
        store.retry(done.trial.sweep, [number])
    assert take(store, who, "c").checkpoint is None  # it would only come to its end again
    assert take(store, who, "d").checkpoint == HERE


def test_keep_names_the_others_until_they_are_forgotten(store, view, sweep_of, who) -> None:
    sweep = sweep_of(4, keep=Keep(best=1, last=1))  # a higher acc is better
    left = Artifacts(store="abcd", path="p", files={"model": 3})
    doomed = []
    for n, value in enumerate([0.5, 0.9, 0.9, 0.1], start=1):
        ended = end(store, take(store, who, f"n{n}"), value, artifacts=left)
        doomed.append([d.trial.number for d in ended.doomed])
    assert doomed == [[], [1], [1], [1]]  # 2 and 3 are equally good
    for one in ended.doomed:
        assert one.artifacts
        store.forget_files(one)
    has = [t.id.number for t in view.all_trials(sweep.id) if t.artifacts]
    assert has == [2, 3, 4]
    store.retry(sweep.id, [2])
    again = take(store, who, "again")
    stale = Doomed(trial=again.trial, attempt=1, artifacts=True)
    store.forget_files(stale)  # it has begun again: nothing happens
    store.commit(again, Outcome(state=TrialState.CANCELLED, artifacts=left), 0)
    store.forget_files(stale)
    assert view.trial(again.trial).artifacts == left
    store.retry(sweep.id, [2])
    again = take(store, who, "and again")
    assert [d.trial.number for d in end(store, again, 0.95, artifacts=left).doomed] == [3, 4]


def test_keep_names_also_the_checkpoint_of_a_trial_that_no_commit_has_ended(
    store, view, sweep_of, who, redis, keys
) -> None:
    sweep_of(4, keep=Keep(best=1))
    for nonce in ("a", "b"):  # poison: its checkpoint is no progress over the one before it
        claim = take(store, who, nonce)
        beat(store, who, claim, 1, 2, checkpoint=HERE)
        expire(store, redis, keys)
    assert view.trial(claim.trial).state is TrialState.FAILED
    given = take(store, who, "c")
    beat(store, who, given, 1, 2, checkpoint=HERE)
    store.release(given, Reason.STOPPING)
    store.control(given.trial.sweep, "cancel", given.trial.number)
    last = take(store, who, "d")
    assert [d.trial.number for d in end(store, last, 0.5).doomed] == [1, 2]
