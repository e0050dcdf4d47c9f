"""`hpq show TRIAL` tells each attempt, from the trial's own events, whatever became of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace

import pytest
from redis import Redis

from hpq.domain.attempt import Outcome, Reason, ReportBatch, WorkerPresence
from hpq.domain.trial import Checkpoint, Failure, FailureKind, TrialId, TrialState
from hpq.store.control import SweepControl
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from hpq_views.analysis.history import attempts_of
from tests.support.store_calls import reaped

LEASE = 30_000
Hpq = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def tried(store: TrialStore, sweep_of, take, who: WorkerPresence, redis: Redis, keys) -> TrialId:
    """Trial 1 of two: lost, released with a checkpoint of step 7, killed, lost and back, done."""
    sweep_of(2)
    store.reap("default", lease_ms=LEASE, lost_max=9)

    def lose() -> None:
        redis.zadd(keys.leases, {name: 0 for name in redis.zrange(keys.leases, 0, -1)})
        assert reaped(store, "default", lease_ms=LEASE, lost_max=9) == 1

    first = take()
    lose()
    second = take()
    kept = Checkpoint(store="abc123", path="hpq/demo-00000/1/2/checkpoint-1", step=7)
    store.beat(second, who, ReportBatch(seq=1, step=7, checkpoint=kept), lease_ms=LEASE)
    store.release(second, Reason.STOPPING)
    third = take()
    killed = Failure(kind=FailureKind.KILLED, message="signal 9")
    store.commit(third, Outcome(state=TrialState.FAILED, failure=killed, ran_ms=60_000))
    fourth = take()
    lose()
    store.beat(fourth, who, ReportBatch(seq=1, restarted="it is gone"), lease_ms=LEASE)
    done = Outcome(state=TrialState.FINISHED, objective=0.5, ran_ms=30_000)
    store.commit(fourth, done)
    return first.trial


def test_show_tells_how_each_attempt_began_and_ended(hpq: Hpq, tried: TrialId) -> None:
    page = hpq("show", tried).stdout
    assert "30s in attempt 4, 1m3" in page  # and the minute of the third, in all
    told = [line for line in page.splitlines() if line.endswith("w1 on h1")][-4:]
    assert [line.split()[:2] for line in told] == [
        ["1", "lost"],
        ["2", "requeued:"],
        ["3", "killed,"],
        ["4", "finished"],
    ]
    assert "killed" in told[2] and "step 7" in told[2] and "(it is gone)" in told[3]
    record = json.loads(hpq("show", tried, "--json").stdout)
    assert [one["end"] for one in record["attempts"]] == ["lost", "stopping", "killed", "finished"]
    assert [one["from_step"] for one in record["attempts"]] == [None, None, 7, None]
    assert record["duration_s"] == 30 and 90 <= record["total_s"] < 120


def test_a_retry_keeps_the_hours_of_before_and_tells_them(
    hpq: Hpq, store: TrialStore, reader: StoreReader, tried: TrialId, take, control: SweepControl
) -> None:
    before = reader.trials.get(tried).total_ms
    control.retry(tried.sweep, [1])
    control.retry(tried.sweep, [1])
    assert reader.trials.get(tried).total_ms == before
    while (claim := take()).trial != tried:  # it is last
        pass
    store.commit(claim, Outcome(state=TrialState.FINISHED, objective=1.0, ran_ms=5_000))
    trial = reader.trials.get(tried)
    assert (trial.duration_ms, trial.total_ms) == (5_000, before + 5_000)
    assert [one.end for one in attempts_of(reader.events.of_trial(tried), trial)][3:] == [
        "finished"
    ] * 2
    assert "1m3" in hpq("summary").stdout  # of the whole sweep


def test_the_story_of_a_trial_is_read_without_those_of_the_others(
    store: TrialStore, reader: StoreReader, tried: TrialId, take, redis: Redis, keys
) -> None:
    other = take()
    for _ in range(200):  # each a claim and a release: far more than a trial keeps
        store.release(other, Reason.DATA_MISSING)
        other = take()
    assert len(redis.hget(keys.trial(other.trial), "event_ids")) <= 2000
    newest = attempts_of(reader.events.of_trial(other.trial), reader.trials.get(other.trial))
    assert 40 <= len(newest) < 70 and newest[-1].number == 201
    sent = redis.info("commandstats")["cmdstat_xrange"]["calls"]
    assert len(attempts_of(reader.events.of_trial(tried), reader.trials.get(tried))) == 4
    assert redis.info("commandstats")["cmdstat_xrange"]["calls"] - sent == len(
        reader.events.of_trial(tried)
    )


def test_a_trial_of_an_older_hpq_has_no_story_and_is_shown(
    hpq: Hpq, reader: StoreReader, tried: TrialId, redis: Redis, keys
) -> None:
    redis.hdel(keys.trial(tried), "event_ids")
    assert attempts_of(reader.events.of_trial(tried), replace(reader.trials.get(tried))) == []
    page = hpq("show", tried)
    assert page.returncode == 0 and " after " not in page.stdout


def test_an_attempt_that_was_given_back_before_it_ran_took_no_time(
    store: TrialStore, sweep_of, take, redis: Redis, keys, reader: StoreReader
) -> None:
    sweep_of(1)
    told = []
    for reason in (Reason.REFUSED, Reason.STOPPING, Reason.DATA_MISSING):
        claim = take()
        redis.hincrby(keys.trial(claim.trial), "claimed_ms", -60_000)
        assert store.release(claim, reason) == "released"
        assert store.release(claim, reason) == "already"
        told.append((claim.unbegun, reader.trials.get(claim.trial).total_ms // 60_000))
    last = take()
    assert told == [(0, 0), (1, 1), (1, 1)] and last.unbegun == 2
    assert reader.trials.get(last.trial).before_ms // 60_000 == 1
